/* What roundings by shifts share. A ratio is 2^-shift; the multiplier is 1. Who includes this has defined HALVES_EVEN, and
 * perhaps LAYER_SUM (whole_loops.h).
 *
 * Nothing overflows: sums of layers are below 2^47 and go 16 to the left at most, which takes every sum but 0 beyond all
 * codes; 62 to the right leave 0 of each. */
#include "quant/rounding/rounding.h"

enum { MOST_LEFT = 16, MOST_RIGHT = 62 };

static oct_fixed constants_of(double ratio)
{
    int exponent;
    (void)frexp(ratio, &exponent);
    const int right = ratio == 0 ? MOST_RIGHT : isfinite(ratio) ? 1 - exponent : -MOST_LEFT;
    return (oct_fixed){1, right > MOST_RIGHT   ? MOST_RIGHT
                          : right < -MOST_LEFT ? -MOST_LEFT
                                               : right};
}

static inline int64_t round_sum(int64_t sum, oct_fixed ratio, bool wide_output)
{
    const int64_t left = ratio.shift < 0 ? -ratio.shift : 0,
                  right = ratio.shift > 0 ? ratio.shift : 0;
    (void)wide_output;
    return oct_shift_right(sum * (INT64_C(1) << left), right, HALVES_EVEN);
}

#include "quant/rounding/whole_loops.h"
