/* The error function. */
#include "core/op/elementwise.h"

#include <math.h>

static double erf_value(double x, const oct_elementwise_args *a)
{
    (void)a;
    return erf(x);
}

static double erf_slope(double x, const oct_elementwise_args *a)
{
    (void)a;
    return M_2_SQRTPI * exp(-x * x);
}

const oct_elementwise oct_elementwise_erf = {.name = "erf", .value = erf_value, .slope = erf_slope};
