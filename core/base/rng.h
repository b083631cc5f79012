/* Counter-based random numbers: Philox4x32-10 (Salmon et al., SC'11). A draw is a pure function of
 * (seed, stream, index), so nothing random depends on rank, thread or history. */
#pragma once

#include <stdint.h>

/* Each use has a stream of its own, so no two share numbers. */
typedef enum oct_stream {
    OCT_STREAM_INIT = 1,
    OCT_STREAM_SHUFFLE = 2,
    OCT_STREAM_AUGMENT = 3,
    OCT_STREAM_TEST = 4,
    OCT_STREAM_SPLIT = 5,
    OCT_STREAM_DROPOUT = 6,
    OCT_STREAM_ROUND = 7,
} oct_stream;

/* Draws four 32-bit words by Philox4x32-10 with key = seed and counter = (index, stream, sub). */
void oct_philox(uint64_t seed, uint32_t stream, uint64_t index, uint32_t sub, uint32_t out[4]);

float oct_uniform(uint32_t bits);              /* [0, 1), multiples of 2^-24 */
uint32_t oct_below(uint32_t bits, uint32_t n); /* [0, n), by multiply-shift */
/* x[i] is uniform in [lo, hi), or normal by Box-Muller, from word i % 4 of the draw with index i / 4. */
void oct_fill_uniform(float *x, int64_t n, uint64_t seed, uint32_t stream, uint32_t sub, float lo,
                      float hi);
void oct_fill_normal(float *x, int64_t n, uint64_t seed, uint32_t stream, uint32_t sub, float mean,
                     float std);

/* Makes a permutation of [0, n) as a pure function of (seed, epoch). */
void oct_permutation(int64_t *order, int64_t n, uint64_t seed, uint64_t epoch);
