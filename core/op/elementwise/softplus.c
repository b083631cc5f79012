/* log(1 + exp(x)), with no exponential that overflows. */
#include "core/op/elementwise.h"

#include <math.h>

static double softplus_value(double x, const oct_elementwise_args *a)
{
    (void)a;
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

static double softplus_slope(double x, const oct_elementwise_args *a)
{
    (void)a;
    return 1 / (1 + exp(-x));
}

const oct_elementwise oct_elementwise_softplus = {
    .name = "softplus", .non_negative = true, .value = softplus_value, .slope = softplus_slope};
