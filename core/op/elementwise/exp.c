/* e^x; beyond the largest float it is infinite. */
#include "core/op/elementwise.h"

#include <math.h>

static double exp_value(double x, const oct_elementwise_args *a)
{
    (void)a;
    return exp(x);
}

static double exp_slope(double x, const oct_elementwise_args *a)
{
    (void)a;
    return exp(x);
}

const oct_elementwise oct_elementwise_exp = {
    .name = "exp", .non_negative = true, .value = exp_value, .slope = exp_slope};
