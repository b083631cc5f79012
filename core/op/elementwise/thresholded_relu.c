/* x above alpha, 0 elsewhere. */
#include "core/op/elementwise.h"

static double thresholded_relu_value(double x, const oct_elementwise_args *a)
{
    return x > a->alpha ? x : 0;
}

static double thresholded_relu_slope(double x, const oct_elementwise_args *a)
{
    return x > a->alpha ? 1 : 0;
}

const oct_elementwise oct_elementwise_thresholded_relu = {.name = "thresholded_relu",
                                                          .num_args = 1,
                                                          .default_args = {.alpha = 1},
                                                          .value = thresholded_relu_value,
                                                          .slope = thresholded_relu_slope};
