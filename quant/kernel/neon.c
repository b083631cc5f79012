/* NEON kernels: codes and weights as 16-bit numbers, whose products vmlal adds exactly in int32.
 *
 * Product: panels of 4 columns; a tile is, for each code of a word, its weight in each column.
 */
#include "quant/rounding/bits.h"
#include "quant/kernel/neon.h"
#include "quant/kernel/requant.h"
#include "quant/kernel/simd.h"

#include <string.h>

enum { COLUMNS = 4, TILE_BYTES = COLUMNS * OCT_WORD * 2 };

/* Weights of codes 0 and 1, and of 2 and 3. */
typedef struct halves {
    int16x8_t low, high;
} halves;

INLINE int16x4_t broadcast(const char *at)
{
    uint32_t word;
    memcpy(&word, at, sizeof word);
    return vget_low_s16(vreinterpretq_s16_u16(vmovl_u8(vcreate_u8(word))));
}

INLINE halves load_tile(const char *at)
{
    const int16_t *w = (const int16_t *)(const void *)at;
    return (halves){vld1q_s16(w), vld1q_s16(w + 8)};
}

/* Adds the products of four codes with their weights in four columns. */
INLINE int32x4_t add_products(int32x4_t sum, int16x4_t codes, halves w)
{
    sum = vmlal_lane_s16(sum, vget_low_s16(w.low), codes, 0);
    sum = vmlal_lane_s16(sum, vget_high_s16(w.low), codes, 1);
    sum = vmlal_lane_s16(sum, vget_low_s16(w.high), codes, 2);
    return vmlal_lane_s16(sum, vget_high_s16(w.high), codes, 3);
}

static void pack_tile(const int8_t *tile, int8_t *packed)
{
    int16_t wide[COLUMNS * OCT_WORD];
    for (int k = 0; k < OCT_WORD; k++)
        for (int c = 0; c < COLUMNS; c++)
            wide[k * COLUMNS + c] = tile[c * OCT_WORD + k];
    memcpy(packed, wide, sizeof wide);
}

#define PANEL_NAME product
#define PANEL_LANES COLUMNS
#define PANEL_TILE TILE_BYTES
#define PANEL_ROWS_1 8
#define PANEL_ROWS_2 6
#define PANEL_ROWS_3 4
#define PANEL_ROWS_4 4
#define PANEL_SUM int32x4_t
#define PANEL_ELEMENT int32_t
#define PANEL_WORD int16x4_t
#define PANEL_WEIGHT halves
#define PANEL_ZERO() vdupq_n_s32(0)
#define PANEL_BROADCAST(at) broadcast(at)
#define PANEL_TILE_AT(at) load_tile(at)
#define PANEL_MADD(sum, word, w) add_products(sum, word, w)
#define PANEL_READ(from, count) oct_neon_read(from, count)
#define PANEL_WRITE(to, count, sum) oct_neon_write(to, count, sum)
#include "core/product/panel.h"

/* Interleaves 16 channels of two lines as pairs of 16-bit numbers. */
INLINE void interleave(const uint8_t *const *at, int64_t count, int8_t *out)
{
    const uint8x16_t a = oct_neon_codes(at[0], count), b = oct_neon_codes(at[1], count);
    uint16_t *to = (uint16_t *)(void *)out;
    vst2q_u16(to, ((uint16x8x2_t){{vmovl_u8(vget_low_u8(a)), vmovl_u8(vget_low_u8(b))}}));
    vst2q_u16(to + 16, ((uint16x8x2_t){{vmovl_u8(vget_high_u8(a)), vmovl_u8(vget_high_u8(b))}}));
}

/* Adds to the sum of each of four channels the two products of its pair of 16-bit codes and weights. */
INLINE int32x4_t add_pair(int32x4_t sum, const int8_t *codes, const int8_t *w)
{
    const int16x8_t x = vld1q_s16((const int16_t *)(const void *)codes);
    const int16x8_t y = vld1q_s16((const int16_t *)(const void *)w);
    const int32x4_t low = vmull_s16(vget_low_s16(x), vget_low_s16(y));
    const int32x4_t high = vmull_s16(vget_high_s16(x), vget_high_s16(y));
    return vaddq_s32(sum, vpaddq_s32(low, high));
}

#define DEPTHWISE_NAME depthwise
#define DEPTHWISE_TAPS 2
#define DEPTHWISE_CHANNELS 16
#define DEPTHWISE_LANES OCT_NEON_LANES
#define DEPTHWISE_SUM int32x4_t
#define DEPTHWISE_ZERO() vdupq_n_s32(0)
#define DEPTHWISE_MADD(sum, codes, w) add_pair(sum, codes, w)
#define DEPTHWISE_STORE(acc, count, sum) oct_neon_write(acc, count, sum)
#define DEPTHWISE_INTERLEAVE(at, count, out) interleave(at, count, out)
#include "quant/kernel/depthwise_simd.h"

