/* NEON kernels with sdot, which sums four products s8 x s8 exactly into int32. Unsigned codes are taken as
 * code - 128, which flipping the top bit makes; 128 times the weights' sum, which is missing then, is a
 * property of a tile of weights and is added with each word.
 *
 * Product: panels of 4 columns.
 */
#include "quant/kernel/vectors.h"

#include <string.h>

enum { COLUMNS = LANES, TILE_BYTES = COLUMNS * OCT_WORD };

/* Weights, and what is missing. */
typedef struct weights {
    int8x16_t w;
    int32x4_t missing;
} weights;

INLINE int8x16_t less_128(uint8x16_t codes)
{
    return vreinterpretq_s8_u8(veorq_u8(codes, vdupq_n_u8(0x80)));
}

INLINE int8x16_t broadcast(const char *at)
{
    uint32_t word;
    memcpy(&word, at, sizeof word);
    return less_128(vreinterpretq_u8_u32(vdupq_n_u32(word)));
}

INLINE weights load_tile(const void *at)
{
    const int8x16_t w = vld1q_s8(at);
    const int32x4_t sum = vdotq_s32(vdupq_n_s32(0), w, vdupq_n_s8(1));
    return (weights){w, vshlq_n_s32(sum, 7)};
}

INLINE int32x4_t add_products(int32x4_t sum, int8x16_t codes, weights t)
{
    return vdotq_s32(vaddq_s32(sum, t.missing), codes, t.w);
}

/* Interleaves 16 channels of four lines. */
INLINE void interleave(const uint8_t *const *at, int64_t count, int8_t *out)
{
    vst4q_u8((uint8_t *)out,
             ((uint8x16x4_t){{load_codes(at[0], count), load_codes(at[1], count),
                              load_codes(at[2], count), load_codes(at[3], count)}}));
}

INLINE int32x4_t add_interleaved(int32x4_t sum, const int8_t *codes, const int8_t *w)
{
    return add_products(sum, less_128(vreinterpretq_u8_s8(vld1q_s8(codes))), load_tile(w));
}

#define PANEL_ROWS_1 8
#define PANEL_ROWS_2 8
#define PANEL_ROWS_3 6
#define PANEL_ROWS_4 5
#define PANEL_WORD int8x16_t
#define PANEL_WEIGHT weights
#define PANEL_TILE_AT(at) load_tile(at)
#define DEPTHWISE_TAPS 4
#define DEPTHWISE_CHANNELS 16
#define DEPTHWISE_MADD(sum, codes, w) add_interleaved(sum, codes, w)
#include "quant/kernel/simd_table.h"

/* The requantizer is NEON's, which every machine with sdot has. */
static void requantize(const oct_acc_rows *r, const oct_requant *q)
{
    oct_kernel_neon.requantize(r, q);
}

const oct_kernel oct_kernel_neondot = {
    .isa = OCT_ISA_NEONDOT,
    .name = "neondot",
    OCT_SIMD_TABLE(NULL, NULL),
};
