/* x * min(max(x + 3, 0), 6) / 6. Slopes at -3 and 3 are PyTorch's: those above. */
#include "core/op/elementwise.h"

static double hard_swish_value(double x, const oct_elementwise_args *a)
{
    (void)a;
    return x < -3 ? 0 : x > 3 ? x : x * (x + 3) / 6;
}

static double hard_swish_slope(double x, const oct_elementwise_args *a)
{
    (void)a;
    return x < -3 ? 0 : x >= 3 ? 1 : x / 3 + 0.5;
}

const oct_elementwise oct_elementwise_hard_swish = {
    .name = "hard_swish", .value = hard_swish_value, .slope = hard_swish_slope};