/* The limits as vectors. */
typedef struct limits_vectors {
    float32x4_t lo, hi, floor, six;
    int32x4_t zero_point;
} limits_vectors;

INLINE limits_vectors vector_limits(const oct_requant_limits *l)
{
    return (limits_vectors){vdupq_n_f32(l->lo), vdupq_n_f32(l->hi), vdupq_n_f32(l->floor),
                            vdupq_n_f32(l->six), vdupq_n_s32(l->zero_point)};
}

/* Returns the larger; b where either is not a number, as everywhere. */
INLINE float32x4_t larger(float32x4_t a, float32x4_t b)
{
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}

INLINE float32x4_t smaller(float32x4_t a, float32x4_t b)
{
    return vbslq_f32(vcltq_f32(a, b), a, b);
}

/* Returns v = (acc + bias) * multiplier, plus the addend, of four elements: from element i, in channel c, on. */
INLINE float32x4_t values_of(const oct_requant *q, const bool added, int64_t i, int64_t c,
                             const int32_t *acc)
{
    const int32x4_t sum = vaddq_s32(vld1q_s32(acc), vld1q_s32(q->bias + c));
    const float32x4_t v = vmulq_f32(vcvtq_f32_s32(sum), vld1q_f32(q->multiplier + c));
    if (!added) return v;
    const uint8_t *at = q->addend + i;
    const int32x4_t s = {at[0], at[1], at[2], at[3]};
    const float32x4_t whole = vcvtq_f32_s32(vsubq_s32(s, vdupq_n_s32(q->addend_zero_point)));
    return vaddq_f32(v, vmulq_f32(whole, vdupq_n_f32(q->addend_multiplier)));
}

/* Makes four codes and returns a bit for each: whether the gradient passes it, that is whether v was not clipped. */
INLINE uint32_t codes_of(float32x4_t v, const limits_vectors *l, uint8_t *codes)
{
    const uint32x4_t bit = {1, 2, 4, 8};
    const float32x4_t r = vrndnq_f32(v);
    const float32x4_t cut = smaller(larger(r, l->lo), l->hi);
    const uint16x4_t code =
        vmovn_u32(vreinterpretq_u32_s32(vaddq_s32(vcvtq_s32_f32(cut), l->zero_point)));
    const uint8x8_t bytes = vmovn_u16(vcombine_u16(code, code));
    const uint32x4_t inside = vandq_u32(vcgeq_f32(r, l->lo), vcleq_f32(r, l->hi));
    const uint32x4_t active = vandq_u32(vcgtq_f32(v, l->floor), vcltq_f32(v, l->six));
    const uint32_t word = vget_lane_u32(vreinterpret_u32_u8(bytes), 0);
    memcpy(codes, &word, sizeof word);
    return vaddvq_u32(vandq_u32(vandq_u32(inside, active), bit));
}

/* Makes codes of rows of accumulators (oct_requant), four channels at a time. masked, ranged, added: with the bits of
 * the gradient's mask, with the range of v, with a second addend; floor and six: the clips of the activation. */
INLINE void requantize_as(const bool masked, const bool ranged, const bool added,
                          const oct_acc_rows *rows, const oct_requant *q)
{
    const int64_t n = rows->n;
    const int32_t *acc = rows->acc;
    uint8_t *codes = rows->y;
    const oct_requant_limits limits = oct_requant_limits_of(q);
    const limits_vectors l = vector_limits(&limits);
    float32x4_t least = vdupq_n_f32(INFINITY), most = vdupq_n_f32(-INFINITY);
    float tail[2] = {INFINITY, -INFINITY};
    oct_bit_writer bits = {.out = rows->mask};
    for (int64_t i = 0; i < rows->m * n;) {
        int64_t c = 0;
        for (; c + OCT_NEON_LANES <= n; c += OCT_NEON_LANES, i += OCT_NEON_LANES) {
            const float32x4_t v = values_of(q, added, i, c, acc + i);
            const uint32_t pass = codes_of(v, &l, codes + i);
            if (masked) oct_bits_put(&bits, pass, OCT_NEON_LANES);
            if (ranged) {
                const float32x4_t clipped = smaller(larger(v, l.floor), l.six);
                least = smaller(clipped, least);
                most = larger(clipped, most);
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
        oct_requant_range_merge(rows->range, vminvq_f32(least), vmaxvq_f32(most));
        oct_requant_range_merge(rows->range, tail[0], tail[1]);
        oct_requant_range_end(q, n, rows->range);
    }
}

OCT_REQUANTIZE(requantize_as)

const oct_kernel oct_kernel_neon = {
    .isa = OCT_ISA_NEON,
    .name = "neon",
    .bytes = {COLUMNS, TILE_BYTES, pack_tile, product},
    .depthwise_bytes = depthwise_bytes,
    .depthwise_pack = depthwise_pack,
    .depthwise = depthwise,
    .requantize = requantize,
};
