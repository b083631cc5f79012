/* A multiplier of 31 bits and a shift, which both round, as in TFLite's reference kernels: the ratio is
 * multiplier * 2^(shift - 31). A sum goes to the left first, kept within 32 bits; then comes the high half of twice the
 * product, halves up; then it goes to the right, halves away from 0. */
#include "quant/rounding/rounding.h"

enum { MOST_LEFT = 31, MOST_RIGHT = 31, LEFT = 20 /* of addends */ };

/* ratio = multiplier * 2^(shift - 31), rounded to 31 bits, halves away from 0. Ratios below 2^-32 and what is not
 * finite become 0; shifts stay below 31, where every sum but 0 is beyond all codes. */
static oct_fixed constants_of(double ratio)
{
    const double one = 0x1p31;
    int exponent;
    if (!isfinite(ratio)) return (oct_fixed){0};
    double rounded = round(frexp(ratio, &exponent) * one);
    if (fabs(rounded) == one) {
        rounded /= 2;
        exponent++;
    }
    if (rounded == 0 || exponent < -MOST_RIGHT) return (oct_fixed){0};
    return (oct_fixed){(int32_t)rounded, exponent > MOST_LEFT ? MOST_LEFT : exponent};
}

/* Rounds sum * ratio: a shift to the left, kept within 32 bits; the high half of twice the product, halves up; a shift
 * to the right, halves away from 0: as TFLite does with two roundings. */
static inline int64_t round_sum(int64_t sum, oct_fixed ratio, bool wide_output)
{
    const int left = ratio.shift > 0 ? ratio.shift : 0, right = ratio.shift < 0 ? -ratio.shift : 0;
    const int64_t most = INT32_MAX, wide = sum * (INT64_C(1) << left);
    const int64_t x = wide > most ? most : wide < -most ? -most : wide;
    const int64_t high = (x * ratio.multiplier + (INT64_C(1) << 30)) >> 31;
    const int64_t mask = (INT64_C(1) << right) - 1;
    (void)wide_output;
    return (high >> right) + ((high & mask) > (mask >> 1) + (high < 0));
}

#include "quant/rounding/whole_loops.h"

/* Sums have three multipliers, with two = 2 * the larger of s_a and s_b:
 *     a' = ((a-za) << 20) * s_a / two, b' so, r = (a' + b', or a' - b') * two / (2^20 * s_y)
 * The ratios are doubles, those of a difference floats. */
static oct_sum_constants sum_of(const oct_qadd *add, oct_qparams a, oct_qparams b, oct_qparams y)
{
    const float two = 2 * fmaxf(a.scale, b.scale), unit = (float)(1 << LEFT) * y.scale;
    const float over[3] = {a.scale, b.scale, two}, under[3] = {two, two, unit};
    oct_sum_constants s = {.b = add->mb < 0 ? -1 : 1};
    for (int i = 0; i < 3; i++)
        s.ratio[i] = constants_of(s.b < 0 ? (double)(over[i] / under[i])
                                          : (double)over[i] / (double)under[i]);
    return s;
}

/* The kernels take a last ratio below 1, and not 0. */
static oct_status sum_check(const oct_qadd *add, oct_qparams a, oct_qparams b, oct_qparams y)
{
    const oct_fixed last = sum_of(add, a, b, y).ratio[2];
    OCT_CHECK(a.qmax <= UINT8_MAX && b.qmax <= UINT8_MAX && y.qmax <= UINT8_MAX, OCT_DATA,
              "its multipliers have 31 bits, which is for 8-bit codes");
    OCT_CHECK(last.multiplier > 0 && last.shift <= 0, OCT_DATA,
              "the scales %g and %g of its inputs are 2^19 times that of its output or more, or "
              "nothing beside it: %g",
              (double)a.scale, (double)b.scale, (double)y.scale);
    return OCT_OK;
}

/* Adds both codes in steps of 2^-20 of twice the larger scale, then takes the sum to the scale of the output. */
static inline int64_t round_pair(int64_t t, int64_t a, int64_t b, const oct_qadd *q,
                                 const oct_sum_constants *s, bool wide_output)
{
    const int64_t unit = 1 << LEFT;
    (void)t, (void)q;
    return round_sum(round_sum(a * unit, s->ratio[0], wide_output) +
                         s->b * round_sum(b * unit, s->ratio[1], wide_output),
                     s->ratio[2], wide_output);
}

#include "quant/rounding/sum_loop.h"

const oct_rounding_row oct_rounding_double = {.name = "double",
                                              .is_tflm = true,
                                              .bytes_only = "its multipliers have 31 bits",
                                              .constants_of = constants_of,
                                              WHOLE_LOOPS,
                                              .num_sum_constants = 3,
                                              .sum_of = sum_of,
                                              .sum_check = sum_check,
                                              .sum = sum,
                                              .c_multiplier = true,
                                              .c_add = "add_steps"};
