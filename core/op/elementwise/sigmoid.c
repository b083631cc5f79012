/* 1 / (1 + exp(-x)) */
#include "core/op/elementwise.h"

#include <math.h>

static double sigmoid_value(double x, const oct_elementwise_args *a)
{
    (void)a;
    return 1 / (1 + exp(-x));
}

static double sigmoid_slope(double x, const oct_elementwise_args *a)
{
    double y = sigmoid_value(x, a);
    return y * (1 - y);
}

const oct_elementwise oct_elementwise_sigmoid = {
    .name = "sigmoid", .non_negative = true, .value = sigmoid_value, .slope = sigmoid_slope};
