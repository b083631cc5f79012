/* The natural logarithm: -infinity at 0, not a number below it. */
#include "core/op/elementwise.h"

#include <math.h>

static double logarithm_value(double x, const oct_elementwise_args *a)
{
    (void)a;
    return log(x);
}

static double logarithm_slope(double x, const oct_elementwise_args *a)
{
    (void)a;
    return 1 / x;
}

const oct_elementwise oct_elementwise_logarithm = {
    .name = "logarithm", .value = logarithm_value, .slope = logarithm_slope};
