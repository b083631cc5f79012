/* Float products take AVX-512; bfloat16 ones are made of floats, for processors without the
 * instruction. */
#include "core/kernel/float_impl.h"

/* gcc 12 would load a tile again for every row. */
static inline __m512 in_register(__m512 v)
{
    __asm__("" : "+v"(v));
    return v;
}

#define PANEL_NAME f32
#define PANEL_MORE
#define PANEL_LANES 16
#define PANEL_TILE 64
#define PANEL_ROWS_1 8
#define PANEL_ROWS_2 8
#define PANEL_ROWS_3 8
#define PANEL_ROWS_4 6
#define PANEL_SUM __m512
#define PANEL_ELEMENT float
#define PANEL_WORD __m512
#define PANEL_WEIGHT __m512
#define PANEL_ZERO() _mm512_setzero_ps()
#define PANEL_BROADCAST(at) _mm512_set1_ps(*(const float *)(const void *)(at))
#define PANEL_TILE_AT(at) _mm512_loadu_ps(at)
#define PANEL_MADD(sum, word, weight) _mm512_fmadd_ps(word, weight, sum)
#define PANEL_READ(from, count) _mm512_maskz_loadu_ps(oct_first_columns(count), from)
#define PANEL_WRITE(to, count, sum) _mm512_mask_storeu_ps(to, oct_first_columns(count), sum)
#include "core/product/panel.h"

void oct_product_f32_avx512(const oct_product *p)
{
    f32(p);
}

#define PANEL_NAME blocks
#define PANEL_BLOCK OCT_BF16_BLOCK
#undef PANEL_ROWS_2
#define PANEL_ROWS_2 3
#undef PANEL_ROWS_3
#define PANEL_ROWS_3 0
#undef PANEL_ROWS_4
#define PANEL_ROWS_4 0
#undef PANEL_TILE_AT
#define PANEL_TILE_AT(at) in_register(_mm512_loadu_ps(at))
#define PANEL_ELEMENT float
#define PANEL_READ(from, count) _mm512_maskz_loadu_ps(oct_first_columns(count), from)
#define PANEL_WRITE(to, count, sum) _mm512_mask_storeu_ps(to, oct_first_columns(count), sum)
#include "core/product/panel.h"
OCT_FLUSHED(bf16, blocks)

const oct_float_kernel oct_float_kernel_avx512 = {
    .isa = OCT_ISA_AVX512VNNI,
    .name = "avx512",
    .col_tile = 16,
    .bf16_words = OCT_BF16_FLOATS,
    .f32 = f32,
    .bf16 = bf16,
};
