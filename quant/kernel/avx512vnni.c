/* AVX-512 VNNI kernels: vpdpbusd sums four products u8 x s8 exactly into int32.
 *
 * Product: panels of 16 columns. A register block is up to 8 rows by 4 panels (6 x 64, 8 x 48, 8 x 32,
 * 8 x 16): one 4-byte broadcast of a row serves all its panels, and there are enough independent sums
 * to hide the instruction's latency.
 */
#include "quant/kernel/bits.h"
#include "quant/kernel/requant.h"
#include "quant/kernel/simd.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum { COLUMNS = 16, TILE_BYTES = COLUMNS * OCT_WORD };

/* Sums are vectors of int32 by type too: as __m512i, whose elements have 64 bits, the compiler holds
 * each of them in two registers and spills. */
typedef int32_t lanes __attribute__((vector_size(64)));

INLINE __mmask16 first_lanes(int64_t count)
{
    return (__mmask16)(count >= 16 ? 0xffffu : (1u << count) - 1);
}

INLINE lanes load_lanes(const void *at)
{
    return (lanes)_mm512_loadu_si512(at);
}

INLINE lanes spread(const char *at)
{
    int32_t word;
    memcpy(&word, at, sizeof word);
    return (lanes)_mm512_set1_epi32(word);
}

INLINE lanes add_products(lanes sum, lanes codes, lanes w)
{
    return (lanes)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)codes, (__m512i)w);
}

INLINE lanes read_lanes(const int32_t *acc, int64_t count)
{
    return (lanes)_mm512_maskz_loadu_epi32(first_lanes(count), acc);
}

INLINE void write_lanes(int32_t *acc, int64_t count, lanes sum)
{
    _mm512_mask_storeu_epi32(acc, first_lanes(count), (__m512i)sum);
}

static void pack_tile(const int8_t *tile, int8_t *packed)
{
    memcpy(packed, tile, TILE_BYTES);
}

#define PANEL_NAME product
#define PANEL_LANES COLUMNS
#define PANEL_TILE TILE_BYTES
#define PANEL_ROWS_1 8
#define PANEL_ROWS_2 8
#define PANEL_ROWS_3 8
#define PANEL_ROWS_4 6
#define PANEL_SUM lanes
#define PANEL_ELEMENT int32_t
#define PANEL_WORD lanes
#define PANEL_WEIGHT lanes
#define PANEL_ZERO() ((lanes){0})
#define PANEL_SPREAD(at) spread(at)
#define PANEL_TILE_AT(at) load_lanes(at)
#define PANEL_MADD(sum, word, w) add_products(sum, word, w)
#define PANEL_READ(from, count) read_lanes(from, count)
#define PANEL_WRITE(to, count, sum) write_lanes(to, count, sum)
#include "core/product/panel.h"

/* 64 channels of four lines. Unpacking works inside 128-bit lanes, so first each lane l is given the
 * groups of four channels that will end there: of vector v, channels 16 v + 4 l and following. */
INLINE void weave(const uint8_t *const *at, int64_t count, int8_t *out)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __mmask64 live = ~(__mmask64)0 >> (64 - count);
    const __m512i a = _mm512_permutexvar_epi32(order, _mm512_maskz_loadu_epi8(live, at[0]));
    const __m512i b = _mm512_permutexvar_epi32(order, _mm512_maskz_loadu_epi8(live, at[1]));
    const __m512i c = _mm512_permutexvar_epi32(order, _mm512_maskz_loadu_epi8(live, at[2]));
    const __m512i d = _mm512_permutexvar_epi32(order, _mm512_maskz_loadu_epi8(live, at[3]));
    const __m512i ab_low = _mm512_unpacklo_epi8(a, b), ab_high = _mm512_unpackhi_epi8(a, b);
    const __m512i cd_low = _mm512_unpacklo_epi8(c, d), cd_high = _mm512_unpackhi_epi8(c, d);
    _mm512_storeu_si512(out, _mm512_unpacklo_epi16(ab_low, cd_low));
    _mm512_storeu_si512(out + 64, _mm512_unpackhi_epi16(ab_low, cd_low));
    _mm512_storeu_si512(out + 128, _mm512_unpacklo_epi16(ab_high, cd_high));
    _mm512_storeu_si512(out + 192, _mm512_unpackhi_epi16(ab_high, cd_high));
}

#define BRAID_NAME depthwise
#define BRAID_TAPS 4
#define BRAID_CHANNELS 64
#define BRAID_LANES 16
#define BRAID_SUM lanes
#define BRAID_ZERO() ((lanes){0})
#define BRAID_MADD(sum, woven, w) add_products(sum, load_lanes(woven), load_lanes(w))
#define BRAID_STORE(acc, count, sum) write_lanes(acc, count, sum)
#define BRAID_WEAVE(at, count, out) weave(at, count, out)
#include "quant/kernel/braid.h"

