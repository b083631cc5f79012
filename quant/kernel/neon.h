/* What the two tables for ARM share: vectors of four sums, and sixteen codes. */
#pragma once

#include "quant/kernel/kernel.h"

#include <arm_neon.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum { OCT_NEON_LANES = 4 };

INLINE int32x4_t oct_neon_read(const int32_t *acc, int64_t count)
{
    int32_t four[OCT_NEON_LANES] = {0};
    if (count >= OCT_NEON_LANES) return vld1q_s32(acc);
    for (int64_t i = 0; i < count; i++)
        four[i] = acc[i];
    return vld1q_s32(four);
}

INLINE void oct_neon_write(int32_t *acc, int64_t count, int32x4_t sum)
{
    int32_t four[OCT_NEON_LANES];
    if (count >= OCT_NEON_LANES) {
        vst1q_s32(acc, sum);
        return;
    }
    vst1q_s32(four, sum);
    for (int64_t i = 0; i < count; i++)
        acc[i] = four[i];
}

/* Loads 16 codes; only the first count exist. */
INLINE uint8x16_t oct_neon_codes(const uint8_t *at, int64_t count)
{
    uint8_t codes[16] = {0};
    if (count >= 16) return vld1q_u8(at);
    memcpy(codes, at, (size_t)count);
    return vld1q_u8(codes);
}
