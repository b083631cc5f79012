/* x / (1 + |x|) */
#include "core/op/elementwise.h"

#include <math.h>

static double value(double x, const double *args)
{
    (void)args;
    return x / (1 + fabs(x));
}

static double slope(double x, const double *args)
{
    (void)args;
    return 1 / ((1 + fabs(x)) * (1 + fabs(x)));
}

const oct_elementwise oct_elementwise_softsign = {
    .name = "softsign", .value = value, .slope = slope};
