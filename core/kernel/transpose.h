/* Transposes a matrix: to (columns, rows) = from (rows, columns). Pitches are values from one row to the
 * next. */
#pragma once

#include <stdint.h>

enum { OCT_TRANSPOSE_BYTES = 16 };

void oct_transpose_f32(int64_t rows, int64_t columns, const float *from, int64_t from_pitch,
                       float *to, int64_t to_pitch);

/* Transposes rows of OCT_TRANSPOSE_BYTES bytes and reads none at or after `end`; `to` has room for
 * rows rounded up to a multiple of 16, and what is written there is not defined. */
void oct_transpose_bytes(int64_t rows, const uint8_t *from, int64_t from_pitch, const uint8_t *end,
                         uint8_t *to, int64_t to_pitch);
