/* Huber's loss, as torch.nn.functional.huber_loss: half the squared error up to delta, and beyond it the line
 * that goes on from there. */
#include "core/op/loss.h"

#include <math.h>

static double delta_of(const oct_loss_options *o)
{
    return o->delta > 0 ? o->delta : 1.0;
}

static double huber_value(const oct_output_row *row, const oct_loss_options *o)
{
    const double delta = delta_of(o);
    double sum = 0;
    for (int64_t k = 0; k < row->n; k++) {
        const double e = fabs(oct_output_error(row, k));
        sum += e <= delta ? e * e / 2 : delta * (e - delta / 2);
    }
    return sum / (double)row->n;
}

static void huber_grad(const oct_output_row *row, const oct_loss_options *o, oct_loss_scale scale,
                       float *grad)
{
    const double delta = delta_of(o);
    for (int64_t k = 0; k < row->n; k++) {
        const double slope = fmax(-delta, fmin(delta, oct_output_error(row, k)));
        grad[k] = oct_loss_scaled(scale, slope / (double)row->n);
    }
}

const oct_loss_kind oct_loss_huber = {.name = "huber",
                                      .takes = OCT_LOSS_OF_LABELS | OCT_LOSS_OF_VALUES,
                                      .keys = " delta ",
                                      .value = huber_value,
                                      .grad = huber_grad};
