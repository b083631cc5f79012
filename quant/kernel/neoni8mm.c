/* NEON kernels with usmmla and usdot, which sum products u8 x s8 exactly into int32: usmmla those of eight codes of two
 * rows with eight weights of two columns.
 *
 * Product: panels of 4 columns.
 */
#include "quant/kernel/vectors.h"

#include <string.h>

enum { COLUMNS = LANES, TILE_BYTES = COLUMNS * OCT_WORD };

/* Sums of two rows, and two tiles, which hold eight weights of each column: columns 0 and 1, and 2 and 3. */
typedef struct sums {
    int32x4_t left, right;
} sums;

typedef struct weights {
    int8x16_t left, right;
} weights;

/* Loads one or two words of a row. */
OCT_INLINE uint64_t load_words(const char *at, const int words)
{
    uint64_t codes = 0;
    memcpy(&codes, at, (size_t)words * OCT_WORD);
    return codes;
}

OCT_INLINE uint8x16_t words_of_two(const char *at, const char *next, const int words)
{
    return vreinterpretq_u8_u64(
        vcombine_u64(vcreate_u64(load_words(at, words)), vcreate_u64(load_words(next, words))));
}

OCT_INLINE weights load_tiles(const char *at, const int words)
{
    const int32_t *w = (const int32_t *)(const void *)at;
    const int32x4_t first = vld1q_s32(w);
    const int32x4_t second = words > 1 ? vld1q_s32(w + COLUMNS) : vdupq_n_s32(0);
    return (weights){vreinterpretq_s8_s32(vzip1q_s32(first, second)),
                     vreinterpretq_s8_s32(vzip2q_s32(first, second))};
}

OCT_INLINE sums multiply(sums sum, uint8x16_t codes, weights w)
{
    return (sums){vusmmlaq_s32(sum.left, codes, w.left), vusmmlaq_s32(sum.right, codes, w.right)};
}

OCT_INLINE sums combine(lanes first, lanes second)
{
    return (sums){vcombine_s32(vget_low_s32(first), vget_low_s32(second)),
                  vcombine_s32(vget_high_s32(first), vget_high_s32(second))};
}

OCT_INLINE lanes split(sums sum, const int row)
{
    return row == 0 ? vcombine_s32(vget_low_s32(sum.left), vget_low_s32(sum.right))
                    : vcombine_s32(vget_high_s32(sum.left), vget_high_s32(sum.right));
}

/* Interleaves 16 channels of four lines. */
OCT_INLINE void interleave(const uint8_t *const *at, int64_t count, int8_t *out)
{
    vst4q_u8((uint8_t *)out,
             ((uint8x16x4_t){{load_codes(at[0], count), load_codes(at[1], count),
                              load_codes(at[2], count), load_codes(at[3], count)}}));
}

OCT_INLINE int32x4_t add_interleaved(int32x4_t sum, const int8_t *codes, const int8_t *w)
{
    return vusdotq_s32(sum, vreinterpretq_u8_s8(vld1q_s8(codes)), vld1q_s8(w));
}

#define PANEL_ROWS_1 8
#define PANEL_ROWS_2 8
#define PANEL_ROWS_3 8
#define PANEL_ROWS_4 6
#define PANEL_TWO_ROWS sums
#define PANEL_COMBINE(first, second) combine(first, second)
#define PANEL_SPLIT(sums, row) split(sums, row)
#define PANEL_WORD uint8x16_t
#define PANEL_WEIGHT weights
#define PANEL_BROADCAST(at, next, words) words_of_two(at, next, words)
#define PANEL_TILE_AT(at, words) load_tiles(at, words)
#define PANEL_MADD(sum, codes, w) multiply(sum, codes, w)
#define DEPTHWISE_TAPS 4
#define DEPTHWISE_CHANNELS 16
#define DEPTHWISE_MADD(sum, codes, w) add_interleaved(sum, codes, w)
#include "quant/kernel/simd_table.h"

OCT_REQUANTIZE(requantize_as)

const oct_kernel oct_kernel_neoni8mm = {
    .isa = OCT_ISA_NEONI8MM,
    .name = "neoni8mm",
    OCT_SIMD_TABLE(NULL, NULL, 0),
};
