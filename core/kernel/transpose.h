/* Transposes a matrix: to (columns, rows) = from (rows, columns). Pitches are values from one row to the
 * next. */
#pragma once

#include <stdint.h>

void oct_transpose_f32(int64_t rows, int64_t columns, const float *from, int64_t from_pitch,
                       float *to, int64_t to_pitch);
