/* alpha * x + beta, cut to 0 and 1: ONNX's HardSigmoid; with 1/6 and 1/2 that of PyTorch. The slope is 0 at both ends. */
#include "core/op/elementwise.h"

static double hard_sigmoid_value(double x, const oct_elementwise_args *a)
{
    const double line = a->alpha * x + a->beta;
    return line > 1 ? 1 : line < 0 ? 0 : line;
}

static double hard_sigmoid_slope(double x, const oct_elementwise_args *a)
{
    const double line = a->alpha * x + a->beta;
    return line > 0 && line < 1 ? a->alpha : 0;
}

const oct_elementwise oct_elementwise_hard_sigmoid = {
    .name = "hard_sigmoid",
    .num_args = 2,
    .default_args = {.alpha = 1.0 / 6, .beta = 0.5},
    .non_negative = true,
    .value = hard_sigmoid_value,
    .slope = hard_sigmoid_slope};
