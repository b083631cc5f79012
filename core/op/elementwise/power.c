/* x to a power: below 0 a number only where the power is whole. */
#include "core/op/elementwise.h"

#include <math.h>

static double power_value(double x, const double *args)
{
    return pow(x, args[0]);
}

static double power_slope(double x, const double *args)
{
    return args[0] * pow(x, args[0] - 1);
}

const oct_elementwise oct_elementwise_power = {.name = "power",
                                               .num_args = 1,
                                               .default_args = {3},
                                               .value = power_value,
                                               .slope = power_slope};
