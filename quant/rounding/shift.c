/* (acc + 2^(shift-1)) >> shift: halves up. */
#include <stdint.h>

#define HALVES_EVEN false
static inline int64_t layer_sum(int64_t sum)
{
    return sum;
}
#include "quant/rounding/shift_loops.h"

const oct_rounding_row oct_rounding_shift = {
    .name = "shift", .shifts = true, .constants_of = constants_of, WHOLE_LOOPS};
