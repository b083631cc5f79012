/* What the requantizers of all instruction sets share: the limits as floats, one element, and the
 * canonical form of a range. */
#pragma once

#include "quant/kernel/kernel.h"

#include <math.h>

/* Limits of one call. Clamping happens in float, before the conversion, so a product beyond int32
 * saturates. Without relu the floor is -inf: a value that low is outside [lo, hi] anyway. */
typedef struct oct_requant_limits {
    float lo, hi, floor, six;
    int32_t zero_point;
} oct_requant_limits;

static inline oct_requant_limits oct_requant_limits_of(const oct_requant *q)
{
    return (oct_requant_limits){.lo = (float)q->lo,
                                .hi = (float)q->hi,
                                .floor = q->relu ? q->floor : -INFINITY,
                                .six = q->six,
                                .zero_point = q->zero_point};
}

/* Makes v a code; *pass as in oct_requant. */
static inline uint8_t oct_requant_one(float v, const oct_requant_limits *limits, bool *pass)
{
    float r = rintf(v);
    *pass = r >= limits->lo && r <= limits->hi && v > limits->floor && v < limits->six;
    float clamped = r > limits->lo ? r : limits->lo;
    clamped = clamped < limits->hi ? clamped : limits->hi;
    return (uint8_t)((int32_t)clamped + limits->zero_point);
}

/* Returns v of element i, in channel c. */
static inline float oct_requant_value(const oct_requant *q, int64_t i, int64_t c, int32_t acc)
{
    const float v = (float)(acc + q->bias[c]) * q->multiplier[c];
    if (!q->addend) return v;
    const float s = (float)(q->addend[i] - q->addend_zero_point);
    return v + s * q->addend_multiplier;
}

static inline float oct_requant_clip(float v, const oct_requant_limits *limits)
{
    float clipped = v > limits->floor ? v : limits->floor;
    return clipped < limits->six ? clipped : limits->six;
}

static inline void oct_requant_range_merge(float *range, float low, float high)
{
    range[0] = low < range[0] ? low : range[0];
    range[1] = high > range[1] ? high : range[1];
}

/* Ends a range: -0 becomes +0, and a multiplier that is not finite shows. */
static inline void oct_requant_range_end(const oct_requant *q, int64_t n, float *range)
{
    range[0] += 0.0f;
    range[1] += 0.0f;
    for (int64_t c = 0; c < n; c++)
        if (!isfinite(q->multiplier[c])) range[0] = range[1] = NAN;
    if (q->addend && !isfinite(q->addend_multiplier)) range[0] = range[1] = NAN;
}
