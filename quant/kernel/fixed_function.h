/* Functions of codes in whole numbers alone, as gemmlowp's fixed point has them and with it TFLite's reference kernels of
 * 8-bit codes: for targets that fix such a function's output (oct_target.fixed_functions). */
#pragma once

#include "quant/rounding/qparams.h"

#include <stdbool.h>

typedef enum oct_fixed_function {
    OCT_FIXED_LOGISTIC, /* output: scale 1/256, zero_point 0 */
    OCT_FIXED_TANH,     /* output: scale 1/128, zero_point 128 */
    OCT_FIXED_FUNCTIONS
} oct_fixed_function;

enum { OCT_FIXED_CODES = 256 };

/* Returns the qparams of the output. */
oct_qparams oct_fixed_function_output(oct_fixed_function f);
/* Whether the kernels take codes of such an input: of 8 bits, and a scale of 2^-28 or more. */
bool oct_fixed_function_takes(oct_qparams x);
/* Writes table[code of x] = the code of f(x), for every code of x, computed with integers alone. */
void oct_fixed_function_table(oct_fixed_function f, oct_qparams x, uint16_t table[OCT_FIXED_CODES]);
