/* AVX2 kernels. Codes are widened to 16 bits and multiplied with vpmaddwd, whose sum of two products
 * is exact in int32; vpmaddubsw, which saturates at 16 bits, is never used, so the results are those
 * of every other instruction set.
 *
 * Product: panels of 16 columns, weights as 16-bit pairs. A 4-byte broadcast of a row holds codes
 * k0 k1 k2 k3; masking leaves (k0, k2) and shifting (k1, k3) as 16-bit pairs, so the panel is
 * [N/16][K/4][pair 2][16][2] with the weights in that order.
 */
#include "quant/kernel/bits.h"
#include "quant/kernel/requant.h"
#include "quant/kernel/simd.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

enum { PANEL = 16, ROWS = 4, TILE_BYTES = PANEL * 4 * 2 };

INLINE __m256i load(const void *at)
{
    return _mm256_loadu_si256((const __m256i *)at);
}

INLINE __m256i first_lanes(int64_t count)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count < 8 ? (int)count : 8), lane);
}

static void pack_tile(const int8_t *tile, int8_t *packed)
{
    int16_t wide[PANEL * 4];
    for (int pair = 0; pair < 2; pair++)
        for (int c = 0; c < PANEL; c++)
            for (int i = 0; i < 2; i++)
                wide[(pair * PANEL + c) * 2 + i] = tile[c * 4 + pair + 2 * i];
    memcpy(packed, wide, sizeof wide);
}

/* `rows` rows by one panel. */
INLINE void multiply(const int rows, int64_t columns, const oct_taps *taps,
                     const uint8_t *const *row, const int8_t *w, int32_t *acc, int64_t ldc)
{
    const __m256i low_bytes = _mm256_set1_epi16(0xff);
    __m256i sum[ROWS][2];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        sum[r][0] = sum[r][1] = _mm256_setzero_si256();

    const int64_t k = (taps->k + 3) & ~(int64_t)3;
    for (int64_t t = 0; t < taps->count; t++) {
        const int64_t offset = taps->offset[t];
        for (int64_t at = 0; at < k; at += 4, w += TILE_BYTES) {
            const __m256i even0 = load(w), even1 = load(w + 32);
            const __m256i odd0 = load(w + 64), odd1 = load(w + 96);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) {
                int32_t four;
                memcpy(&four, row[r] + offset + at, 4);
                const __m256i codes = _mm256_set1_epi32(four);
                const __m256i even = _mm256_and_si256(codes, low_bytes);
                const __m256i odd = _mm256_srli_epi16(codes, 8);
                sum[r][0] = _mm256_add_epi32(sum[r][0], _mm256_madd_epi16(even, even0));
                sum[r][1] = _mm256_add_epi32(sum[r][1], _mm256_madd_epi16(even, even1));
                sum[r][0] = _mm256_add_epi32(sum[r][0], _mm256_madd_epi16(odd, odd0));
                sum[r][1] = _mm256_add_epi32(sum[r][1], _mm256_madd_epi16(odd, odd1));
            }
        }
    }

#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        _mm256_maskstore_epi32(acc + r * ldc, first_lanes(columns), sum[r][0]);
        if (columns > 8)
            _mm256_maskstore_epi32(acc + r * ldc + 8, first_lanes(columns - 8), sum[r][1]);
    }
}

static void conv(int64_t m, int64_t n, const oct_taps *taps, const uint8_t *const *rows,
                 const int8_t *packed, int32_t *acc, int64_t ldc)
{
    const int64_t panel_stride = taps->count * ((taps->k + 3) / 4) * TILE_BYTES;
    for (int64_t c = 0; c < n; c += PANEL, packed += panel_stride) {
        int64_t i = 0;
        for (; i + ROWS <= m; i += ROWS)
            multiply(ROWS, n - c, taps, rows + i, packed, acc + i * ldc + c, ldc);
        for (; i < m; i++)
            multiply(1, n - c, taps, rows + i, packed, acc + i * ldc + c, ldc);
    }
}

enum { LANES = 2, DEEP = OCT_INTERLEAVED(LANES) }; /* channels of a depthwise block */

static int64_t depthwise_bytes(int64_t channels, int64_t taps)
{
    return oct_interleaved_bytes(LANES, channels, taps);
}

