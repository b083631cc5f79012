/* This table is avx512's, with the instruction for bfloat16. Intel's processors begin one every two cycles, but two
 * multiply-adds of floats in each: there avx512's own products have twice the speed. */
#include "core/kernel/float_impl.h"

#include <string.h>

static inline int32_t word_at(const char *at)
{
    int32_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

#define PANEL_NAME blocks
#define PANEL_BLOCK (OCT_BF16_BLOCK / 2)
#define PANEL_LANES 16
#define PANEL_TILE 64
#define PANEL_ROWS_1 8
#define PANEL_ROWS_2 3
#define PANEL_ROWS_3 0
#define PANEL_ROWS_4 0
#define PANEL_SUM __m512
#define PANEL_ELEMENT float
#define PANEL_WORD __m512bh
#define PANEL_WEIGHT __m512bh
#define PANEL_ZERO() _mm512_setzero_ps()
#define PANEL_BROADCAST(at) ((__m512bh)_mm512_set1_epi32(word_at(at)))
#define PANEL_TILE_AT(at) ((__m512bh)_mm512_loadu_si512(at))
#define PANEL_MADD(sum, word, weight) _mm512_dpbf16_ps(sum, word, weight)
#define PANEL_READ(from, count) _mm512_maskz_loadu_ps(oct_first_columns(count), from)
#define PANEL_WRITE(to, count, sum) _mm512_mask_storeu_ps(to, oct_first_columns(count), sum)
#include "core/product/panel.h"
OCT_FLUSHED(bf16, blocks)

static bool pays(void)
{
    return !__builtin_cpu_is("intel");
}

const oct_float_kernel oct_float_kernel_avx512bf16 = {
    .isa = OCT_ISA_AVX512BF16,
    .name = "avx512bf16",
    .col_tile = 16,
    .bf16_words = OCT_BF16_PARITIES,
    .pays = pays,
    .f32 = oct_product_f32_avx512,
    .bf16 = bf16,
};
