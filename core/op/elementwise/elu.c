/* x above 0, alpha * (exp(x) - 1) elsewhere. */
#include "core/op/elementwise.h"

#include <math.h>

static double elu_value(double x, const double *args)
{
    return x > 0 ? x : args[0] * expm1(x);
}

static double elu_slope(double x, const double *args)
{
    return x > 0 ? 1 : args[0] * exp(x);
}

const oct_elementwise oct_elementwise_elu = {
    .name = "elu", .num_args = 1, .default_args = {1}, .value = elu_value, .slope = elu_slope};
