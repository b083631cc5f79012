/* AVX-512 VNNI kernels: vpdpbusd sums four products u8 x s8 exactly into int32.
 *
 * Product: panels of 16 columns. A register block is up to 8 rows by 4 panels (6 x 64, 8 x 48, 8 x 32,
 * 8 x 16): one 4-byte broadcast of a row serves all its panels, and there are enough independent sums
 * to hide the instruction's latency.
 */
#include "quant/rounding/bits.h"
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

INLINE lanes broadcast(const char *at)
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
#define PANEL_BROADCAST(at) broadcast(at)
#define PANEL_TILE_AT(at) load_lanes(at)
#define PANEL_MADD(sum, word, w) add_products(sum, word, w)
#define PANEL_READ(from, count) read_lanes(from, count)
#define PANEL_WRITE(to, count, sum) write_lanes(to, count, sum)
#include "core/product/panel.h"

/* The constants with which sums become codes. */
typedef struct coder {
    __m512 hi, addend_factor;
    __m512i zero_point, lo_code;                  /* in 16 bits, 8 bits */
    __m512i zero_point32, lo_code32, addend_zero; /* in 32 bits */
    const int32_t *bias;
    const float *multiplier;
    const uint8_t *addend; /* NULL: none */
    const uint8_t *codes;  /* element 0 of the call: where its addend is */
} coder;

/* Puts a requantizer's constants into vectors; codes: the first output, which gives the place of an addend. */
static coder coder_of(const oct_requant *q, const uint8_t *codes)
{
    return (coder){.hi = _mm512_set1_ps((float)q->hi),
                   .addend_factor = _mm512_set1_ps(q->addend_multiplier),
                   .zero_point = _mm512_set1_epi16((int16_t)q->zero_point),
                   .lo_code = _mm512_set1_epi8((int8_t)(q->lo + q->zero_point)),
                   .zero_point32 = _mm512_set1_epi32(q->zero_point),
                   .lo_code32 = _mm512_set1_epi32(q->lo + q->zero_point),
                   .addend_zero = _mm512_set1_epi32(q->addend_zero_point),
                   .bias = q->bias,
                   .multiplier = q->multiplier,
                   .addend = q->addend,
                   .codes = codes};
}

/* One vector of sums. */
typedef struct vector {
    lanes sum;
    int64_t channel,
        count;             /* the first channel; channels from there on: 16 or more make it whole */
    const uint8_t *addend; /* codes, where one is added */
} vector;

/* Returns v = (sum + bias) * multiplier, plus the addend, of up to 16 channels (whole: of 16), as oct_requant. */
INLINE __m512 values_of(const coder *z, const bool whole, const bool added, const vector *s)
{
    const __mmask16 live = whole ? (__mmask16)0xffff : first_lanes(s->count);
    const __m512i bias = whole ? _mm512_loadu_si512(z->bias + s->channel)
                               : _mm512_maskz_loadu_epi32(live, z->bias + s->channel);
    const __m512 multiplier = whole ? _mm512_loadu_ps(z->multiplier + s->channel)
                                    : _mm512_maskz_loadu_ps(live, z->multiplier + s->channel);
    const __m512i sum = _mm512_add_epi32((__m512i)s->sum, bias);
    const __m512 v = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), multiplier);
    if (!added) return v;
    const __m128i codes = whole ? _mm_loadu_si128((const __m128i *)(const void *)s->addend)
                                : _mm_maskz_loadu_epi8(live, s->addend);
    const __m512i logical = _mm512_sub_epi32(_mm512_cvtepu8_epi32(codes), z->addend_zero);
    return _mm512_add_ps(v, _mm512_mul_ps(_mm512_cvtepi32_ps(logical), z->addend_factor));
}

/* Values become logical codes, but for the lower bound. Conversion rounds half to even; what is too small
 * for it, or not a number, becomes the least int32. */
INLINE __m512i round_values(const coder *z, __m512 v)
{
    return _mm512_cvtps_epi32(_mm512_min_ps(z->hi, v));
}

/* Rounds sums to logical codes (code - zero_point); `to`: where its codes will be gives the place of its addend. */
INLINE __m512i logical_of(const coder *z, const bool whole, int64_t count, lanes sum,
                          int64_t channel, const uint8_t *to)
{
    vector s = {.sum = sum, .channel = channel, .count = count};
    if (!z->addend) return round_values(z, values_of(z, whole, false, &s));
    s.addend = z->addend + (to - z->codes);
    return round_values(z, values_of(z, whole, true, &s));
}

/* Makes codes of the logical codes of four vectors. Packing saturates, and works inside 128-bit
 * lanes, which are put in order last. */
INLINE __m512i codes_of(const coder *z, __m512i a, __m512i b, __m512i c, __m512i d)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i ab = _mm512_adds_epi16(_mm512_packs_epi32(a, b), z->zero_point);
    const __m512i cd = _mm512_adds_epi16(_mm512_packs_epi32(c, d), z->zero_point);
    const __m512i codes = _mm512_max_epu8(_mm512_packus_epi16(ab, cd), z->lo_code);
    return _mm512_permutexvar_epi32(order, codes);
}

/* Makes the codes of one vector alone. Nothing overflows: zero points are not negative. */
INLINE __m128i codes_of_one(const coder *z, __m512i a)
{
    const __m512i code = _mm512_add_epi32(a, z->zero_point32);
    return _mm512_cvtepi32_epi8(_mm512_max_epi32(code, z->lo_code32));
}

