/* |x|; the slope at 0 is 0, as in PyTorch. */
#include "core/op/elementwise.h"

#include <math.h>

static double abs_value(double x, const oct_elementwise_args *a)
{
    (void)a;
    return fabs(x);
}

static double abs_slope(double x, const oct_elementwise_args *a)
{
    (void)a;
    return x > 0 ? 1 : x < 0 ? -1 : 0;
}

const oct_elementwise oct_elementwise_abs = {
    .name = "abs", .non_negative = true, .value = abs_value, .slope = abs_slope};
