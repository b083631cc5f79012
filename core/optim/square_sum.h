/* The sum of squares of a vector, for norms. */
#pragma once

#include <stdint.h>

/* Returns the sum in double. Its shape follows from n alone, so no bit depends on threads or on the instruction
 * set; squares of floats are exact in double and do not overflow. */
double oct_square_sum(const float *x, int64_t n);
