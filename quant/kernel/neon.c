/* NEON kernels: codes and weights as 16-bit numbers, whose products vmlal adds exactly in int32.
 *
 * Product: panels of 4 columns; a tile is, for each code of a word, its weight in each column.
 */
#include "quant/kernel/vectors.h"

#include <string.h>

enum { COLUMNS = LANES, TILE_BYTES = COLUMNS * OCT_WORD * 2 };

/* Weights of codes 0 and 1, and of 2 and 3. */
typedef struct halves {
    int16x8_t low, high;
} halves;

OCT_INLINE int16x4_t broadcast(const char *at)
{
    uint32_t word;
    memcpy(&word, at, sizeof word);
    return vget_low_s16(vreinterpretq_s16_u16(vmovl_u8(vcreate_u8(word))));
}

OCT_INLINE halves load_tile(const char *at)
{
    const int16_t *w = (const int16_t *)(const void *)at;
    return (halves){vld1q_s16(w), vld1q_s16(w + 8)};
}

/* Adds the products of four codes with their weights in four columns. */
OCT_INLINE int32x4_t add_products(int32x4_t sum, int16x4_t codes, halves w)
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

/* Interleaves 16 channels of two lines as pairs of 16-bit numbers. */
OCT_INLINE void interleave(const uint8_t *const *at, int64_t count, int8_t *out)
{
    const uint8x16_t a = load_codes(at[0], count), b = load_codes(at[1], count);
    uint16_t *to = (uint16_t *)(void *)out;
    vst2q_u16(to, ((uint16x8x2_t){{vmovl_u8(vget_low_u8(a)), vmovl_u8(vget_low_u8(b))}}));
    vst2q_u16(to + 16, ((uint16x8x2_t){{vmovl_u8(vget_high_u8(a)), vmovl_u8(vget_high_u8(b))}}));
}

/* Adds to the sum of each of four channels the two products of its pair of 16-bit codes and weights. */
OCT_INLINE int32x4_t add_pair(int32x4_t sum, const int8_t *codes, const int8_t *w)
{
    const int16x8_t x = vld1q_s16((const int16_t *)(const void *)codes);
    const int16x8_t y = vld1q_s16((const int16_t *)(const void *)w);
    const int32x4_t low = vmull_s16(vget_low_s16(x), vget_low_s16(y));
    const int32x4_t high = vmull_s16(vget_high_s16(x), vget_high_s16(y));
    return vaddq_s32(sum, vpaddq_s32(low, high));
}

#define PANEL_ROWS_1 8
#define PANEL_ROWS_2 6
#define PANEL_ROWS_3 4
#define PANEL_ROWS_4 4
#define PANEL_WORD int16x4_t
#define PANEL_WEIGHT halves
#define PANEL_TILE_AT(at) load_tile(at)
#define DEPTHWISE_TAPS 2
#define DEPTHWISE_CHANNELS 16
#define DEPTHWISE_MADD(sum, codes, w) add_pair(sum, codes, w)
#include "quant/kernel/simd_table.h"

OCT_INLINE int16x4_t broadcast_pair(const char *at)
{
    uint32_t word;
    memcpy(&word, at, sizeof word);
    return vcreate_s16(word);
}

#define PANEL_NAME product_of_pairs
#define PANEL_LANES COLUMNS
#define PANEL_TILE (COLUMNS * OCT_WORD)
#define PANEL_ROWS_1 8
#define PANEL_ROWS_2 8
#define PANEL_ROWS_3 6
#define PANEL_ROWS_4 4
#define PANEL_SUM lanes
#define PANEL_ELEMENT int32_t
#define PANEL_WORD int16x4_t
#define PANEL_WEIGHT int16x4x2_t
#define PANEL_ZERO() ((lanes){0})
#define PANEL_BROADCAST(at) broadcast_pair(at)
#define PANEL_TILE_AT(at) vld2_s16((const int16_t *)(const void *)(at))
#define PANEL_MADD(sum, word, w)                                                                   \
    vmlal_lane_s16(vmlal_lane_s16(sum, w.val[0], word, 0), w.val[1], word, 1)
#define PANEL_READ(from, count) read_lanes(from, count)
#define PANEL_WRITE(to, count, sum) write_lanes(to, count, sum)
#include "core/product/panel.h"

OCT_REQUANTIZE(requantize_as)

const oct_kernel oct_kernel_neon = {
    .isa = OCT_ISA_NEON,
    .name = "neon",
    OCT_SIMD_TABLE(pack_tile, product_of_pairs, 1),
};
