/* x / (1 + |x|) */
#include "core/op/elementwise.h"

#include <math.h>

static double softsign_value(double x, const oct_elementwise_args *a)
{
    (void)a;
    return x / (1 + fabs(x));
}

static double softsign_slope(double x, const oct_elementwise_args *a)
{
    (void)a;
    return 1 / ((1 + fabs(x)) * (1 + fabs(x)));
}

const oct_elementwise oct_elementwise_softsign = {
    .name = "softsign", .value = softsign_value, .slope = softsign_slope};
