/* What the SIMD variants share: a copy of the requantizer for each kind of call. */
#pragma once

#include "quant/kernel/kernel.h"

/* Defines requantize from `as`, which is inlined and first takes whether there is a mask and whether
 * there is a range: its loops ask neither. */
#define OCT_REQUANTIZE(as)                                                                         \
    static void requantize(int64_t m, int64_t n, const int32_t *acc, const oct_requant *q,         \
                           uint8_t *codes, uint8_t *mask, float *range)                            \
    {                                                                                              \
        if (mask && range)                                                                         \
            as(true, true, m, n, acc, q, codes, mask, range);                                      \
        else if (mask)                                                                             \
            as(true, false, m, n, acc, q, codes, mask, range);                                     \
        else if (range)                                                                            \
            as(false, true, m, n, acc, q, codes, mask, range);                                     \
        else                                                                                       \
            as(false, false, m, n, acc, q, codes, mask, range);                                    \
    }
