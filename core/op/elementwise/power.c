/* x to a power: below 0 a number only where the power is whole. */
#include "core/op/elementwise.h"

#include <math.h>

static double power_value(double x, const oct_elementwise_args *a)
{
    return pow(x, a->alpha);
}

static double power_slope(double x, const oct_elementwise_args *a)
{
    return a->alpha * pow(x, a->alpha - 1);
}

const oct_elementwise oct_elementwise_power = {.name = "power",
                                               .num_args = 1,
                                               .default_args = {.alpha = 3},
                                               .value = power_value,
                                               .slope = power_slope};
