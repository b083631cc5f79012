/* Turning a matrix: to (columns, rows) = from (rows, columns), so many floats from one row to the next. */
#pragma once

#include <stdint.h>

void oct_turn_f32(int64_t rows, int64_t columns, const float *from, int64_t from_pitch, float *to,
                  int64_t to_pitch);
