/* The mean squared error, as torch.nn.functional.mse_loss: a label stands for 1 at its class and 0
 * elsewhere. */
#include "core/op/loss.h"

static double error_at(const oct_output_row *row, int64_t k)
{
    const double wanted = row->goal ? (double)row->goal[k] : k == row->label ? 1.0 : 0.0;
    return (double)row->y[k] - wanted;
}

static double value(const oct_output_row *row, const oct_loss_options *options)
{
    double sum = 0;
    (void)options;
    for (int64_t k = 0; k < row->n; k++)
        sum += error_at(row, k) * error_at(row, k);
    return sum / (double)row->n;
}

static void grad(const oct_output_row *row, const oct_loss_options *options, oct_loss_scale scale,
                 float *grad)
{
    (void)options;
    for (int64_t k = 0; k < row->n; k++)
        grad[k] = oct_loss_scaled(scale, 2 * error_at(row, k) / (double)row->n);
}

const oct_loss_kind oct_loss_mse = {
    .name = "mse", .takes = OCT_LOSS_OF_LABELS | OCT_LOSS_OF_VALUES, .value = value, .grad = grad};
