/* 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))): the approximation of GELU. */
#include "core/op/elementwise.h"

#include <math.h>

static const double root = M_2_SQRTPI * M_SQRT1_2; /* sqrt(2 / pi) */

static double inner(double x)
{
    return root * (x + 0.044715 * x * x * x);
}

static double gelu_tanh_value(double x, const oct_elementwise_args *a)
{
    (void)a;
    return 0.5 * x * (1 + tanh(inner(x)));
}

static double gelu_tanh_slope(double x, const oct_elementwise_args *a)
{
    (void)a;
    const double t = tanh(inner(x)), rise = root * (1 + 3 * 0.044715 * x * x);
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * rise;
}

const oct_elementwise oct_elementwise_gelu_tanh = {
    .name = "gelu_tanh", .value = gelu_tanh_value, .slope = gelu_tanh_slope};