static void depthwise_pack(int64_t channels, int64_t taps, const int8_t *w, int8_t *packed)
{
    oct_interleaved_pack(LANES, channels, taps, w, packed);
}

INLINE __m256i load16(const uint8_t *x)
{
    return _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)x));
}

static void depthwise(int64_t m, int64_t channels, const oct_taps *taps, const uint8_t *const *rows,
                      const int8_t *packed, int32_t *acc)
{
    const int64_t block_bytes = oct_interleaved_bytes(LANES, DEEP, taps->count);
    for (int64_t c = 0; c < channels; c += DEEP, packed += block_bytes) {
        for (int64_t i = 0; i < m; i++) {
            const uint8_t *x = rows[i] + c;
            const int8_t *w = packed;
            __m256i low = _mm256_setzero_si256(), high = low;
            for (int64_t t = 0; t < taps->count; t += 2, w += DEEP * 4) {
                const __m256i a = load16(x + taps->offset[t]);
                const __m256i b =
                    t + 1 < taps->count ? load16(x + taps->offset[t + 1]) : _mm256_setzero_si256();
                low =
                    _mm256_add_epi32(low, _mm256_madd_epi16(_mm256_unpacklo_epi16(a, b), load(w)));
                high = _mm256_add_epi32(
                    high, _mm256_madd_epi16(_mm256_unpackhi_epi16(a, b), load(w + 32)));
            }
            int32_t *out = acc + i * channels + c;
            const int64_t left = channels - c;
            _mm256_maskstore_epi32(out, first_lanes(left),
                                   _mm256_permute2x128_si256(low, high, 0x20));
            if (left > 8)
                _mm256_maskstore_epi32(out + 8, first_lanes(left - 8),
                                       _mm256_permute2x128_si256(low, high, 0x31));
        }
    }
}

INLINE void store_codes(uint8_t *codes, __m256i code)
{
    const __m128i words =
        _mm_packus_epi32(_mm256_castsi256_si128(code), _mm256_extracti128_si256(code, 1));
    _mm_storel_epi64((__m128i *)(void *)codes, _mm_packus_epi16(words, words));
}

INLINE void requantize_as(const bool masked, const bool ranged, int64_t m, int64_t n,
                          const int32_t *acc, const oct_requant *q, uint8_t *codes, uint8_t *mask,
                          float *range)
{
    const oct_requant_limits limits = oct_requant_limits_of(q);
    const __m256 lo = _mm256_set1_ps(limits.lo), hi = _mm256_set1_ps(limits.hi);
    const __m256 floor = _mm256_set1_ps(limits.floor), six = _mm256_set1_ps(limits.six);
    const __m256i zero_point = _mm256_set1_epi32(limits.zero_point);
    __m256 least = _mm256_set1_ps(INFINITY), most = _mm256_set1_ps(-INFINITY);
    float tail[2] = {INFINITY, -INFINITY};
    oct_bit_writer bits = {.out = mask};
    for (int64_t i = 0; i < m; i++, acc += n, codes += n) {
        int64_t c = 0;
        for (; c + 8 <= n; c += 8) {
            const __m256i sum = _mm256_add_epi32(load(acc + c), load(q->bias + c));
            const __m256 v =
                _mm256_mul_ps(_mm256_cvtepi32_ps(sum), _mm256_loadu_ps(q->multiplier + c));
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
            const float v = (float)(acc[c] + q->bias[c]) * q->multiplier[c];
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
            oct_requant_range_merge(range, lows[lane], highs[lane]);
        oct_requant_range_merge(range, tail[0], tail[1]);
        oct_requant_range_end(q, n, range);
    }
}

OCT_REQUANTIZE(requantize_as)

const oct_kernel oct_kernel_avx2 = {
    .isa = OCT_ISA_AVX2,
    .name = "avx2",
    .col_tile = PANEL,
    .k_tile = 4,
    .tile_bytes = TILE_BYTES,
    .pack_tile = pack_tile,
    .conv = conv,
    .depthwise_bytes = depthwise_bytes,
    .depthwise_pack = depthwise_pack,
    .depthwise = depthwise,
    .requantize = requantize,
};
