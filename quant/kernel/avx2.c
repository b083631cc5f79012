/* AVX2 kernels. Codes are widened to 16 bits and multiplied with vpmaddwd, whose sum of two products
 * is exact in int32; vpmaddubsw, which saturates at 16 bits, is never used, so the results are those
 * of every other instruction set.
 *
 * Product: panels of 8 columns, weights as 16-bit pairs. A 4-byte broadcast of a row holds codes
 * k0 k1 k2 k3; masking leaves (k0, k2) and shifting (k1, k3) as 16-bit pairs, so a tile is
 * [pair 2][8][2] with the weights in that order.
 */
#include "quant/kernel/vectors.h"

#include <string.h>

enum { COLUMNS = 8, TILE_BYTES = COLUMNS * OCT_WORD * 2 };

/* The even and the odd of four codes or weights, as 16-bit pairs. */
typedef struct pairs {
    __m256i even, odd;
} pairs;

/* Repeats a word in all lanes. */
OCT_INLINE __m256i repeat(const char *at)
{
    int32_t word;
    memcpy(&word, at, sizeof word);
    return _mm256_set1_epi32(word);
}

/* Repeats four codes in all lanes, as 16-bit pairs: codes 0 and 2, and codes 1 and 3. */
OCT_INLINE pairs broadcast(const char *at)
{
    const __m256i codes = repeat(at);
    return (pairs){_mm256_and_si256(codes, _mm256_set1_epi16(0xff)), _mm256_srli_epi16(codes, 8)};
}

OCT_INLINE pairs load_tile(const char *at)
{
    return (pairs){load(at), load(at + 32)};
}

OCT_INLINE lanes add_pair(lanes sum, __m256i codes, __m256i w)
{
    return (lanes)_mm256_add_epi32((__m256i)sum, _mm256_madd_epi16(codes, w));
}

OCT_INLINE lanes add_products(lanes sum, pairs codes, pairs w)
{
    return add_pair(add_pair(sum, codes.even, w.even), codes.odd, w.odd);
}

/* Widens a tile of weights (columns, 4) to 16 bits: weights 0 and 2 of each column, then 1 and 3, like broadcast. */
static void pack_tile(const int8_t *tile, int8_t *packed)
{
    int16_t wide[COLUMNS * OCT_WORD];
    for (int pair = 0; pair < 2; pair++)
        for (int c = 0; c < COLUMNS; c++)
            for (int i = 0; i < 2; i++)
                wide[(pair * COLUMNS + c) * 2 + i] = tile[c * OCT_WORD + pair + 2 * i];
    memcpy(packed, wide, sizeof wide);
}

/* Widens 16 channels of a line (only the first count exist) to 16 bits. Unpacking works inside 128-bit lanes, so
 * each lane is given the channels that will end there. */
OCT_INLINE __m256i widen(const uint8_t *at, int64_t count)
{
    uint8_t codes[16] = {0};
    if (count < 16) at = memcpy(codes, at, (size_t)count);
    const __m256i wide = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)at));
    return _mm256_permute4x64_epi64(wide, 0xd8);
}

OCT_INLINE void interleave(const uint8_t *const *at, int64_t count, int8_t *out)
{
    const __m256i a = widen(at[0], count), b = widen(at[1], count);
    _mm256_storeu_si256((__m256i *)(void *)out, _mm256_unpacklo_epi16(a, b));
    _mm256_storeu_si256((__m256i *)(void *)(out + 32), _mm256_unpackhi_epi16(a, b));
}

#define PANEL_ROWS_1 8
#define PANEL_ROWS_2 4
#define PANEL_ROWS_3 0
#define PANEL_ROWS_4 0
#define PANEL_WORD pairs
#define PANEL_WEIGHT pairs
#define PANEL_TILE_AT(at) load_tile(at)
#define DEPTHWISE_TAPS 2
#define DEPTHWISE_CHANNELS 16
#define DEPTHWISE_MADD(sum, codes, w) add_pair(sum, load(codes), load(w))
#include "quant/kernel/simd_table.h"

#define PANEL_NAME product_of_pairs
#define PANEL_LANES COLUMNS
#define PANEL_TILE (COLUMNS * OCT_WORD)
#define PANEL_ROWS_1 8
#define PANEL_ROWS_2 6
#define PANEL_ROWS_3 0
#define PANEL_ROWS_4 0
#define PANEL_SUM lanes
#define PANEL_ELEMENT int32_t
#define PANEL_WORD __m256i
#define PANEL_WEIGHT __m256i
#define PANEL_ZERO() ((lanes){0})
#define PANEL_BROADCAST(at) repeat(at)
#define PANEL_TILE_AT(at) load(at)
#define PANEL_MADD(sum, word, w) add_pair(sum, word, w)
#define PANEL_READ(from, count) read_lanes(from, count)
#define PANEL_WRITE(to, count, sum) write_lanes(to, count, sum)
#define PANEL_MORE
#include "core/product/panel.h"

#define PANEL_NAME pairs_and_requantize
#define PANEL_ELEMENT uint8_t
#define PANEL_STORE(panels, p, column, to, a, b, c, d) store_row(panels, p, column, to, a, b, c, d)
#include "core/product/panel.h"

static void pairs_codes(const oct_product *p, const oct_requant *q)
{
    multiply_to_codes(pairs_and_requantize, p, q);
}

OCT_REQUANTIZE(requantize_as)

const oct_kernel oct_kernel_avx2 = {
    .isa = OCT_ISA_AVX2,
    .name = "avx2",
    OCT_SIMD_TABLE(pack_tile, product_of_pairs, 1),
    .pairs_codes = pairs_codes,
};
