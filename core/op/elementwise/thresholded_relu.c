/* x above alpha, 0 elsewhere. */
#include "core/op/elementwise.h"

static double thresholded_relu_value(double x, const double *args)
{
    return x > args[0] ? x : 0;
}

static double thresholded_relu_slope(double x, const double *args)
{
    return x > args[0] ? 1 : 0;
}

const oct_elementwise oct_elementwise_thresholded_relu = {.name = "thresholded_relu",
                                                          .num_args = 1,
                                                          .default_args = {1},
                                                          .value = thresholded_relu_value,
                                                          .slope = thresholded_relu_slope};