/* Stores the codes of 16 channels, or of the first `live` where no more exist. */
INLINE void store_channels(uint8_t *to, int64_t live, __m128i codes)
{
    if (live >= COLUMNS)
        _mm_storeu_si128((__m128i *)(void *)to, codes);
    else
        _mm_mask_storeu_epi8(to, first_lanes(live), codes);
}

/* Stores the codes of one vector alone, of the `live` channels from `channel` on. */
INLINE void store_vector(const coder *z, int64_t live, lanes sum, int64_t channel, uint8_t *to)
{
    const __m512i logical = live >= COLUMNS ? logical_of(z, true, live, sum, channel, to)
                                            : logical_of(z, false, live, sum, channel, to);
    store_channels(to, live, codes_of_one(z, logical));
}

/* Stores the codes of 2, 3 or 4 vectors of 16 channels. */
INLINE void store_whole_vectors(const int vectors, uint8_t *to, __m512i codes)
{
    if (vectors == 4) {
        _mm512_storeu_si512(to, codes);
        return;
    }
    _mm256_storeu_si256((__m256i *)(void *)to, _mm512_castsi512_si256(codes));
    if (vectors == 3)
        _mm_storeu_si128((__m128i *)(void *)(to + 32), _mm512_extracti32x4_epi32(codes, 2));
}

/* Turns a row's sums of 1 to 4 panels (16 columns each; the last may have fewer) into codes and stores them. */
INLINE void store_row(const int panels, const oct_product *p, int64_t column, uint8_t *to, lanes s0,
                      lanes s1, lanes s2, lanes s3)
{
    const coder *z = p->epilogue;
    const int64_t left = p->n - column;
    const __m512i zero = _mm512_setzero_si512();
    if (panels == 1) {
        store_vector(z, left, s0, column, to);
        return;
    }
#define CODES_AS(whole)                                                                            \
    codes_of(z, logical_of(z, whole, left, s0, column, to),                                        \
             logical_of(z, whole, left - 16, s1, column + 16, to + 16),                            \
             panels > 2 ? logical_of(z, whole, left - 32, s2, column + 32, to + 32) : zero,        \
             panels > 3 ? logical_of(z, whole, left - 48, s3, column + 48, to + 48) : zero)
    if (left >= panels * COLUMNS)
        store_whole_vectors(panels, to, CODES_AS(true));
    else
        _mm512_mask_storeu_epi8(to, ~(__mmask64)0 >> (64 - left), CODES_AS(false));
#undef CODES_AS
}

#define PANEL_NAME product_and_requantize
#define PANEL_LANES COLUMNS
#define PANEL_TILE TILE_BYTES
#define PANEL_ROWS_1 8
#define PANEL_ROWS_2 8
#define PANEL_ROWS_3 8
#define PANEL_ROWS_4 6
#define PANEL_SUM lanes
#define PANEL_ELEMENT uint8_t
#define PANEL_WORD lanes
#define PANEL_WEIGHT lanes
#define PANEL_ZERO() ((lanes){0})
#define PANEL_BROADCAST(at) broadcast(at)
#define PANEL_TILE_AT(at) load_lanes(at)
#define PANEL_MADD(sum, word, w) add_products(sum, word, w)
#define PANEL_STORE(panels, p, column, to, a, b, c, d) store_row(panels, p, column, to, a, b, c, d)
#include "core/product/panel.h"

/* Multiplies, and makes codes of the sums while they are in registers (oct_kernel.product_codes). */
static void product_codes(const oct_product *p, const oct_requant *q)
{
    const coder z = coder_of(q, p->acc);
    oct_product with_coder = *p;
    with_coder.epilogue = &z;
    product_and_requantize(&with_coder);
}

/* Interleaves 64 channels of four lines: word c has the four codes of channel c. Unpacking works inside 128-bit lanes,
 * so each lane l first gets the groups of four channels that end there: of vector v, from channel 16 v + 4 l on. */
INLINE void interleave(const uint8_t *const *at, int64_t count, int8_t *out)
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
INLINE void store_positions(const int positions, const oct_depthwise *d, int64_t channel,
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

#define DEPTHWISE_NAME depthwise
#define DEPTHWISE_TAPS 4
#define DEPTHWISE_CHANNELS 64
#define DEPTHWISE_LANES 16
#define DEPTHWISE_SUM lanes
#define DEPTHWISE_ZERO() ((lanes){0})
#define DEPTHWISE_MADD(sum, codes, w) add_products(sum, load_lanes(codes), load_lanes(w))
#define DEPTHWISE_STORE(acc, count, sum) write_lanes(acc, count, sum)
#define DEPTHWISE_INTERLEAVE(at, count, out) interleave(at, count, out)
#define DEPTHWISE_STORE_CODES store_positions
#include "quant/kernel/depthwise_simd.h"

static void depthwise_codes(const oct_depthwise *d, const oct_requant *q)
{
    const coder z = coder_of(q, d->codes);
    oct_depthwise with_coder = *d;
    with_coder.epilogue = &z;
    depthwise(&with_coder);
}

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
INLINE void requantize_vector(const bool masked, const bool ranged, const bool added,
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
INLINE void requantize_as(const bool masked, const bool ranged, const bool added,
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
    .bytes = {COLUMNS, TILE_BYTES, pack_tile, product},
    .depthwise_bytes = depthwise_bytes,
    .depthwise_pack = depthwise_pack,
    .depthwise = depthwise,
    .product_codes = product_codes,
    .depthwise_codes = depthwise_codes,
    .requantize = requantize,
};
