/* The mean absolute error, as torch.nn.functional.l1_loss. */
#include "core/op/loss.h"

#include <math.h>

static double mae_value(const oct_output_row *row, const oct_loss_options *options)
{
    double sum = 0;
    (void)options;
    for (int64_t k = 0; k < row->n; k++)
        sum += fabs(oct_output_error(row, k));
    return sum / (double)row->n;
}

static double sign(double x)
{
    return (double)(x > 0) - (double)(x < 0);
}

static void mae_grad(const oct_output_row *row, const oct_loss_options *options,
                     oct_loss_scale scale, float *grad)
{
    (void)options;
    for (int64_t k = 0; k < row->n; k++)
        grad[k] = oct_loss_scaled(scale, sign(oct_output_error(row, k)) / (double)row->n);
}

const oct_loss_kind oct_loss_mae = {.name = "mae",
                                    .takes = OCT_LOSS_OF_LABELS | OCT_LOSS_OF_VALUES,
                                    .value = mae_value,
                                    .grad = mae_grad};
