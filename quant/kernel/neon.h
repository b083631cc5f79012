/* What the two tables for ARM share: vectors of four sums, weaving, and the requantizer. */
#pragma once

#include "quant/kernel/bits.h"
#include "quant/kernel/requant.h"
#include "quant/kernel/simd.h"

#include <arm_neon.h>

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

/* 16 codes, of which count exist. */
INLINE uint8x16_t oct_neon_codes(const uint8_t *at, int64_t count)
{
    uint8_t codes[16] = {0};
    if (count >= 16) return vld1q_u8(at);
    memcpy(codes, at, (size_t)count);
    return vld1q_u8(codes);
}

/* The limits as vectors. */
typedef struct oct_neon_limits {
    float32x4_t lo, hi, floor, six;
    int32x4_t zero_point;
} oct_neon_limits;

INLINE oct_neon_limits oct_neon_limits_of(const oct_requant_limits *l)
{
    return (oct_neon_limits){vdupq_n_f32(l->lo), vdupq_n_f32(l->hi), vdupq_n_f32(l->floor),
                             vdupq_n_f32(l->six), vdupq_n_s32(l->zero_point)};
}

/* The larger; b where either is not a number, as everywhere. */
INLINE float32x4_t oct_neon_larger(float32x4_t a, float32x4_t b)
{
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}

INLINE float32x4_t oct_neon_smaller(float32x4_t a, float32x4_t b)
{
    return vbslq_f32(vcltq_f32(a, b), a, b);
}

/* v of four elements from element i, channel c on. */
INLINE float32x4_t oct_neon_values(const oct_requant *q, const bool added, int64_t i, int64_t c,
                                   const int32_t *acc)
{
    const int32x4_t sum = vaddq_s32(vld1q_s32(acc), vld1q_s32(q->bias + c));
    const float32x4_t v = vmulq_f32(vcvtq_f32_s32(sum), vld1q_f32(q->multiplier + c));
    if (!added) return v;
    const uint8_t *at = q->summand + i;
    const int32x4_t s = {at[0], at[1], at[2], at[3]};
    const float32x4_t whole = vcvtq_f32_s32(vsubq_s32(s, vdupq_n_s32(q->summand_zero_point)));
    return vaddq_f32(v, vmulq_f32(whole, vdupq_n_f32(q->summand_multiplier)));
}

/* Four codes; returns which of them pass, a bit each. */
INLINE uint32_t oct_neon_codes_of(float32x4_t v, const oct_neon_limits *l, uint8_t *codes)
{
    const uint32x4_t bit = {1, 2, 4, 8};
    const float32x4_t r = vrndnq_f32(v);
    const float32x4_t cut = oct_neon_smaller(oct_neon_larger(r, l->lo), l->hi);
    const uint16x4_t code =
        vmovn_u32(vreinterpretq_u32_s32(vaddq_s32(vcvtq_s32_f32(cut), l->zero_point)));
    const uint8x8_t bytes = vmovn_u16(vcombine_u16(code, code));
    const uint32x4_t inside = vandq_u32(vcgeq_f32(r, l->lo), vcleq_f32(r, l->hi));
    const uint32x4_t active = vandq_u32(vcgtq_f32(v, l->floor), vcltq_f32(v, l->six));
    const uint32_t word = vget_lane_u32(vreinterpret_u32_u8(bytes), 0);
    memcpy(codes, &word, sizeof word);
    return vaddvq_u32(vandq_u32(vandq_u32(inside, active), bit));
}

INLINE void oct_neon_requantize_as(const bool masked, const bool ranged, const bool added,
                                   int64_t m, int64_t n, const int32_t *acc, const oct_requant *q,
                                   uint8_t *codes, uint8_t *mask, float *range)
{
    const oct_requant_limits limits = oct_requant_limits_of(q);
    const oct_neon_limits l = oct_neon_limits_of(&limits);
    float32x4_t least = vdupq_n_f32(INFINITY), most = vdupq_n_f32(-INFINITY);
    float tail[2] = {INFINITY, -INFINITY};
    oct_bit_writer bits = {.out = mask};
    for (int64_t i = 0; i < m * n;) {
        int64_t c = 0;
        for (; c + OCT_NEON_LANES <= n; c += OCT_NEON_LANES, i += OCT_NEON_LANES) {
            const float32x4_t v = oct_neon_values(q, added, i, c, acc + i);
            const uint32_t pass = oct_neon_codes_of(v, &l, codes + i);
            if (masked) oct_bits_put(&bits, pass, OCT_NEON_LANES);
            if (ranged) {
                const float32x4_t clipped = oct_neon_smaller(oct_neon_larger(v, l.floor), l.six);
                least = oct_neon_smaller(clipped, least);
                most = oct_neon_larger(clipped, most);
            }
        }
        for (; c < n; c++, i++) {
            const float v = oct_requant_value(q, i, c, acc[i]);
            bool pass;
            codes[i] = oct_requant_one(v, &limits, &pass);
            if (masked) oct_bits_put(&bits, pass, 1);
            if (ranged) {
                const float clipped = oct_requant_clip(v, &limits);
                oct_requant_range_merge(tail, clipped, clipped);
            }
        }
    }
    if (masked) oct_bits_end(&bits);
    if (ranged) {
        oct_requant_range_merge(range, vminvq_f32(least), vmaxvq_f32(most));
        oct_requant_range_merge(range, tail[0], tail[1]);
        oct_requant_range_end(q, n, range);
    }
}
