/* Four by four values at a time, which every machine has vectors for. */
#include "core/kernel/turn.h"

#include <string.h>

typedef float quad __attribute__((vector_size(16)));
typedef int32_t order __attribute__((vector_size(16)));

static inline quad quad_at(const float *at)
{
    quad value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline void turn_four(const float *from, int64_t from_pitch, float *to, int64_t to_pitch)
{
    const order even = {0, 4, 1, 5}, odd = {2, 6, 3, 7}, low = {0, 1, 4, 5}, high = {2, 3, 6, 7};
    const quad a = quad_at(from), b = quad_at(from + from_pitch);
    const quad c = quad_at(from + 2 * from_pitch), d = quad_at(from + 3 * from_pitch);
    const quad ab0 = __builtin_shuffle(a, b, even), ab1 = __builtin_shuffle(a, b, odd);
    const quad cd0 = __builtin_shuffle(c, d, even), cd1 = __builtin_shuffle(c, d, odd);
    const quad turned[4] = {__builtin_shuffle(ab0, cd0, low), __builtin_shuffle(ab0, cd0, high),
                            __builtin_shuffle(ab1, cd1, low), __builtin_shuffle(ab1, cd1, high)};
    for (int i = 0; i < 4; i++)
        memcpy(to + i * to_pitch, &turned[i], sizeof turned[i]);
}

static void turn_rest(int64_t rows, int64_t columns, const float *from, int64_t from_pitch,
                      float *to, int64_t to_pitch)
{
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < columns; c++)
            to[c * to_pitch + r] = from[r * from_pitch + c];
    }
}

void oct_turn_f32(int64_t rows, int64_t columns, const float *from, int64_t from_pitch, float *to,
                  int64_t to_pitch)
{
    const int64_t whole_rows = rows / 4 * 4, whole = columns / 4 * 4;
    for (int64_t c = 0; c < whole; c += 4) {
        for (int64_t r = 0; r < whole_rows; r += 4)
            turn_four(from + r * from_pitch + c, from_pitch, to + c * to_pitch + r, to_pitch);
    }
    turn_rest(rows, columns - whole, from + whole, from_pitch, to + whole * to_pitch, to_pitch);
    turn_rest(rows - whole_rows, whole, from + whole_rows * from_pitch, from_pitch, to + whole_rows,
              to_pitch);
}
