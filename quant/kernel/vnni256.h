/* VNNI kernels for vectors of 256 bits: vpdpbusd sums four products u8 x s8 exactly into int32. avxvnni.c
 * builds them for AVX-VNNI; a test builds the same from the instruction of AVX-512 VNNI, for machines that
 * have only that. Before including, define
 *     VNNI256_TABLE             the name of the table
 *     VNNI256_MADD(sum, u, s)   the instruction
 *
 * Product: panels of 8 columns; a register block is up to 6 rows by 2 panels.
 */
#include "quant/kernel/vectors.h"

#include <string.h>

enum { COLUMNS = 8, TILE_BYTES = COLUMNS * OCT_WORD };

OCT_INLINE lanes broadcast(const char *at)
{
    int32_t word;
    memcpy(&word, at, sizeof word);
    return (lanes)_mm256_set1_epi32(word);
}

OCT_INLINE lanes add_products(lanes sum, lanes codes, lanes w)
{
    return (lanes)VNNI256_MADD((__m256i)sum, (__m256i)codes, (__m256i)w);
}

/* Loads 32 codes; only the first count exist. Unpacking works inside 128-bit lanes, so each lane l is given the
 * groups of four channels that will end there: of vector v, channels 8 v + 4 l and following. */
OCT_INLINE __m256i codes_by_lane(const uint8_t *at, int64_t count)
{
    uint8_t codes[32] = {0};
    if (count < 32) at = memcpy(codes, at, (size_t)count);
    const __m256i order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
    return _mm256_permutevar8x32_epi32(load(at), order);
}

OCT_INLINE void interleave(const uint8_t *const *at, int64_t count, int8_t *out)
{
    const __m256i a = codes_by_lane(at[0], count), b = codes_by_lane(at[1], count);
    const __m256i c = codes_by_lane(at[2], count), d = codes_by_lane(at[3], count);
    const __m256i ab_low = _mm256_unpacklo_epi8(a, b), ab_high = _mm256_unpackhi_epi8(a, b);
    const __m256i cd_low = _mm256_unpacklo_epi8(c, d), cd_high = _mm256_unpackhi_epi8(c, d);
    __m256i *to = (__m256i *)(void *)out;
    _mm256_storeu_si256(to, _mm256_unpacklo_epi16(ab_low, cd_low));
    _mm256_storeu_si256(to + 1, _mm256_unpackhi_epi16(ab_low, cd_low));
    _mm256_storeu_si256(to + 2, _mm256_unpacklo_epi16(ab_high, cd_high));
    _mm256_storeu_si256(to + 3, _mm256_unpackhi_epi16(ab_high, cd_high));
}

#define PANEL_ROWS_1 8
#define PANEL_ROWS_2 6
#define PANEL_ROWS_3 0
#define PANEL_ROWS_4 0
#define PANEL_WORD lanes
#define PANEL_WEIGHT lanes
#define PANEL_TILE_AT(at) ((lanes)load(at))
#define DEPTHWISE_TAPS 4
#define DEPTHWISE_CHANNELS 32
#define DEPTHWISE_MADD(sum, codes, w) add_products(sum, (lanes)load(codes), (lanes)load(w))
#include "quant/kernel/simd_table.h"

/* The requantizer is AVX2's, which every machine with VNNI has. */
static void requantize(const oct_acc_rows *r, const oct_requant *q)
{
    oct_kernel_avx2.requantize(r, q);
}

const oct_kernel VNNI256_TABLE = {
    .isa = OCT_ISA_AVXVNNI,
    .name = "avxvnni",
    OCT_SIMD_TABLE(NULL, NULL, 0),
};
