/* The one routine that turns ranges into scales and zero points, used by training, convert, export
 * and tests; and the one definition of quantize. */
#pragma once

#include "core/tensor/tensor.h"

#include <math.h>
#include <string.h>

typedef enum oct_scheme { OCT_AFFINE, OCT_SYMMETRIC } oct_scheme;

/* Range extended to zero; symmetric: scale = absmax / ((qmax-qmin)/2), zero_point the middle
 * ((qmin+qmax+1)/2 for unsigned codes, 0 for signed); affine: scale = (max-min)/(qmax-qmin),
 * zero_point = qmin - round_half_even(min/scale) cut to the range. scale >= eps (2^-23).
 * Formulas: torch.ao.quantization UniformQuantizationObserverBase._calculate_qparams. min > max
 * (never observed) gives scale 1, zero_point as for an empty range. */
oct_qparams oct_qparams_of_range(float min, float max, oct_scheme scheme, int32_t qmin,
                                 int32_t qmax);

/* No scale is smaller: FLT_EPSILON, as in PyTorch's observers. NaN stays NaN. */
#define OCT_MIN_SCALE 0x1p-23f
static inline float oct_scale_at_least(float scale)
{
    return scale < OCT_MIN_SCALE ? OCT_MIN_SCALE : scale;
}

/* The least power of two that is not below x; x is positive (infinity and NaN stay). Targets that
 * requantize by shifting take every scale through it, of activations and of weights. */
float oct_pow2_ceil(float x);

/* Codes of weights are whole numbers from -OCT_WEIGHT_CODES to OCT_WEIGHT_CODES. */
enum { OCT_WEIGHT_CODES = 127 };

/* The scale of one weight channel: absmax / OCT_WEIGHT_CODES, at least eps. */
float oct_weight_scale(const float *weight, int64_t n);

/* Computes the weight codes of one channel: round_half_even(w * (1/scale)), cut to the codes. */
void oct_weight_codes(const float *weight, int64_t n, float scale, int8_t *codes);

/* Gives a whole number that keeps the order of floats, -0 just below +0 and NaN at one of the ends, so that minimum and
 * maximum vectorise; and back. */
static inline int32_t oct_order_key(float x)
{
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits ^ ((bits >> 31) & INT32_MAX);
}

static inline float oct_float_of_order(int32_t key)
{
    const int32_t bits = key ^ ((key >> 31) & INT32_MAX);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Merges a range into another; a NaN, once taken, stays. */
static inline void oct_range_merge(float *range, float min, float max)
{
    if (min < range[0] || isnan(min)) range[0] = min;
    if (max > range[1] || isnan(max)) range[1] = max;
}

/* Computes the codes of values: q = z + round_half_even(x * (1/scale)), clamped to [qmin, qmax]. mask (1 bit an
 * element, bit i%8 of byte i/8; NULL to leave out): whether q before clamping was in the range,
 * both ends included. The range of x is merged into range (NULL to leave out). */
void oct_quantize_codes(const float *x, int64_t n, oct_qparams q, uint8_t *codes, uint8_t *mask,
                        float *range);
/* The same with q = z + round_half_even(x / scale): of targets that divide (oct_target.quotient). */
void oct_quantize_quotient(const float *x, int64_t n, oct_qparams q, uint8_t *codes, uint8_t *mask,
                           float *range);
void oct_dequantize(const uint8_t *codes, int64_t n, oct_qparams q, float *y);
/* These make and read codes of 16 bits. */
void oct_quantize16(const float *x, int64_t n, oct_qparams q, uint16_t *codes, uint8_t *mask,
                    float *range);
void oct_dequantize16(const uint16_t *codes, int64_t n, oct_qparams q, float *y);

/* Quantizes to floats, for what is simulated in float. zero_point and range are
 * logical (may be signed). mask: one byte an element, NULL to leave out. */
void oct_fake_quantize(const float *x, int64_t n, oct_qparams q, float *y, uint8_t *mask);
