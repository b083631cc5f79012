/* 1 / x; infinite at 0. */
#include "core/op/elementwise.h"

static double value(double x, const double *args)
{
    (void)args;
    return 1 / x;
}

static double slope(double x, const double *args)
{
    (void)args;
    return -1 / (x * x);
}

const oct_elementwise oct_elementwise_reciprocal = {
    .name = "reciprocal", .value = value, .slope = slope};
