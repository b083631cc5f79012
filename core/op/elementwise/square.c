/* x * x */
#include "core/op/elementwise.h"

static double square_value(double x, const oct_elementwise_args *a)
{
    (void)a;
    return x * x;
}

static double square_slope(double x, const oct_elementwise_args *a)
{
    (void)a;
    return 2 * x;
}

const oct_elementwise oct_elementwise_square = {
    .name = "square", .non_negative = true, .value = square_value, .slope = square_slope};
