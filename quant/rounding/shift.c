/* (acc + 2^(shift-1)) >> shift: halves up. */
#define HALVES_EVEN false
#include "quant/rounding/shift_loops.h"

const oct_rounding_row oct_rounding_shift = {
    .name = "shift", .shifts = true, .constants_of = constants_of, WHOLE_LOOPS};
