/* The quantization methods of the plug-in of tests/example/plugin, for tests without a plug-in. */
#pragma once

#include "quant/rounding/qparams.h"
#include "tests/example/plugin/lsq.c"
#include "tests/example/plugin/lsq_asymmetric.c"
#include "tests/example/plugin/common_values.c"

/* Weights alone, by a rule: two thirds of the largest one are as far as codes reach. */
static float clipping_weight_scale(const float *weight, int64_t n)
{
    return oct_weight_scale(weight, n) * 0.66f;
}

const oct_fake_quant_kind clipping_fake_quant = {
    .name = "clipping",
    .weight_scale = clipping_weight_scale,
};

/* d (s * code) / ds at v = x / s by a difference, where rounding is straight-through: the distance from v to its
 * code, and which end a value is cut at, stay as they are while s moves. */
static inline double lsq_step(double v, double lo, double hi, double s)
{
    const double moved[2] = {s * (1 - 1e-4), s * (1 + 1e-4)};
    double value[2];
    for (int i = 0; i < 2; i++) {
        if (v <= lo || v >= hi)
            value[i] = moved[i] * (v <= lo ? lo : hi);
        else
            value[i] = moved[i] * (v * s / moved[i] + (nearbyint(v) - v));
    }
    return (value[1] - value[0]) / (moved[1] - moved[0]);
}
