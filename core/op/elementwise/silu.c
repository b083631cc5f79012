/* x * sigmoid(x) */
#include "core/op/elementwise.h"

#include <math.h>

static double silu_value(double x, const oct_elementwise_args *a)
{
    (void)a;
    return x / (1 + exp(-x));
}

static double silu_slope(double x, const oct_elementwise_args *a)
{
    (void)a;
    double sigmoid = 1 / (1 + exp(-x));
    return sigmoid * (1 + x * (1 - sigmoid));
}

const oct_elementwise oct_elementwise_silu = {
    .name = "silu", .value = silu_value, .slope = silu_slope};
