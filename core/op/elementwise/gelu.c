/* x * P(normal <= x): GELU by the error function. erfc keeps what 1 + erf(x) would lose below 0. */
#include "core/op/elementwise.h"

#include <math.h>

static double gelu_value(double x, const oct_elementwise_args *a)
{
    (void)a;
    return 0.5 * x * erfc(-x * M_SQRT1_2);
}

static double gelu_slope(double x, const oct_elementwise_args *a)
{
    (void)a;
    return 0.5 * erfc(-x * M_SQRT1_2) + x * exp(-0.5 * x * x) * (0.5 * M_2_SQRTPI * M_SQRT1_2);
}

const oct_elementwise oct_elementwise_gelu = {
    .name = "gelu", .value = gelu_value, .slope = gelu_slope};
