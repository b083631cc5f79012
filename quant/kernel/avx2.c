/* AVX2 kernels. Codes are widened to 16 bits and multiplied with vpmaddwd, whose sum of two products
 * is exact in int32; vpmaddubsw, which saturates at 16 bits, is never used, so the results are those
 * of every other instruction set.
 *
 * Product: panels of 8 columns, weights as 16-bit pairs. A 4-byte broadcast of a row holds codes
 * k0 k1 k2 k3; masking leaves (k0, k2) and shifting (k1, k3) as 16-bit pairs, so a tile is
 * [pair 2][8][2] with the weights in that order.
 */
#include "quant/rounding/bits.h"
#include "quant/kernel/requant.h"
#define OCT_SIMD_256
#include "quant/kernel/simd.h"

#include <string.h>

enum { COLUMNS = 8, TILE_BYTES = COLUMNS * OCT_WORD * 2 };

/* The even and the odd of four codes or weights, as 16-bit pairs. */
typedef struct pairs {
    __m256i even, odd;
} pairs;

/* Repeats four codes in all lanes, as 16-bit pairs: codes 0 and 2, and codes 1 and 3. */
INLINE pairs broadcast(const char *at)
{
    int32_t word;
    memcpy(&word, at, sizeof word);
    const __m256i codes = _mm256_set1_epi32(word);
    return (pairs){_mm256_and_si256(codes, _mm256_set1_epi16(0xff)), _mm256_srli_epi16(codes, 8)};
}

INLINE pairs load_tile(const char *at)
{
    return (pairs){load(at), load(at + 32)};
}

INLINE lanes add_pair(lanes sum, __m256i codes, __m256i w)
{
    return (lanes)_mm256_add_epi32((__m256i)sum, _mm256_madd_epi16(codes, w));
}

INLINE lanes add_products(lanes sum, pairs codes, pairs w)
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

#define PANEL_NAME product
#define PANEL_LANES COLUMNS
#define PANEL_TILE TILE_BYTES
#define PANEL_ROWS_1 8
#define PANEL_ROWS_2 4
#define PANEL_ROWS_3 0
#define PANEL_ROWS_4 0
#define PANEL_SUM lanes
#define PANEL_ELEMENT int32_t
#define PANEL_WORD pairs
#define PANEL_WEIGHT pairs
#define PANEL_ZERO() ((lanes){0})
#define PANEL_BROADCAST(at) broadcast(at)
#define PANEL_TILE_AT(at) load_tile(at)
#define PANEL_MADD(sum, word, w) add_products(sum, word, w)
#define PANEL_READ(from, count) read_lanes(from, count)
#define PANEL_WRITE(to, count, sum) write_lanes(to, count, sum)
#include "core/product/panel.h"

/* Widens 16 channels of a line (only the first count exist) to 16 bits. Unpacking works inside 128-bit lanes, so
 * each lane is given the channels that will end there. */
INLINE __m256i widen(const uint8_t *at, int64_t count)
{
    uint8_t codes[16] = {0};
    if (count < 16) at = memcpy(codes, at, (size_t)count);
    const __m256i wide = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)at));
    return _mm256_permute4x64_epi64(wide, 0xd8);
}

INLINE void interleave(const uint8_t *const *at, int64_t count, int8_t *out)
{
    const __m256i a = widen(at[0], count), b = widen(at[1], count);
    _mm256_storeu_si256((__m256i *)(void *)out, _mm256_unpacklo_epi16(a, b));
    _mm256_storeu_si256((__m256i *)(void *)(out + 32), _mm256_unpackhi_epi16(a, b));
}

#define DEPTHWISE_NAME depthwise
#define DEPTHWISE_TAPS 2
#define DEPTHWISE_CHANNELS 16
#define DEPTHWISE_LANES 8
#define DEPTHWISE_SUM lanes
#define DEPTHWISE_ZERO() ((lanes){0})
#define DEPTHWISE_MADD(sum, codes, w) add_pair(sum, load(codes), load(w))
#define DEPTHWISE_STORE(acc, count, sum) write_lanes(acc, count, sum)
#define DEPTHWISE_INTERLEAVE(at, count, out) interleave(at, count, out)
#include "quant/kernel/depthwise_simd.h"

INLINE void store_codes(uint8_t *codes, __m256i code)
{
    const __m128i words =
        _mm_packus_epi32(_mm256_castsi256_si128(code), _mm256_extracti128_si256(code, 1));
    _mm_storel_epi64((__m128i *)(void *)codes, _mm_packus_epi16(words, words));
}

