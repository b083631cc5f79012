/* What the SIMD variants share: the order of interleaved depthwise weights, and a copy of the
 * requantizer for each kind of call. */
#pragma once

#include "quant/kernel/kernel.h"

/* Depthwise weights for vectors of `lanes` (2, 4) 128-bit lanes: an int32 element of a vector holds as
 * many taps of one channel, so a block has 4 * lanes * lanes channels. Unpacking the codes of the taps
 * works inside 128-bit lanes: vector v, lane l holds channels 4 (lanes l + v) .. + 3, so the weights are
 * [C/block][taps/lanes][vector][lane][4 channels][lanes taps], filled up with zeros. */
#define OCT_INTERLEAVED(lanes) (4 * (lanes) * (lanes))
int64_t oct_interleaved_bytes(int lanes, int64_t channels, int64_t taps);
void oct_interleaved_pack(int lanes, int64_t channels, int64_t taps, const int8_t *w,
                          int8_t *packed);

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
