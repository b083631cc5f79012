/* What the SIMD variants share: a copy of the requantizer for each kind of call. */
#pragma once

#include "quant/kernel/kernel.h"

/* Defines requantize from `as`, which is inlined and first takes whether there is a mask,
 * whether there is a range and whether there is a second addend: its loops ask none of them. */
#define OCT_REQUANTIZE(as)                                                                         \
    static void requantize(int64_t m, int64_t n, const int32_t *acc, const oct_requant *q,         \
                           uint8_t *codes, uint8_t *mask, float *range)                            \
    {                                                                                              \
        if (q->addend)                                                                             \
            OCT_REQUANTIZE_AS(as, true);                                                           \
        else                                                                                       \
            OCT_REQUANTIZE_AS(as, false);                                                          \
    }
#define OCT_REQUANTIZE_AS(as, added)                                                               \
    do {                                                                                           \
        if (mask && range)                                                                         \
            as(true, true, added, m, n, acc, q, codes, mask, range);                               \
        else if (mask)                                                                             \
            as(true, false, added, m, n, acc, q, codes, mask, range);                              \
        else if (range)                                                                            \
            as(false, true, added, m, n, acc, q, codes, mask, range);                              \
        else                                                                                       \
            as(false, false, added, m, n, acc, q, codes, mask, range);                             \
    } while (0)
