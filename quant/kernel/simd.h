/* What the SIMD variants share: a copy of the requantizer for each kind of call, and the vectors of 256 bits. */
#pragma once

#include "quant/kernel/kernel.h"

/* Defines requantize from `as`, which is inlined and first takes whether there is a mask,
 * whether there is a range and whether there is a second addend: its loops ask none of them. */
#define OCT_REQUANTIZE(as)                                                                         \
    static void requantize(const oct_acc_rows *r, const oct_requant *q)                            \
    {                                                                                              \
        if (q->addend)                                                                             \
            OCT_REQUANTIZE_AS(as, true);                                                           \
        else                                                                                       \
            OCT_REQUANTIZE_AS(as, false);                                                          \
    }
#define OCT_REQUANTIZE_AS(as, added)                                                               \
    do {                                                                                           \
        if (r->mask && r->range)                                                                   \
            as(true, true, added, r, q);                                                           \
        else if (r->mask)                                                                          \
            as(true, false, added, r, q);                                                          \
        else if (r->range)                                                                         \
            as(false, true, added, r, q);                                                          \
        else                                                                                       \
            as(false, false, added, r, q);                                                         \
    } while (0)

#ifdef OCT_SIMD_256 /* vectors of 256 bits: eight sums */
#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

typedef int32_t lanes __attribute__((vector_size(32)));

INLINE __m256i load(const void *at)
{
    return _mm256_loadu_si256((const __m256i *)at);
}

INLINE __m256i first_lanes(int64_t count)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count < 8 ? (int)count : 8), lane);
}

INLINE lanes read_lanes(const int32_t *acc, int64_t count)
{
    return (lanes)_mm256_maskload_epi32(acc, first_lanes(count));
}

INLINE void write_lanes(int32_t *acc, int64_t count, lanes sum)
{
    if (count >= 8)
        _mm256_storeu_si256((__m256i *)(void *)acc, (__m256i)sum);
    else if (count > 0)
        _mm256_maskstore_epi32(acc, first_lanes(count), (__m256i)sum);
}
#endif
