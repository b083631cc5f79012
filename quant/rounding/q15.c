/* A multiplier of 15 bits between two shifts, which round halves up: the ratio is multiplier * 2^-shift. A sum goes to
 * the right so far that what comes after fits, at most 17; is kept within 16 bits; times the multiplier; and goes by the
 * rest of the shift. A multiplier below 0 counts for the sum, so that the signs of both can change together. */
#include "quant/rounding/rounding.h"

enum { MOST_RIGHT = 49 };

/* ratio = multiplier * 2^-shift in 15 bits, halves up; at most 32767, and 0 where it leaves no sum anything. */
static oct_fixed constants_of(double ratio)
{
    const double most = INT16_MAX;
    int exponent;
    const double mantissa = frexp(fmin(fabs(ratio), most), &exponent);
    const double rounded = fmin(floor(mantissa * 0x1p15 + 0.5), most);
    if (rounded == 0 || !isfinite(ratio) || 15 - exponent > MOST_RIGHT) return (oct_fixed){0, 15};
    return (oct_fixed){(int32_t)(ratio < 0 ? -rounded : rounded), 15 - exponent};
}

/* Rounds sum * ratio: shifts to the right, cuts to 16 bits, multiplies, and shifts by what is left, which is 22 bits,
 * for outputs of 16 bits 14, where the first shift may have as many as that leaves it. */
static inline int64_t round_sum(int64_t sum, oct_fixed ratio, bool wide_output)
{
    enum { MOST_FIRST = 17 };
    const int64_t right = ratio.shift, wanted = right - (wide_output ? 14 : 22);
    const int64_t most = wanted > MOST_FIRST ? MOST_FIRST : wanted, first = most < 0 ? 0 : most;
    const int64_t multiplier = ratio.multiplier < 0 ? -ratio.multiplier : ratio.multiplier;
    const int64_t x = oct_shift_right(ratio.multiplier < 0 ? -sum : sum, first, false);
    const int64_t narrow = x > INT16_MAX ? INT16_MAX : x < INT16_MIN ? INT16_MIN : x;
    return oct_shift_right(narrow * multiplier, right - first, false);
}

#include "quant/rounding/whole_loops.h"

/* The larger scale is shifted to the left so far that the other one's multiplier, floor(ratio * 2^k + 1/2), has 15 bits:
 * k at most 23, of 16 bits 15. r = apply of a * (a-za) + b * (b-zb). Nothing is beyond 2^33. */
static oct_sum_constants sum_of(const oct_qadd *add, oct_qparams a, oct_qparams b, oct_qparams y)
{
    const bool first = a.scale >= b.scale;
    const bool wide = a.qmax > UINT8_MAX || b.qmax > UINT8_MAX || y.qmax > UINT8_MAX;
    const double larger = (double)(first ? a : b).scale, other = (double)(first ? b : a).scale;
    const double ratio = other / larger;
    int shift = wide ? 15 : 23;
    while (shift > 0 && floor(ldexp(ratio, shift) + 0.5) > INT16_MAX)
        shift--;
    const int64_t one = INT64_C(1) << shift, share = (int64_t)floor(ldexp(ratio, shift) + 0.5);
    return (oct_sum_constants){.a = first ? one : share,
                               .b = (first ? share : one) * (add->mb < 0 ? -1 : 1),
                               .ratio = {constants_of(ldexp(larger, -shift) / (double)y.scale)}};
}

static inline int64_t round_pair(int64_t t, int64_t a, int64_t b, const oct_qadd *q,
                                 const oct_sum_constants *s, bool wide_output)
{
    (void)t, (void)q;
    return round_sum(s->a * a + s->b * b, s->ratio[0], wide_output);
}

#include "quant/rounding/sum_loop.h"

const oct_rounding_row oct_rounding_q15 = {.name = "q15",
                                           .averages = true,
                                           .constants_of = constants_of,
                                           WHOLE_LOOPS,
                                           .num_sum_constants = 1,
                                           .sum_of = sum_of,
                                           .sum = sum,
                                           .c_multiplier = true,
                                           .c_width = {"22", "14"},
                                           .c_add = "add_fixed",
                                           .c_mean = "mean_q15"};
