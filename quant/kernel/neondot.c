/* NEON kernels with sdot, which sums four products s8 x s8 exactly into int32. Unsigned codes are taken as
 * code - 128, which flipping the top bit makes; 128 times the weights' sum, which is missing then, is the same for
 * all rows of a block (PANEL_REST), and a property of a tap of a depthwise layer.
 *
 * Product: panels of 4 columns.
 */
#include "quant/kernel/vectors.h"

#include <string.h>

enum { COLUMNS = LANES, TILE_BYTES = COLUMNS * OCT_WORD };

OCT_INLINE int8x16_t less_128(uint8x16_t codes)
{
    return vreinterpretq_s8_u8(veorq_u8(codes, vdupq_n_u8(0x80)));
}

OCT_INLINE int8x16_t broadcast(const char *at)
{
    uint32_t word;
    memcpy(&word, at, sizeof word);
    return less_128(vreinterpretq_u8_u32(vdupq_n_u32(word)));
}

OCT_INLINE int32x4_t add_products(int32x4_t sum, int8x16_t codes, int8x16_t w)
{
    return vdotq_s32(sum, codes, w);
}

/* Adds -128 times the weights of each column. */
OCT_INLINE int32x4_t add_rest(int32x4_t rest, int8x16_t w)
{
    return vdotq_s32(rest, w, vdupq_n_s8(-128));
}

/* Interleaves 16 channels of four lines, as code - 128. */
OCT_INLINE void interleave(const uint8_t *const *at, int64_t count, int8_t *out)
{
    vst4q_s8(out, ((int8x16x4_t){
                      {less_128(load_codes(at[0], count)), less_128(load_codes(at[1], count)),
                       less_128(load_codes(at[2], count)), less_128(load_codes(at[3], count))}}));
}

OCT_INLINE int32x4_t add_interleaved(int32x4_t sum, const int8_t *codes, const int8_t *at)
{
    const int8x16_t w = vld1q_s8(at);
    const int32x4_t rest = add_rest(vdupq_n_s32(0), w);
    return vdotq_s32(vsubq_s32(sum, rest), vld1q_s8(codes), w);
}

#define PANEL_ROWS_1 8
#define PANEL_ROWS_2 8
#define PANEL_ROWS_3 6
#define PANEL_ROWS_4 5
#define PANEL_WORD int8x16_t
#define PANEL_WEIGHT int8x16_t
#define PANEL_TILE_AT(at) vld1q_s8((const int8_t *)(const void *)(at))
#define PANEL_REST(rest, w) add_rest(rest, w)
#define DEPTHWISE_TAPS 4
#define DEPTHWISE_CHANNELS 16
#define DEPTHWISE_MADD(sum, codes, w) add_interleaved(sum, codes, w)
#include "quant/kernel/simd_table.h"

OCT_REQUANTIZE(requantize_as)

const oct_kernel oct_kernel_neondot = {
    .isa = OCT_ISA_NEONDOT,
    .name = "neondot",
    OCT_SIMD_TABLE(NULL, NULL, 0),
};
