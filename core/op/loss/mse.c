/* The mean squared error, as torch.nn.functional.mse_loss: a label stands for 1 at its class and 0
 * elsewhere. */
#include "core/op/loss.h"

static double mse_value(const oct_output_row *row, const oct_loss_options *options)
{
    double sum = 0;
    (void)options;
    for (int64_t k = 0; k < row->n; k++)
        sum += oct_output_error(row, k) * oct_output_error(row, k);
    return sum / (double)row->n;
}

static void mse_grad(const oct_output_row *row, const oct_loss_options *options,
                     oct_loss_scale scale, float *grad)
{
    (void)options;
    for (int64_t k = 0; k < row->n; k++)
        grad[k] = oct_loss_scaled(scale, 2 * oct_output_error(row, k) / (double)row->n);
}

const oct_loss_kind oct_loss_mse = {.name = "mse",
                                    .takes = OCT_LOSS_OF_LABELS | OCT_LOSS_OF_VALUES,
                                    .value = mse_value,
                                    .grad = mse_grad};