/* Makes codes of rows of accumulators (oct_requant), eight channels at a time. masked, ranged, added: with the bits of
 * the gradient's mask, with the range of v, with a second addend; floor and six: the clips of the activation. */
INLINE void requantize_as(const bool masked, const bool ranged, const bool added,
                          const oct_acc_rows *rows, const oct_requant *q)
{
    const int64_t n = rows->n;
    const int32_t *acc = rows->acc;
    uint8_t *codes = rows->y;
    const oct_requant_limits limits = oct_requant_limits_of(q);
    const __m256 lo = _mm256_set1_ps(limits.lo), hi = _mm256_set1_ps(limits.hi);
    const __m256 floor = _mm256_set1_ps(limits.floor), six = _mm256_set1_ps(limits.six);
    const __m256i zero_point = _mm256_set1_epi32(limits.zero_point);
    const __m256i addend_zero = _mm256_set1_epi32(q->addend_zero_point);
    const __m256 addend_factor = _mm256_set1_ps(q->addend_multiplier);
    __m256 least = _mm256_set1_ps(INFINITY), most = _mm256_set1_ps(-INFINITY);
    float tail[2] = {INFINITY, -INFINITY};
    oct_bit_writer bits = {.out = rows->mask};
    for (int64_t i = 0; i < rows->m; i++, acc += n, codes += n) {
        const int64_t first = i * n;
        int64_t c = 0;
        for (; c + 8 <= n; c += 8) {
            const __m256i sum = _mm256_add_epi32(load(acc + c), load(q->bias + c));
            __m256 v = _mm256_mul_ps(_mm256_cvtepi32_ps(sum), _mm256_loadu_ps(q->multiplier + c));
            if (added) {
                const __m128i codes8 =
                    _mm_loadl_epi64((const __m128i *)(const void *)(q->addend + first + c));
                const __m256i s = _mm256_cvtepu8_epi32(codes8);
                const __m256 whole = _mm256_cvtepi32_ps(_mm256_sub_epi32(s, addend_zero));
                v = _mm256_add_ps(v, _mm256_mul_ps(whole, addend_factor));
            }
            const __m256 r = _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
            store_codes(codes + c, _mm256_add_epi32(
                                       _mm256_cvtps_epi32(_mm256_min_ps(_mm256_max_ps(r, lo), hi)),
                                       zero_point));
            if (masked) {
                const __m256 inside = _mm256_and_ps(_mm256_cmp_ps(r, lo, _CMP_GE_OQ),
                                                    _mm256_cmp_ps(r, hi, _CMP_LE_OQ));
                const __m256 active = _mm256_and_ps(_mm256_cmp_ps(v, floor, _CMP_GT_OQ),
                                                    _mm256_cmp_ps(v, six, _CMP_LT_OQ));
                oct_bits_put(&bits, (uint32_t)_mm256_movemask_ps(_mm256_and_ps(inside, active)), 8);
            }
            if (ranged) {
                const __m256 clipped = _mm256_min_ps(_mm256_max_ps(v, floor), six);
                least = _mm256_min_ps(clipped, least);
                most = _mm256_max_ps(clipped, most);
            }
        }
        for (; c < n; c++) {
            const float v = oct_requant_value(q, first + c, c, acc[c]);
            bool pass;
            codes[c] = oct_requant_one(v, &limits, &pass);
            if (masked) oct_bits_put(&bits, pass, 1);
            if (ranged) {
                const float clipped = oct_requant_clip(v, &limits);
                oct_requant_range_merge(tail, clipped, clipped);
            }
        }
    }
    if (masked) oct_bits_end(&bits);
    if (ranged) {
        float lows[8], highs[8];
        _mm256_storeu_ps(lows, least);
        _mm256_storeu_ps(highs, most);
        for (int lane = 0; lane < 8; lane++)
            oct_requant_range_merge(rows->range, lows[lane], highs[lane]);
        oct_requant_range_merge(rows->range, tail[0], tail[1]);
        oct_requant_range_end(q, n, rows->range);
    }
}

OCT_REQUANTIZE(requantize_as)

const oct_kernel oct_kernel_avx2 = {
    .isa = OCT_ISA_AVX2,
    .name = "avx2",
    .bytes = {COLUMNS, TILE_BYTES, pack_tile, product},
    .depthwise_bytes = depthwise_bytes,
    .depthwise_pack = depthwise_pack,
    .depthwise = depthwise,
    .requantize = requantize,
};
