/* 1 / x; infinite at 0. */
#include "core/op/elementwise.h"

static double reciprocal_value(double x, const oct_elementwise_args *a)
{
    (void)a;
    return 1 / x;
}

static double reciprocal_slope(double x, const oct_elementwise_args *a)
{
    (void)a;
    return -1 / (x * x);
}

const oct_elementwise oct_elementwise_reciprocal = {
    .name = "reciprocal", .value = reciprocal_value, .slope = reciprocal_slope};
