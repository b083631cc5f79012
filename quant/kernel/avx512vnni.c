/* AVX-512 VNNI kernels: vpdpbusd sums four products u8 x s8 exactly into int32.
 *
 * Product: panels of 16 columns. A register block is up to 8 rows by 4 panels (6 x 64, 8 x 48, 8 x 32,
 * 8 x 16): one 4-byte broadcast of a row serves all its panels, and there are enough independent sums
 * to hide the instruction's latency.
 */
#define OCT_SIMD_512
#include "quant/kernel/simd.h"
#include "quant/rounding/bits.h"

#include <string.h>

enum { TILE_BYTES = COLUMNS * OCT_WORD };

OCT_INLINE lanes broadcast(const char *at)
{
    int32_t word;
    memcpy(&word, at, sizeof word);
    return (lanes)_mm512_set1_epi32(word);
}

OCT_INLINE lanes add_products(lanes sum, lanes codes, lanes w)
{
    return (lanes)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)codes, (__m512i)w);
}

/* Interleaves 64 channels of four lines: word c has the four codes of channel c. Unpacking works inside 128-bit lanes,
 * so each lane l first gets the groups of four channels that end there: of vector v, from channel 16 v + 4 l on. */
OCT_INLINE void interleave(const uint8_t *const *at, int64_t count, int8_t *out)
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

/* Makes codes of 16 channels of one output position, or of four neighbours, and stores them from element `at` on. */
OCT_INLINE void store_positions(const int positions, const oct_depthwise *d, int64_t channel,
                                int64_t at, lanes s0, lanes s1, lanes s2, lanes s3)
{
    const coder *z = d->epilogue;
    const int64_t live = d->channels - channel, step = d->channels;
    uint8_t *to = d->codes + at;
    if (positions == 1) {
        store_vector(z, live, s0, channel, to);
        return;
    }
#define CODES_AS(whole)                                                                            \
    codes_of(z, logical_of(z, whole, live, s0, channel, to),                                       \
             logical_of(z, whole, live, s1, channel, to + step),                                   \
             logical_of(z, whole, live, s2, channel, to + 2 * step),                               \
             logical_of(z, whole, live, s3, channel, to + 3 * step))
    const __m512i codes = live >= COLUMNS ? CODES_AS(true) : CODES_AS(false);
#undef CODES_AS
    store_channels(to, live, _mm512_castsi512_si128(codes));
    store_channels(to + step, live, _mm512_extracti32x4_epi32(codes, 1));
    store_channels(to + 2 * step, live, _mm512_extracti32x4_epi32(codes, 2));
    store_channels(to + 3 * step, live, _mm512_extracti32x4_epi32(codes, 3));
}

#define PANEL_ROWS_1 8
#define PANEL_ROWS_2 8
#define PANEL_ROWS_3 8
#define PANEL_ROWS_4 6
#define PANEL_WORD lanes
#define PANEL_WEIGHT lanes
#define PANEL_TILE_AT(at) load_lanes(at)
#define DEPTHWISE_TAPS 4
#define DEPTHWISE_CHANNELS 64
#define DEPTHWISE_MADD(sum, codes, w) add_products(sum, load_lanes(codes), load_lanes(w))
#define DEPTHWISE_MADD_NEXT(sum, codes, w)                                                         \
    add_products(sum, load_lanes(codes), (lanes)_mm512_slli_epi32((__m512i)load_lanes(w), 8))
#include "quant/kernel/simd_table.h"

OCT_INLINE lanes add_pairs(lanes sum, lanes numbers, lanes w)
{
    return (lanes)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)numbers, (__m512i)w);
}

#define PANEL_NAME product_of_pairs
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
#define PANEL_BROADCAST(at) broadcast(at)
#define PANEL_TILE_AT(at) load_lanes(at)
#define PANEL_MADD(sum, word, w) add_pairs(sum, word, w)
#define PANEL_READ(from, count) read_lanes(from, count)
#define PANEL_WRITE(to, count, sum) write_lanes(to, count, sum)
#include "core/product/panel.h"

