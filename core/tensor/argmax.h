/* Where the largest of several values stands: the one definition for training, evaluation and the
 * integer runtime. */
#pragma once

#include "core/tensor/tensor.h"

/* index[r] = place of the largest of the n values of row r: of f32, or of u8 or u16 codes, whose order is
 * that of their values. Of equal ones the first; a NaN is larger than all, so that a broken run is
 * seen. n: 1 to 2^31 - 1. */
void oct_argmax_rows(oct_dtype dtype, int64_t rows, int64_t n, const void *x, int32_t *index);
