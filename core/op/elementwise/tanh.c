/* tanh(x) */
#include "core/op/elementwise.h"

#include <math.h>

static double tanh_value(double x, const oct_elementwise_args *a)
{
    (void)a;
    return tanh(x);
}

static double tanh_slope(double x, const oct_elementwise_args *a)
{
    (void)a;
    const double y = tanh(x);
    return 1 - y * y;
}

const oct_elementwise oct_elementwise_tanh = {
    .name = "tanh", .value = tanh_value, .slope = tanh_slope};
