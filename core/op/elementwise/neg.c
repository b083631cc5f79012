/* -x */
#include "core/op/elementwise.h"

static double neg_value(double x, const double *args)
{
    (void)args;
    return -x;
}

static double neg_slope(double x, const double *args)
{
    (void)args;
    (void)x;
    return -1;
}

const oct_elementwise oct_elementwise_neg = {.name = "neg", .value = neg_value, .slope = neg_slope};
