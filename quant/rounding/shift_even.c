/* As shift, halves to the even number. */
#define HALVES_EVEN true
#include "quant/rounding/shift_loops.h"

const oct_rounding_row oct_rounding_shift_even = {.name = "shift_even",
                                                  .shifts = true,
                                                  .halves_even = true,
                                                  .constants_of = constants_of,
                                                  WHOLE_LOOPS};
