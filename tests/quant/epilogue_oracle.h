/* What oct_epilogue must compute, one element at a time, and random cases of it. */
#pragma once

#include "quant/kernel/epilogue.h"
#include "tests/quant/every_kernel.h"
#include "tests/quant/quant_random.h"

#include <math.h>
#include <string.h>

/* One element: acc is its accumulator, i its place, n the channels. */
typedef struct expected_output {
    double v; /* before rounding, not clipped */
    double output;
    bool pass;
    double clipped;
} expected_output;

static inline int64_t addend_at(const oct_qcodes *s, int64_t i)
{
    const int64_t code = oct_codes_dtype(s->q) == OCT_U16 ? ((const uint16_t *)s->data)[i]
                                                          : ((const uint8_t *)s->data)[i];
    return code - s->q.zero_point;
}

/* Multiplies a sum by a real number as a multiplier of 31 bits and a shift, which round one after another: by
 * divisions, as gemmlowp has them. */
static inline double oracle_double(int64_t sum, double real)
{
    int exponent;
    int64_t m = llround(ldexp(frexp(real, &exponent), 31));
    if (llabs(m) == INT64_C(1) << 31) {
        m /= 2;
        exponent++;
    }
    if (exponent < -31) return 0;
    const double wide = ldexp((double)sum, exponent > 0 ? exponent : 0);
    const int64_t x = (int64_t)fmin(fmax(wide, -INT32_MAX), INT32_MAX), product = x * m;
    const int64_t nudge = product >= 0 ? INT64_C(1) << 30 : 1 - (INT64_C(1) << 30);
    const int64_t high = (product + nudge) / (INT64_C(1) << 31);
    return exponent < 0 ? round(ldexp((double)high, exponent)) : (double)high;
}

/* The same as a multiplier of 15 bits between two shifts, which round halves up: by floors of long doubles. */
static inline double oracle_q15(int64_t sum, double real, int after)
{
    int exponent;
    const double mantissa = frexp(fmin(fabs(real), 32767), &exponent);
    const int right = 15 - exponent, first = right - after;
    const int before = first < 0 ? 0 : first > 17 ? 17 : first;
    const long double m = fminl(floorl(ldexpl((long double)mantissa, 15) + 0.5L), 32767);
    const long double x = floorl(ldexpl((long double)(real < 0 ? -sum : sum), -before) + 0.5L);
    const long double narrow = fminl(fmaxl(x, -32768), 32767);
    return (double)floorl(ldexpl(narrow * m, before - right) + 0.5L);
}

static inline expected_output oracle_epilogue(const oct_epilogue *f, int64_t acc, int64_t i,
                                              int64_t n)
{
    const float multiplier = f->q.multiplier[i % n];
    const int64_t sum = acc + (oct_epilogue_is_float(f) ? f->q.bias[i % n] : f->bias[i % n]);
    expected_output r;
    if (oct_epilogue_is_float(f)) {
        const float exact = (float)(int32_t)sum, scaled = exact * multiplier;
        float v = scaled;
        if (f->addend.data) {
            const float other = (float)addend_at(&f->addend, i) * f->addend_multiplier;
            v = scaled + other;
        }
        r.v = (double)v;
    } else {
        r.v = (double)sum * (double)multiplier;
        if (f->addend.data) r.v += (double)addend_at(&f->addend, i) * (double)f->addend_multiplier;
    }
    double rounded = nearbyint(r.v);
    if (oct_requantizer_shifts(f->requantizer)) {
        int exponent;
        (void)frexpf(multiplier, &exponent);
        long double cut = (long double)sum;
        if (f->requantizer == OCT_REQUANT_SHIFT_20) cut = fminl(fmaxl(cut, -0x1p19L), 0x1p19L - 1);
        const long double exact = ldexpl(cut, exponent - 1);
        rounded = (double)(f->requantizer == OCT_REQUANT_SHIFT_EVEN ? nearbyintl(exact)
                                                                    : floorl(exact + 0.5L));
    }
    if (f->requantizer == OCT_REQUANT_Q15)
        rounded = oracle_q15(sum, (double)multiplier, f->out == OCT_U16 ? 14 : 22);
    if (f->requantizer == OCT_REQUANT_DOUBLE) rounded = oracle_double(sum, (double)multiplier);
    const double floor_ = f->q.relu ? (double)f->q.floor : -HUGE_VAL;
    r.clipped = fmin(fmax(r.v, floor_), (double)f->q.six);
    const bool active = r.v > floor_ && r.v < (double)f->q.six;
    if (f->out == OCT_F32) {
        r.pass = active;
        r.output = (double)(float)r.clipped;
    } else {
        r.pass = active && rounded >= f->q.lo && rounded <= f->q.hi;
        r.output = fmin(fmax(rounded, f->q.lo), f->q.hi) + f->q.zero_point;
    }
    return r;
}

