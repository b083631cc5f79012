/* As shift, of layers whose sums are first cut to 20 bits, -2^19 to 2^19 - 1. Codes and products of them are not cut. */
#include <stdint.h>

enum { BITS = 20 };
#define HALVES_EVEN false
#define LAYER_SUM(sum) cut(sum)
static inline int64_t cut(int64_t sum)
{
    const int64_t end = INT64_C(1) << (BITS - 1);
    return sum < -end ? -end : sum > end - 1 ? end - 1 : sum;
}
#include "quant/rounding/shift_loops.h"

const oct_rounding_row oct_rounding_shift_20 = {.name = "shift_20",
                                                .code_name = "shift",
                                                .shifts = true,
                                                .sum_bits = BITS,
                                                .bytes_only = "its sums have 20 bits",
                                                .constants_of = constants_of,
                                                WHOLE_LOOPS};
