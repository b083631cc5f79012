/* Ranges to scales, and values to codes. The arithmetic is float32 in the order of PyTorch, so that the
 * same statistics give the same scales: tests/golden holds PyTorch's own answers. */
#include "quant/rounding/qparams.h"

#include "core/base/cpu.h"
#include "quant/rounding/bits.h"

#include <math.h>

/* Cuts x to a range; NaN gives `low`. */
static float clamp_float(float x, float low, float high)
{
    const float above = x > low ? x : low;
    return above < high ? above : high;
}

oct_qparams oct_qparams_of_range(float min, float max, oct_scheme scheme, int32_t qmin,
                                 int32_t qmax)
{
    oct_qparams q = {.scale = 1.0f, .qmin = qmin, .qmax = qmax};
    const bool observed = !(min > max);
    if (!observed) min = max = 0.0f;
    if (min > 0.0f) min = 0.0f;
    if (max < 0.0f) max = 0.0f;
    const float codes = (float)(qmax - qmin);
    if (scheme == OCT_SYMMETRIC) {
        const float largest = -min > max ? -min : max;
        if (observed) q.scale = oct_scale_at_least(largest / (codes / 2.0f));
        q.zero_point = qmin < 0 ? 0 : (qmin + qmax + 1) / 2;
    } else {
        if (observed) q.scale = oct_scale_at_least((max - min) / codes);
        const float steps = rintf(min / q.scale);
        q.zero_point = (int32_t)clamp_float((float)qmin - steps, (float)qmin, (float)qmax);
    }
    return q;
}

float oct_pow2_ceil(float x)
{
    if (!isfinite(x)) return x;
    int exponent;
    const float fraction = frexpf(x, &exponent); /* in [0.5, 1) */
    return ldexpf(1.0f, fraction == 0.5f ? exponent - 1 : exponent);
}

/* Finds the largest magnitude as an integer: so magnitudes compare, and NaN is the largest of them and not
 * lost. */
OCT_CLONES
static uint32_t largest_magnitude(const float *x, int64_t n)
{
    uint32_t largest = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7fffffffu;
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

float oct_weight_scale(const float *weight, int64_t n)
{
    const uint32_t largest = largest_magnitude(weight, n);
    float absmax;
    memcpy(&absmax, &largest, sizeof absmax);
    return oct_scale_at_least(absmax / (float)OCT_WEIGHT_CODES);
}

OCT_CLONES
void oct_weight_codes(const float *weight, int64_t n, float scale, int8_t *codes)
{
    const float one_over = 1.0f / scale, most = OCT_WEIGHT_CODES;
    for (int64_t i = 0; i < n; i++) {
        float r = rintf(weight[i] * one_over);
        r = r > -most ? r : -most;
        r = r < most ? r : most;
        codes[i] = (int8_t)(int32_t)r;
    }
}

/* Defines quantize for one width of codes, by an operation on each x and `with`. */
#define OCT_QUANTIZE(code_t, block, quantize, operation, with)                                     \
    OCT_CLONES                                                                                     \
    static void block(const float *restrict x, int64_t n, oct_qparams q, code_t *restrict codes,   \
                      uint8_t *restrict flags, int32_t range[2])                                   \
    {                                                                                              \
        const float operand = with, zero_point = (float)q.zero_point;                              \
        const float qmin = (float)q.qmin, qmax = (float)q.qmax;                                    \
        int32_t least = range[0], most = range[1];                                                 \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const float code = zero_point + rintf(x[i] operation operand);                         \
            float clamped = code > qmin ? code : qmin;                                             \
            clamped = clamped < qmax ? clamped : qmax;                                             \
            codes[i] = (code_t)(int32_t)clamped;                                                   \
            flags[i] = (uint8_t)(code == clamped);                                                 \
            const int32_t key = oct_order_key(x[i]);                                               \
            least = key < least ? key : least;                                                     \
            most = key > most ? key : most;                                                        \
        }                                                                                          \
        range[0] = least;                                                                          \
        range[1] = most;                                                                           \
    }                                                                                              \
                                                                                                   \
    void quantize(const float *x, int64_t n, oct_qparams q, code_t *codes, uint8_t *mask,          \
                  float *range)                                                                    \
    {                                                                                              \
        uint8_t flags[OCT_FLAG_BLOCK];                                                             \
        int32_t keys[2] = {oct_order_key(INFINITY), oct_order_key(-INFINITY)};                     \
        for (int64_t i = 0; i < n; i += OCT_FLAG_BLOCK) {                                          \
            const int64_t count = n - i < OCT_FLAG_BLOCK ? n - i : OCT_FLAG_BLOCK;                 \
            block(x + i, count, q, codes + i, flags, keys);                                        \
            if (mask) oct_bits_pack(flags, count, mask + i / 8);                                   \
        }                                                                                          \
        if (range) merge_key_range(keys, range);                                                   \
    }

/* Defines dequantize for one width of codes. */
#define OCT_DEQUANTIZE(code_t, dequantize)                                                         \
    OCT_CLONES                                                                                     \
    void dequantize(const code_t *codes, int64_t n, oct_qparams q, float *y)                       \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++)                                                            \
            y[i] = (float)(codes[i] - q.zero_point) * q.scale;                                     \
    }

static void merge_key_range(const int32_t keys[2], float *range)
{
    float low = oct_float_of_order(keys[0]) + 0.0f, high = oct_float_of_order(keys[1]) + 0.0f;
    if (isnan(low) || isnan(high)) low = high = NAN;
    oct_range_merge(range, low, high);
}

OCT_QUANTIZE(uint8_t, quantize_block, oct_quantize_codes, *, 1.0f / q.scale)
OCT_QUANTIZE(uint16_t, quantize_block16, oct_quantize16, *, 1.0f / q.scale)
OCT_QUANTIZE(uint8_t, quotient_block, oct_quantize_quotient, /, q.scale)
OCT_DEQUANTIZE(uint8_t, oct_dequantize)
OCT_DEQUANTIZE(uint16_t, oct_dequantize16)

OCT_CLONES
void oct_fake_quantize(const float *x, int64_t n, oct_qparams q, float *y, uint8_t *mask)
{
    const float one_over = 1.0f / q.scale, zero_point = (float)q.zero_point;
    const float qmin = (float)q.qmin, qmax = (float)q.qmax;
    for (int64_t i = 0; i < n; i++) {
        const float code = zero_point + rintf(x[i] * one_over);
        float clamped = code > qmin ? code : qmin;
        clamped = clamped < qmax ? clamped : qmax;
        y[i] = (clamped - zero_point) * q.scale;
        if (mask) mask[i] = (uint8_t)(code == clamped);
    }
}
