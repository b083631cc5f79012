/* Matrices are transposed in vectors of 16 bytes, which every machine has. */
#include "core/tensor/move.h"

#include <string.h>

typedef float quad __attribute__((vector_size(16)));
/* The elements of two vectors, one after another, in another order (gcc 12 and clang). */
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#define EVEN 0, 4, 1, 5
#define ODD 2, 6, 3, 7
#define LOW 0, 1, 4, 5
#define HIGH 2, 3, 6, 7

static inline quad quad_at(const float *at)
{
    quad value;
    memcpy(&value, at, sizeof value);
    return value;
}

/* Transposes 4 x 4 floats: pairs of rows are interleaved, then pairs of these. */
static inline void transpose_four(const float *from, int64_t from_pitch, float *to,
                                  int64_t to_pitch)
{
    const quad a = quad_at(from), b = quad_at(from + from_pitch);
    const quad c = quad_at(from + 2 * from_pitch), d = quad_at(from + 3 * from_pitch);
    const quad ab0 = SHUFFLE(a, b, EVEN), ab1 = SHUFFLE(a, b, ODD);
    const quad cd0 = SHUFFLE(c, d, EVEN), cd1 = SHUFFLE(c, d, ODD);
    const quad column[4] = {SHUFFLE(ab0, cd0, LOW), SHUFFLE(ab0, cd0, HIGH), SHUFFLE(ab1, cd1, LOW),
                            SHUFFLE(ab1, cd1, HIGH)};
    for (int i = 0; i < 4; i++)
        memcpy(to + i * to_pitch, &column[i], sizeof column[i]);
}

/* Transposes value by value the rows and columns that are beyond whole blocks of 4 x 4. */
static void transpose_rest(int64_t rows, int64_t columns, const float *from, int64_t from_pitch,
                           float *to, int64_t to_pitch)
{
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < columns; c++)
            to[c * to_pitch + r] = from[r * from_pitch + c];
    }
}

void oct_transpose_f32(int64_t rows, int64_t columns, const float *from, int64_t from_pitch,
                       float *to, int64_t to_pitch)
{
    const int64_t whole_rows = rows / 4 * 4, whole = columns / 4 * 4;
    for (int64_t c = 0; c < whole; c += 4) {
        for (int64_t r = 0; r < whole_rows; r += 4)
            transpose_four(from + r * from_pitch + c, from_pitch, to + c * to_pitch + r, to_pitch);
    }
    transpose_rest(rows, columns - whole, from + whole, from_pitch, to + whole * to_pitch,
                   to_pitch);
    transpose_rest(rows - whole_rows, whole, from + whole_rows * from_pitch, from_pitch,
                   to + whole_rows, to_pitch);
}
