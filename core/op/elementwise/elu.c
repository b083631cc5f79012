/* x above 0, alpha * (exp(x) - 1) elsewhere. */
#include "core/op/elementwise.h"

#include <math.h>

static double elu_value(double x, const oct_elementwise_args *a)
{
    return x > 0 ? x : a->alpha * expm1(x);
}

static double elu_slope(double x, const oct_elementwise_args *a)
{
    return x > 0 ? 1 : a->alpha * exp(x);
}

const oct_elementwise oct_elementwise_elu = {.name = "elu",
                                             .num_args = 1,
                                             .default_args = {.alpha = 1},
                                             .value = elu_value,
                                             .slope = elu_slope};
