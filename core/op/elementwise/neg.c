/* -x */
#include "core/op/elementwise.h"

static double neg_value(double x, const oct_elementwise_args *a)
{
    (void)a;
    return -x;
}

static double neg_slope(double x, const oct_elementwise_args *a)
{
    (void)a;
    (void)x;
    return -1;
}

const oct_elementwise oct_elementwise_neg = {.name = "neg", .value = neg_value, .slope = neg_slope};
