/* x above 0, negative_slope * x elsewhere. */
#include "core/op/elementwise.h"

static double leaky_relu_value(double x, const oct_elementwise_args *a)
{
    return x > 0 ? x : a->alpha * x;
}

static double leaky_relu_slope(double x, const oct_elementwise_args *a)
{
    return x > 0 ? 1 : a->alpha;
}

const oct_elementwise oct_elementwise_leaky_relu = {.name = "leaky_relu",
                                                    .num_args = 1,
                                                    .default_args = {.alpha = 0.01},
                                                    .value = leaky_relu_value,
                                                    .slope = leaky_relu_slope};
