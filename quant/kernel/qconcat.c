/* Rows side by side, requantized where scales differ. */
#include "core/base/cpu.h"
#include "core/base/int_math.h"
#include "quant/rounding/bits.h"
#include "quant/kernel/qcodes.h"

#include <math.h>
#include <string.h>

/* Requantizes codes from one scale to another. */
typedef struct ratio {
    oct_requantizer by;
    oct_fixed fixed;
    float factor;
    int up, down;
    int32_t lo, hi;
} ratio;

static ratio ratio_of(oct_qparams x, oct_qparams y, oct_requantizer r)
{
    const double factor = (double)x.scale / (double)y.scale;
    int exponent;
    (void)frexp(factor, &exponent);
    const int power = exponent - 1;
    return (ratio){.by = r,
                   .fixed = oct_fixed_of(r, factor),
                   .factor = (float)fmin(fmax(factor, 0x1p-60), 0x1p60),
                   .up = (int)oct_max_i64(oct_min_i64(power, 24), 0),
                   .down = (int)oct_max_i64(oct_min_i64(-power, 60), 0),
                   .lo = y.qmin - y.zero_point,
                   .hi = y.qmax - y.zero_point};
}

OCT_CLONES
static void scale(int64_t n, const ratio *q, int32_t *restrict logical, uint8_t *restrict flags)
{
    const float lo = (float)q->lo, hi = (float)q->hi, factor = q->factor;
    for (int64_t i = 0; i < n; i++) {
        const float r = rintf((float)logical[i] * factor);
        float clamped = r > lo ? r : lo;
        clamped = clamped < hi ? clamped : hi;
        logical[i] = (int32_t)clamped;
        flags[i] = (uint8_t)(r == clamped);
    }
}

/* Scales by 2^up and 2^-down, one of them 0. Nothing overflows: |logical| < 2^16 and up <= 24; the
 * rounding term is at most 2^59. 2^24 takes every code but 0 beyond all codes, as a larger factor does. */
OCT_CLONES
static void scale_shifted(int64_t n, const ratio *q, int32_t *restrict logical,
                          uint8_t *restrict flags)
{
    const int64_t lo = q->lo, hi = q->hi, factor = INT64_C(1) << q->up;
    for (int64_t i = 0; i < n; i++) {
        const int64_t r =
            oct_shift_right(logical[i] * factor, q->down, q->by == OCT_REQUANT_SHIFT_EVEN);
        int64_t clamped = r < lo ? lo : r;
        clamped = clamped > hi ? hi : clamped;
        logical[i] = (int32_t)clamped;
        flags[i] = (uint8_t)(r == clamped);
    }
}

OCT_CLONES
static void scale_fixed(int64_t n, const ratio *q, int32_t *restrict logical,
                        uint8_t *restrict flags)
{
    const int64_t lo = q->lo, hi = q->hi;
    const oct_fixed fixed = q->fixed;
    const oct_requantizer by = q->by;
    const bool wide = q->hi - q->lo > UINT8_MAX;
    for (int64_t i = 0; i < n; i++) {
        const int64_t r = oct_fixed_times(by, logical[i], fixed, wide);
        int64_t clamped = r < lo ? lo : r;
        clamped = clamped > hi ? hi : clamped;
        logical[i] = (int32_t)clamped;
        flags[i] = (uint8_t)(r == clamped);
    }
}

/* Where an input's columns lie in the output's rows. */
typedef struct columns {
    int64_t first, count, stride;
} columns;

static void copy(int64_t rows, const columns *to, oct_qcodes x, void *codes)
{
    const size_t bytes = oct_dtype_bytes(oct_codes_dtype(x.q));
    for (int64_t i = 0; i < rows; i++)
        memcpy(oct_qcodes_place(codes, x.q, i * to->stride + to->first),
               oct_qcodes_from(x, i * to->count).data, (size_t)to->count * bytes);
}

/* Stores codes of a block of the input, wherever its rows end. */
static void store_columns(const columns *to, int64_t at, int64_t n, const int32_t *logical,
                          oct_qparams y, void *codes)
{
    for (int64_t i = 0; i < n;) {
        const int64_t row = (at + i) / to->count, column = (at + i) % to->count;
        const int64_t count = oct_min_i64(to->count - column, n - i);
        oct_qcodes_store(logical + i, count, y, codes, row * to->stride + to->first + column);
        i += count;
    }
}

static void requantize(int64_t rows, const columns *to, const oct_qconcat_input *input,
                       const ratio *q, oct_qparams y, void *codes)
{
    int32_t logical[OCT_FLAG_BLOCK];
    uint8_t flags[OCT_FLAG_BLOCK];
    for (int64_t at = 0, n = rows * to->count; at < n; at += OCT_FLAG_BLOCK) {
        const int64_t count = oct_min_i64(n - at, OCT_FLAG_BLOCK);
        oct_qcodes_load(input->x, at, count, logical);
        if (oct_requantizer_shifts(q->by))
            scale_shifted(count, q, logical, flags);
        else if (oct_requantizer_is_fixed(q->by))
            scale_fixed(count, q, logical, flags);
        else
            scale(count, q, logical, flags);
        store_columns(to, at, count, logical, y, codes);
        if (input->mask) oct_bits_pack(flags, count, input->mask + at / 8);
    }
}

void oct_qconcat_forward(int64_t rows, int n, const oct_qconcat_input *input, oct_requantizer r,
                         oct_qparams y, void *codes)
{
    columns to = {0};
    for (int i = 0; i < n; i++)
        to.stride += input[i].c;
    for (int i = 0; i < n; i++) {
        to.count = input[i].c;
        const ratio q = ratio_of(input[i].x.q, y, r);
        if (oct_qparams_equal(input[i].x.q, y))
            copy(rows, &to, input[i].x, codes);
        else
            requantize(rows, &to, &input[i], &q, y, codes);
        to.first += to.count;
    }
}
