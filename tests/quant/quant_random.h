/* Random operands of the quant tests: a pure function of seed and call, from the counter-based
 * generator. */
#pragma once

#include "core/base/rng.h"

typedef struct dice {
    uint64_t seed, at;
} dice;

static inline uint32_t roll(dice *d)
{
    uint32_t words[4];
    oct_philox(d->seed, OCT_STREAM_TEST, d->at++, 0, words);
    return words[0];
}

static inline int64_t roll_between(dice *d, int64_t low, int64_t high)
{
    return low + (int64_t)oct_below(roll(d), (uint32_t)(high - low + 1));
}

/* 0, the middle, or any of the codes up to `most`. */
static inline int32_t roll_zero_point(dice *d, int32_t most)
{
    const int64_t which = roll_between(d, 0, 2);
    return which == 0 ? 0 : which == 1 ? (most + 1) / 2 : (int32_t)roll_between(d, 0, most);
}

static inline void roll_bytes(dice *d, void *out, int64_t n)
{
    uint8_t *bytes = out;
    for (int64_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)roll(d);
}

/* Weight codes, -127 to 127, with the ends well represented. */
static inline void roll_weights(dice *d, int8_t *w, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        w[i] = (int8_t)(roll_between(d, 0, 7) == 0 ? (roll(d) & 1 ? 127 : -127)
                                                   : roll_between(d, -127, 127));
}
