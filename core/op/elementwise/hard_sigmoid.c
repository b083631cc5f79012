/* alpha * x + beta, cut to 0 and 1: ONNX's HardSigmoid; with 1/6 and 1/2 that of PyTorch. The slope is 0 at both ends. */
#include "core/op/elementwise.h"

static double hard_sigmoid_value(double x, const double *args)
{
    const double line = args[0] * x + args[1];
    return line > 1 ? 1 : line < 0 ? 0 : line;
}

static double hard_sigmoid_slope(double x, const double *args)
{
    const double line = args[0] * x + args[1];
    return line > 0 && line < 1 ? args[0] : 0;
}

const oct_elementwise oct_elementwise_hard_sigmoid = {.name = "hard_sigmoid",
                                                      .num_args = 2,
                                                      .default_args = {1.0 / 6, 0.5},
                                                      .non_negative = true,
                                                      .value = hard_sigmoid_value,
                                                      .slope = hard_sigmoid_slope};
