/* A loss: the logarithm of the hyperbolic cosine, quadratic for small errors and linear for large ones, of
 * outputs that should be 1 for the label and 0 for the rest. Rows of class 0 count half, as may be wanted of a
 * frequent class. */
#include "tasks.h"

#include <math.h>

static double error_at(const oct_output_row *row, int64_t k)
{
    return (double)row->y[k] - (k == row->label ? 1.0 : 0.0);
}

static double log_cosh(const oct_output_row *row, const oct_loss_options *options)
{
    double sum = 0;
    (void)options;
    for (int64_t k = 0; k < row->n; k++) {
        const double e = fabs(error_at(row, k));
        sum += e + log1p(exp(-2 * e)) - log(2);
    }
    return sum;
}

static void log_cosh_grad(const oct_output_row *row, const oct_loss_options *options,
                          oct_loss_scale scale, float *grad)
{
    (void)options;
    for (int64_t k = 0; k < row->n; k++)
        grad[k] = oct_loss_scaled(scale, tanh(error_at(row, k)));
}

static double class_weight(const oct_output_row *row, const oct_loss_options *options)
{
    (void)options;
    return row->label == 0 ? 0.5 : 1;
}

const oct_loss_kind log_cosh_loss = {.name = "log_cosh",
                                     .takes = OCT_LOSS_OF_LABELS,
                                     .value = log_cosh,
                                     .grad = log_cosh_grad,
                                     .weight = class_weight};
