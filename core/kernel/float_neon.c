/* Float products with NEON work six rows by four panels of four columns, those of bfloat16, which have three accumulators
 * for a sum, three by three.
 *
 * The instructions for bfloat16 that ARM has are of no use to the definition of its products. BFDOT and BFMMLA add the
 * products of a pair to each other before they are added to the sum, and round to odd unless FPCR.EBF is set.
 * BFMLALB and BFMLALT are fused multiply-adds like those of floats, and no faster. */
#include "core/kernel/float_impl.h"

#include <arm_neon.h>
#include <string.h>

static inline float32x4_t read_columns(const float *from, int64_t count)
{
    float four[4] = {0};
    if (count >= 4) return vld1q_f32(from);
    if (count > 0) memcpy(four, from, (size_t)count * sizeof *four);
    return vld1q_f32(four);
}

static inline void write_columns(float *to, int64_t count, float32x4_t sum)
{
    float four[4];
    vst1q_f32(count >= 4 ? to : four, sum);
    if (count > 0 && count < 4) memcpy(to, four, (size_t)count * sizeof *four);
}

#define PANEL_NAME f32
#define PANEL_MORE
#define PANEL_LANES 4
#define PANEL_TILE 16
#define PANEL_ROWS_1 8
#define PANEL_ROWS_2 8
#define PANEL_ROWS_3 8
#define PANEL_ROWS_4 6
#define PANEL_SUM float32x4_t
#define PANEL_ELEMENT float
#define PANEL_WORD float32x4_t
#define PANEL_WEIGHT float32x4_t
#define PANEL_ZERO() vdupq_n_f32(0)
#define PANEL_BROADCAST(at) vld1q_dup_f32((const float *)(const void *)(at))
#define PANEL_TILE_AT(at) vld1q_f32((const float *)(const void *)(at))
#define PANEL_MADD(sum, word, weight) vfmaq_f32(sum, word, weight)
#define PANEL_READ(from, count) read_columns(from, count)
#define PANEL_WRITE(to, count, sum) write_columns(to, count, sum)
#include "core/product/panel.h"

#define PANEL_NAME blocks
#define PANEL_BLOCK OCT_BF16_BLOCK
#undef PANEL_ROWS_2
#define PANEL_ROWS_2 4
#undef PANEL_ROWS_3
#define PANEL_ROWS_3 3
#undef PANEL_ROWS_4
#define PANEL_ROWS_4 0
#define PANEL_ELEMENT float
#define PANEL_READ(from, count) read_columns(from, count)
#define PANEL_WRITE(to, count, sum) write_columns(to, count, sum)
#include "core/product/panel.h"
OCT_FLUSHED(bf16, blocks)

const oct_float_kernel oct_float_kernel_neon = {
    .isa = OCT_ISA_NEON,
    .name = "neon",
    .col_tile = 4,
    .bf16_words = OCT_BF16_FLOATS,
    .f32 = f32,
    .bf16 = bf16,
};
