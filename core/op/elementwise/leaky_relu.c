/* x above 0, negative_slope * x elsewhere. */
#include "core/op/elementwise.h"

static double value(double x, const double *args)
{
    return x > 0 ? x : args[0] * x;
}

static double slope(double x, const double *args)
{
    return x > 0 ? 1 : args[0];
}

const oct_elementwise oct_elementwise_leaky_relu = {
    .name = "leaky_relu", .num_args = 1, .default_args = {0.01}, .value = value, .slope = slope};
