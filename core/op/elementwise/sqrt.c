/* The square root: not a number below 0; its slope at 0 is infinite. */
#include "core/op/elementwise.h"

#include <math.h>

static double sqrt_value(double x, const oct_elementwise_args *a)
{
    (void)a;
    return sqrt(x);
}

static double sqrt_slope(double x, const oct_elementwise_args *a)
{
    (void)a;
    return 0.5 / sqrt(x);
}

const oct_elementwise oct_elementwise_sqrt = {
    .name = "sqrt", .non_negative = true, .value = sqrt_value, .slope = sqrt_slope};
