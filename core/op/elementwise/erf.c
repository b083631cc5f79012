/* The error function. */
#include "core/op/elementwise.h"

#include <math.h>

static double value(double x, const double *args)
{
    (void)args;
    return erf(x);
}

static double slope(double x, const double *args)
{
    (void)args;
    return M_2_SQRTPI * exp(-x * x);
}

const oct_elementwise oct_elementwise_erf = {.name = "erf", .value = value, .slope = slope};
