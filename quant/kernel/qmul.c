/* Products of two tensors of codes. */
#include "core/base/cpu.h"
#include "core/base/int_math.h"
#include "quant/rounding/bits.h"
#include "quant/kernel/qcodes.h"

#include <math.h>

/* Logical codes of a block, their flags and the ends of the products. */
typedef struct block {
    int32_t a[OCT_FLAG_BLOCK], b[OCT_FLAG_BLOCK]; /* a becomes the result */
    uint8_t flags[OCT_FLAG_BLOCK];
    int64_t least, most;
    int32_t lo, hi, zero_point;
} block;

float oct_qmul_factor(oct_qparams a, oct_qparams b, oct_qparams y)
{
    const double factor = (double)a.scale * (double)b.scale / (double)y.scale;
    return (float)fmin(fmax(factor, 0x1p-60), 0x1p60);
}

float oct_qmul_factor_float(oct_qparams a, oct_qparams b, oct_qparams y)
{
    const float product = a.scale * b.scale;
    return fminf(fmaxf(product / y.scale, 0x1p-60f), 0x1p60f);
}

bool oct_qmul_overflows(oct_qparams a, oct_qparams b, float factor)
{
    const int64_t most_a = oct_max_i64(a.qmax - a.zero_point, a.zero_point - a.qmin),
                  most_b = oct_max_i64(b.qmax - b.zero_point, b.zero_point - b.qmin);
    return (double)(most_a * most_b) * (double)factor >= 0x1p31;
}

bool oct_qmul_fits(float factor, oct_requantizer r)
{
    int exponent;
    return factor >= 0x1p-60f && factor <= 0x1p60f &&
           (!oct_requantizer_shifts(r) || frexpf(factor, &exponent) == 0.5f);
}

/* Products of bytes have 17 bits, so their floats are exact. */
OCT_CLONES
static void multiply_bytes(int64_t n, float factor, block *restrict k)
{
    const float lo = (float)k->lo, hi = (float)k->hi;
    int32_t least = INT32_MAX, most = INT32_MIN;
    for (int64_t i = 0; i < n; i++) {
        const int32_t p = k->a[i] * k->b[i];
        const float r = rintf((float)p * factor);
        float clamped = r > lo ? r : lo;
        clamped = clamped < hi ? clamped : hi;
        k->a[i] = (int32_t)clamped;
        k->flags[i] = (uint8_t)(r == clamped);
        least = p < least ? p : least;
        most = p > most ? p : most;
    }
    k->least = oct_min_i64(k->least, least);
    k->most = oct_max_i64(k->most, most);
}

/* Rounds codes, zero_point included, and so another way where a product lies in the middle of two codes. */
OCT_CLONES
static void multiply_offset_first(int64_t n, float factor, block *restrict k)
{
    const float zero_point = (float)k->zero_point;
    const float lo = (float)(k->lo + k->zero_point), hi = (float)(k->hi + k->zero_point);
    int32_t least = INT32_MAX, most = INT32_MIN;
    for (int64_t i = 0; i < n; i++) {
        const int32_t p = k->a[i] * k->b[i];
        const float r = rintf((float)p * factor + zero_point);
        float clamped = r > lo ? r : lo;
        clamped = clamped < hi ? clamped : hi;
        k->a[i] = (int32_t)clamped - k->zero_point;
        k->flags[i] = (uint8_t)(r == clamped);
        least = p < least ? p : least;
        most = p > most ? p : most;
    }
    k->least = oct_min_i64(k->least, least);
    k->most = oct_max_i64(k->most, most);
}

/* Products of 16-bit codes have 33 bits, which a double holds. */
OCT_CLONES
static void multiply_wide(int64_t n, double factor, block *restrict k)
{
    const double lo = k->lo, hi = k->hi;
    int64_t least = k->least, most = k->most;
    for (int64_t i = 0; i < n; i++) {
        const int64_t p = (int64_t)k->a[i] * k->b[i];
        const double r = rint((double)p * factor);
        double clamped = r > lo ? r : lo;
        clamped = clamped < hi ? clamped : hi;
        k->a[i] = (int32_t)clamped;
        k->flags[i] = (uint8_t)(r == clamped);
        least = p < least ? p : least;
        most = p > most ? p : most;
    }
    k->least = least;
    k->most = most;
}

/* Multiplies by 2^up and 2^-down, one of them 0. Nothing overflows: |p| < 2^32 and up <= 24, so 2^56; the
 * rounding term is at most 2^59. */