/* A call of the requantizer: its constants, what it has found, and where it is. */
typedef struct requantizer {
    coder constants;
    __m512 lo, floor, six;
    __m512 least, most;
    oct_bit_writer bits;
    const int32_t *acc;
    const uint8_t *addend;
    uint8_t *codes;
} requantizer;

/* Makes codes, mask and range of the next s.count accumulators (16 if whole), and moves on in all arrays. */
OCT_INLINE void requantize_vector(const bool masked, const bool ranged, const bool added,
                                  const bool whole, vector s, requantizer *z)
{
    const __mmask16 live = whole ? (__mmask16)0xffff : first_lanes(s.count);
    s.sum = whole ? load_lanes(z->acc) : read_lanes(z->acc, s.count);
    s.addend = z->addend;
    const __m512 v = values_of(&z->constants, whole, added, &s);
    store_channels(z->codes, s.count, codes_of_one(&z->constants, round_values(&z->constants, v)));
    if (masked) {
        const __m512 r = _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        __mmask16 pass = _mm512_mask_cmp_ps_mask(live, r, z->lo, _CMP_GE_OQ);
        pass = _mm512_mask_cmp_ps_mask(pass, r, z->constants.hi, _CMP_LE_OQ);
        pass = _mm512_mask_cmp_ps_mask(pass, v, z->floor, _CMP_GT_OQ);
        pass = _mm512_mask_cmp_ps_mask(pass, v, z->six, _CMP_LT_OQ);
        oct_bits_put(&z->bits, pass, (int)s.count);
    }
    if (ranged) {
        const __m512 clipped = _mm512_min_ps(_mm512_max_ps(v, z->floor), z->six);
        z->least = _mm512_mask_min_ps(z->least, live, clipped, z->least);
        z->most = _mm512_mask_max_ps(z->most, live, clipped, z->most);
    }
    if (added) z->addend += s.count;
    z->acc += s.count;
    z->codes += s.count;
}

/* Makes codes of rows of accumulators (oct_requant), sixteen channels at a time. masked, ranged, added: with the bits
 * of the gradient's mask, with the range of v, with a second addend; floor and six: the clips of the activation. */
OCT_INLINE void requantize_as(const bool masked, const bool ranged, const bool added,
                              const oct_acc_rows *r, const oct_requant *q)
{
    const oct_requant_limits limits = oct_requant_limits_of(q);
    requantizer z = {.constants = coder_of(q, r->y),
                     .lo = _mm512_set1_ps(limits.lo),
                     .floor = _mm512_set1_ps(limits.floor),
                     .six = _mm512_set1_ps(limits.six),
                     .least = _mm512_set1_ps(INFINITY),
                     .most = _mm512_set1_ps(-INFINITY),
                     .bits = {.out = r->mask},
                     .acc = r->acc,
                     .addend = q->addend,
                     .codes = r->y};
    for (int64_t i = 0; i < r->m; i++) {
        vector s = {.count = COLUMNS};
        for (; s.channel + COLUMNS <= r->n; s.channel += COLUMNS)
            requantize_vector(masked, ranged, added, true, s, &z);
        s.count = r->n - s.channel;
        if (s.count > 0) requantize_vector(masked, ranged, added, false, s, &z);
    }
    if (masked) oct_bits_end(&z.bits);
    if (ranged) {
        oct_requant_range_merge(r->range, _mm512_reduce_min_ps(z.least),
                                _mm512_reduce_max_ps(z.most));
        oct_requant_range_end(q, r->n, r->range);
    }
}

OCT_REQUANTIZE(requantize_as)

const oct_kernel oct_kernel_avx512vnni = {
    .isa = OCT_ISA_AVX512VNNI,
    .name = "avx512vnni",
    OCT_SIMD_TABLE(NULL, product_of_pairs, 2),
    .depthwise_pairs = true,
};
