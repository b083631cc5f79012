/* Float products with AVX2 and FMA work six rows by two panels of eight columns, those of bfloat16 three by two: of their
 * accumulators the twelve of chains have registers, the sums wait in memory. */
#include "core/kernel/float_impl.h"

#include <immintrin.h>

static inline __m256i first_columns(int64_t count)
{
    const __m256i each = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)count), each);
}

static inline __m256 read_columns(const float *from, int64_t count)
{
    return count >= 8 ? _mm256_loadu_ps(from) : _mm256_maskload_ps(from, first_columns(count));
}

static inline void write_columns(float *to, int64_t count, __m256 sum)
{
    if (count >= 8)
        _mm256_storeu_ps(to, sum);
    else
        _mm256_maskstore_ps(to, first_columns(count), sum);
}

#define PANEL_NAME f32
#define PANEL_MORE
#define PANEL_LANES 8
#define PANEL_TILE 32
#define PANEL_ROWS_1 8
#define PANEL_ROWS_2 6
#define PANEL_ROWS_3 0
#define PANEL_ROWS_4 0
#define PANEL_SUM __m256
#define PANEL_ELEMENT float
#define PANEL_WORD __m256
#define PANEL_WEIGHT __m256
#define PANEL_ZERO() _mm256_setzero_ps()
#define PANEL_BROADCAST(at) _mm256_broadcast_ss((const float *)(const void *)(at))
#define PANEL_TILE_AT(at) _mm256_loadu_ps((const float *)(const void *)(at))
#define PANEL_MADD(sum, word, weight) _mm256_fmadd_ps(word, weight, sum)
#define PANEL_READ(from, count) read_columns(from, count)
#define PANEL_WRITE(to, count, sum) write_columns(to, count, sum)
#include "core/product/panel.h"

#define PANEL_NAME blocks
#define PANEL_BLOCK OCT_BF16_BLOCK
#undef PANEL_ROWS_1
#define PANEL_ROWS_1 6
#undef PANEL_ROWS_2
#define PANEL_ROWS_2 3
#define PANEL_ELEMENT float
#define PANEL_READ(from, count) read_columns(from, count)
#define PANEL_WRITE(to, count, sum) write_columns(to, count, sum)
#include "core/product/panel.h"
OCT_FLUSHED(bf16, blocks)

const oct_float_kernel oct_float_kernel_avx2 = {
    .isa = OCT_ISA_AVX2,
    .name = "avx2",
    .col_tile = 8,
    .bf16_words = OCT_BF16_FLOATS,
    .f32 = f32,
    .bf16 = bf16,
};