OCT_CLONES
static void multiply_shifted(int64_t n, int up, int down, bool even, block *restrict k)
{
    const int64_t lo = k->lo, hi = k->hi;
    int64_t least = k->least, most = k->most;
    for (int64_t i = 0; i < n; i++) {
        const int64_t p = (int64_t)k->a[i] * k->b[i];
        const int64_t r = oct_shift_right(p * (INT64_C(1) << up), down, even);
        int64_t clamped = r < lo ? lo : r;
        clamped = clamped > hi ? hi : clamped;
        k->a[i] = (int32_t)clamped;
        k->flags[i] = (uint8_t)(r == clamped);
        least = p < least ? p : least;
        most = p > most ? p : most;
    }
    k->least = least;
    k->most = most;
}

OCT_CLONES
static void multiply_fixed(int64_t n, oct_requantizer by, oct_fixed factor, bool wide,
                           block *restrict k)
{
    const int64_t lo = k->lo, hi = k->hi;
    int64_t least = k->least, most = k->most;
    for (int64_t i = 0; i < n; i++) {
        const int64_t p = (int64_t)k->a[i] * k->b[i];
        const int64_t r = oct_fixed_times(by, p, factor, wide);
        int64_t clamped = r < lo ? lo : r;
        clamped = clamped > hi ? hi : clamped;
        k->a[i] = (int32_t)clamped;
        k->flags[i] = (uint8_t)(r == clamped);
        least = p < least ? p : least;
        most = p > most ? p : most;
    }
    k->least = least;
    k->most = most;
}

/* A factor beyond 2^24 takes every product but 0 beyond all codes, as 2^24 does. */
static void multiply_by_shift(int64_t n, float factor, bool even, block *k)
{
    int exponent;
    (void)frexpf(factor, &exponent);
    const int power = exponent - 1;
    multiply_shifted(n, (int)oct_max_i64(oct_min_i64(power, 24), 0), (int)oct_max_i64(-power, 0),
                     even, k);
}

static void merge_range(const block *k, double scale, float *range)
{
    const float low = (float)((double)k->least * scale), high = (float)((double)k->most * scale);
    range[0] = low < range[0] ? low : range[0];
    range[1] = high > range[1] ? high : range[1];
}

void oct_qmul_forward(int64_t n, oct_qcodes a, oct_qcodes b, float factor,
                      oct_qmul_rounding rounding, const oct_qoutput *y)
{
    const bool wide = oct_codes_dtype(a.q) == OCT_U16 || oct_codes_dtype(b.q) == OCT_U16 ||
                      oct_codes_dtype(y->q) == OCT_U16;
    const oct_requantizer by = rounding == OCT_QMUL_Q15 ? OCT_REQUANT_Q15 : OCT_REQUANT_DOUBLE;
    const oct_fixed fixed = oct_fixed_of_layer(by, a.q.scale, b.q.scale, y->q.scale);
    block k = {.least = INT64_MAX,
               .most = INT64_MIN,
               .lo = y->q.qmin - y->q.zero_point,
               .hi = y->q.qmax - y->q.zero_point,
               .zero_point = y->q.zero_point};
    for (int64_t i = 0; i < n; i += OCT_FLAG_BLOCK) {
        const int64_t count = oct_min_i64(n - i, OCT_FLAG_BLOCK);
        oct_qcodes_load(a, i, count, k.a);
        oct_qcodes_load(b, i, count, k.b);
        if (rounding == OCT_QMUL_SHIFT || rounding == OCT_QMUL_SHIFT_EVEN)
            multiply_by_shift(count, factor, rounding == OCT_QMUL_SHIFT_EVEN, &k);
        else if (rounding == OCT_QMUL_DOUBLE || rounding == OCT_QMUL_Q15)
            multiply_fixed(count, by, fixed, oct_codes_dtype(y->q) == OCT_U16, &k);
        else if (rounding == OCT_QMUL_OFFSET_FIRST)
            multiply_offset_first(count, factor, &k);
        else if (wide)
            multiply_wide(count, (double)factor, &k);
        else
            multiply_bytes(count, factor, &k);
        oct_qcodes_store(k.a, count, y->q, y->data, i);
        if (y->mask) oct_bits_pack(k.flags, count, y->mask + i / 8);
    }
    if (y->range && n > 0) merge_range(&k, (double)a.q.scale * (double)b.q.scale, y->range);
}
