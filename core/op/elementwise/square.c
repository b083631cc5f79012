/* x * x */
#include "core/op/elementwise.h"

static double value(double x, const double *args)
{
    (void)args;
    return x * x;
}

static double slope(double x, const double *args)
{
    (void)args;
    return 2 * x;
}

const oct_elementwise oct_elementwise_square = {
    .name = "square", .non_negative = true, .value = value, .slope = slope};
