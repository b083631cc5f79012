/* The index of the largest of several values, and back from there to values, has one definition for
 * training, evaluation and the integer runtime. */
#pragma once

#include "core/tensor/tensor.h"

/* index[r] = index of the largest of the n values of row r: of f32, or of u8 or u16 codes, whose order is
 * that of their values. Of equal ones the first; a NaN is larger than all, so that a broken run is
 * seen. n: 1 to 2^31 - 1. */
void oct_argmax_rows(oct_dtype dtype, int64_t rows, int64_t n, const void *x, int32_t *index);

/* What a model says of each sample, as rows of `classes` values that can be compared and counted: logits
 * as they are, class numbers as rows with a 1 at theirs and 0 elsewhere. OCT_PREPARE when y is neither of
 * `samples` samples, OCT_DATA when a number is no class. */
oct_status oct_class_rows(const oct_tensor *y, int64_t samples, int64_t classes,
                          float *rows) OCT_NODISCARD;