static inline double output_at(const oct_epilogue *f, const void *y, int64_t i)
{
    return f->out == OCT_F32   ? (double)((const float *)y)[i]
           : f->out == OCT_U16 ? ((const uint16_t *)y)[i]
                               : ((const uint8_t *)y)[i];
}

/* Compares outputs, mask and range of `count` elements with the oracle's. */
static inline void check_epilogue(const char *what, const oct_epilogue *f, int64_t count, int64_t n,
                                  const void *acc, const void *y, const uint8_t *mask,
                                  const float *range)
{
    double low = INFINITY, high = -INFINITY;
    for (int64_t i = 0; i < count; i++) {
        const int64_t sum =
            f->acc == OCT_S64 ? ((const int64_t *)acc)[i] : ((const int32_t *)acc)[i];
        const expected_output r = oracle_epilogue(f, sum, i, n);
        cr_assert_eq(output_at(f, y, i), r.output, "%s, element %lld, v %a: %g, not %g", what,
                     (long long)i, r.v, output_at(f, y, i), r.output);
        cr_assert_eq(mask[i / 8] >> (i % 8) & 1, r.pass, "%s, element %lld, v %a: mask", what,
                     (long long)i, r.v);
        low = fmin(low, r.clipped);
        high = fmax(high, r.clipped);
    }
    if (f->out == OCT_F32 || count == 0) return;
    const float expected[2] = {(float)low + 0.0f, (float)high + 0.0f};
    cr_assert_arr_eq(range, expected, sizeof expected, "%s: range [%a, %a], not [%a, %a]", what,
                     (double)range[0], (double)range[1], (double)expected[0], (double)expected[1]);
}

static inline oct_qparams roll_qparams(dice *d, bool wide)
{
    const int32_t most = wide ? 65535 : 255;
    return (oct_qparams){.scale = 1.0f, .zero_point = roll_zero_point(d, most), .qmax = most};
}

static inline float roll_scaled(dice *d, oct_requantizer by, int range)
{
    if (oct_requantizer_shifts(by))
        return ldexpf(1.0f, (int)roll_between(d, -range - 8, roll(d) % 16 ? 0 : 20));
    const float sign = roll(d) & 1 ? 1.0f : -1.0f;
    if (roll_between(d, 0, 3) == 0) return sign * ldexpf(1.0f, -(int)roll_between(d, 0, range));
    return sign * (0.5f + oct_uniform(roll(d))) * ldexpf(1.0f, -(int)roll_between(d, 0, range));
}

/* An epilogue without its addend's codes; constants are written to the arrays, which have n elements. */
static inline oct_epilogue roll_epilogue(dice *d, oct_requantizer by, bool wide, bool wide_in,
                                         oct_dtype out, int64_t n, int32_t *bias32, int64_t *bias,
                                         float *multiplier, oct_fixed *fixed)
{
    const oct_qparams q = roll_qparams(d, out == OCT_U16);
    oct_epilogue f = {.requantizer = by,
                      .wide = wide,
                      .acc = wide_in ? OCT_S64 : OCT_S32,
                      .out = out,
                      .q = {.bias = bias32,
                            .multiplier = multiplier,
                            .lo = -q.zero_point,
                            .hi = q.qmax - q.zero_point,
                            .zero_point = q.zero_point,
                            .relu = roll(d) & 1,
                            .six = INFINITY},
                      .bias = bias,
                      .fixed = fixed};
    if (f.q.relu && roll(d) & 1) f.q.floor = (float)roll_between(d, -30, 30) / 2;
    if (f.q.relu)
        f.q.lo = (int32_t)fminf(fmaxf(nearbyintf(f.q.floor), (float)f.q.lo), (float)f.q.hi);
    if (roll_between(d, 0, 3) == 0) {
        f.q.six = (float)roll_between(d, 20, 60) + 0.5f * (float)(roll(d) & 1);
        if (f.q.six < (float)f.q.hi) f.q.hi = (int32_t)f.q.six;
    }
    for (int64_t c = 0; c < n; c++) {
        bias32[c] = (int32_t)roll_between(d, -5000, 5000);
        bias[c] = wide_in && roll(d) & 1 ? bias32[c] * INT64_C(1000003) : bias32[c];
        multiplier[c] = roll_scaled(d, by, wide_in ? 24 : 14);
        if (by == OCT_REQUANT_DOUBLE && roll(d) % 16 == 0) multiplier[c] *= 0x1p16f;
        fixed[c] = oct_fixed_of(by, (double)multiplier[c]);
    }
    return f;
}
