/* Losses of errors: each is the mean over a row's outputs of a function of output minus wanted value. A label stands for
 * 1 at its class and 0 elsewhere. */
#include "core/op/loss.h"

#include <math.h>

static double delta_of(const oct_loss_options *o)
{
    return o->delta > 0 ? o->delta : 1.0;
}

/* Defines a loss by its value and its derivative at an error e; both may read delta. */
#define ERROR_LOSS(id, value_at_e, slope_at_e, ...)                                                \
    static double id##_value(const oct_output_row *row, const oct_loss_options *o)                 \
    {                                                                                              \
        const double delta = delta_of(o);                                                          \
        double sum = 0;                                                                            \
        (void)delta;                                                                               \
        for (int64_t k = 0; k < row->n; k++) {                                                     \
            const double e = oct_output_error(row, k);                                             \
            sum += value_at_e;                                                                     \
        }                                                                                          \
        return sum / (double)row->n;                                                               \
    }                                                                                              \
    static void id##_grad(const oct_output_row *row, const oct_loss_options *o,                    \
                          oct_loss_scale scale, float *grad)                                       \
    {                                                                                              \
        const double delta = delta_of(o);                                                          \
        (void)delta;                                                                               \
        for (int64_t k = 0; k < row->n; k++) {                                                     \
            const double e = oct_output_error(row, k), slope = slope_at_e;                         \
            grad[k] = oct_loss_scaled(scale, slope / (double)row->n);                              \
        }                                                                                          \
    }                                                                                              \
    const oct_loss_kind oct_loss_##id = {.name = #id,                                              \
                                         .takes = OCT_LOSS_OF_LABELS | OCT_LOSS_OF_VALUES,         \
                                         .value = id##_value,                                      \
                                         .grad = id##_grad,                                        \
                                         __VA_ARGS__}

/* torch.nn.functional.mse_loss */
ERROR_LOSS(mse, (e * e), 2 * e, .uses = 0);
/* torch.nn.functional.l1_loss */
ERROR_LOSS(mae, fabs(e), (double)(e > 0) - (double)(e < 0), .uses = 0);
/* torch.nn.functional.huber_loss: half the squared error up to delta, and beyond it the line that goes on from there. */
ERROR_LOSS(huber, fabs(e) <= delta ? e * e / 2 : delta * (fabs(e) - delta / 2),
           fmax(-delta, fmin(delta, e)), .keys = " delta ");