/* The requantizer at work: constants of a call, what it has found, and where it is. */
typedef struct requantizer {
    __m512 lo, hi, floor, six, summand_factor;
    __m512i zero_point, summand_zero;
    __m512 least, most;
    oct_bit_writer bits;
    const int32_t *acc;
    const uint8_t *summand;
    uint8_t *codes;
} requantizer;

/* `count` elements from channel c on, 16 if whole. */
INLINE void requantize_some(const bool masked, const bool ranged, const bool added,
                            const bool whole, int count, const oct_requant *q, int64_t c,
                            requantizer *z)
{
    const __mmask16 live = whole ? (__mmask16)0xffff : first_lanes(count);
    const __m512i acc = whole ? _mm512_loadu_si512(z->acc) : _mm512_maskz_loadu_epi32(live, z->acc);
    const __m512i bias =
        whole ? _mm512_loadu_si512(q->bias + c) : _mm512_maskz_loadu_epi32(live, q->bias + c);
    const __m512 multiplier =
        whole ? _mm512_loadu_ps(q->multiplier + c) : _mm512_maskz_loadu_ps(live, q->multiplier + c);
    __m512 v = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_add_epi32(acc, bias)), multiplier);
    if (added) {
        const __m128i s = whole ? _mm_loadu_si128((const __m128i *)(const void *)z->summand)
                                : _mm_maskz_loadu_epi8(live, z->summand);
        const __m512i logical = _mm512_sub_epi32(_mm512_cvtepu8_epi32(s), z->summand_zero);
        v = _mm512_add_ps(v, _mm512_mul_ps(_mm512_cvtepi32_ps(logical), z->summand_factor));
        z->summand += count;
    }
    const __m512 r = _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 cut = _mm512_min_ps(_mm512_max_ps(r, z->lo), z->hi);
    const __m128i code =
        _mm512_cvtepi32_epi8(_mm512_add_epi32(_mm512_cvtps_epi32(cut), z->zero_point));
    if (whole)
        _mm_storeu_si128((__m128i *)(void *)z->codes, code);
    else
        _mm_mask_storeu_epi8(z->codes, live, code);
    if (masked) {
        __mmask16 pass = _mm512_mask_cmp_ps_mask(live, r, z->lo, _CMP_GE_OQ);
        pass = _mm512_mask_cmp_ps_mask(pass, r, z->hi, _CMP_LE_OQ);
        pass = _mm512_mask_cmp_ps_mask(pass, v, z->floor, _CMP_GT_OQ);
        pass = _mm512_mask_cmp_ps_mask(pass, v, z->six, _CMP_LT_OQ);
        oct_bits_put(&z->bits, pass, count);
    }
    if (ranged) {
        const __m512 clipped = _mm512_min_ps(_mm512_max_ps(v, z->floor), z->six);
        z->least = _mm512_mask_min_ps(z->least, live, clipped, z->least);
        z->most = _mm512_mask_max_ps(z->most, live, clipped, z->most);
    }
    z->acc += count;
    z->codes += count;
}

INLINE void requantize_as(const bool masked, const bool ranged, const bool added, int64_t m,
                          int64_t n, const int32_t *acc, const oct_requant *q, uint8_t *codes,
                          uint8_t *mask, float *range)
{
    const oct_requant_limits limits = oct_requant_limits_of(q);
    requantizer z = {.lo = _mm512_set1_ps(limits.lo),
                     .hi = _mm512_set1_ps(limits.hi),
                     .floor = _mm512_set1_ps(limits.floor),
                     .six = _mm512_set1_ps(limits.six),
                     .summand_factor = _mm512_set1_ps(q->summand_multiplier),
                     .zero_point = _mm512_set1_epi32(limits.zero_point),
                     .summand_zero = _mm512_set1_epi32(q->summand_zero_point),
                     .least = _mm512_set1_ps(INFINITY),
                     .most = _mm512_set1_ps(-INFINITY),
                     .bits = {.out = mask},
                     .acc = acc,
                     .summand = q->summand,
                     .codes = codes};
    for (int64_t i = 0; i < m; i++) {
        int64_t c = 0;
        for (; c + 16 <= n; c += 16)
            requantize_some(masked, ranged, added, true, 16, q, c, &z);
        if (c < n) requantize_some(masked, ranged, added, false, (int)(n - c), q, c, &z);
    }
    if (masked) oct_bits_end(&z.bits);
    if (ranged) {
        oct_requant_range_merge(range, _mm512_reduce_min_ps(z.least), _mm512_reduce_max_ps(z.most));
        oct_requant_range_end(q, n, range);
    }
}

OCT_REQUANTIZE(requantize_as)

const oct_kernel oct_kernel_avx512vnni = {
    .isa = OCT_ISA_AVX512VNNI,
    .name = "avx512vnni",
    .col_tile = COLUMNS,
    .tile_bytes = TILE_BYTES,
    .pack_tile = pack_tile,
    .product = product,
    .depthwise_bytes = depthwise_bytes,
    .depthwise_pack = depthwise_pack,
    .depthwise = depthwise,
    .requantize = requantize,
};
