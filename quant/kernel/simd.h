/* What the SIMD variants share: a copy of the requantizer for each kind of call, and the vectors of 512 bits. Those of 256 bits and of NEON are in vectors.h. */
#pragma once

#include "core/base/cpu.h"
#include "core/product/product.h"
#include "quant/kernel/requant.h"

/* Defines requantize from `as`, which is inlined and first takes whether there is a mask,
 * whether there is a range and whether there is a second addend: its loops ask none of them. */
#define OCT_REQUANTIZE(as)                                                                         \
    static void requantize(const oct_acc_rows *r, const oct_requant *q)                            \
    {                                                                                              \
        if (q->addend)                                                                             \
            OCT_REQUANTIZE_AS(as, true);                                                           \
        else                                                                                       \
            OCT_REQUANTIZE_AS(as, false);                                                          \
    }
#define OCT_REQUANTIZE_AS(as, added)                                                               \
    do {                                                                                           \
        if (r->mask && r->range)                                                                   \
            as(true, true, added, r, q);                                                           \
        else if (r->mask)                                                                          \
            as(true, false, added, r, q);                                                          \
        else if (r->range)                                                                         \
            as(false, true, added, r, q);                                                          \
        else                                                                                       \
            as(false, false, added, r, q);                                                         \
    } while (0)

#ifdef OCT_SIMD_512 /* vectors of 512 bits: sixteen sums, and how they become codes */
#include <immintrin.h>

enum { COLUMNS = 16 };

/* Sums are vectors of int32 by type too: as __m512i, whose elements have 64 bits, the compiler holds
 * each of them in two registers and spills. */
typedef int32_t lanes __attribute__((vector_size(64)));

OCT_INLINE __mmask16 first_lanes(int64_t count)
{
    return (__mmask16)(count >= 16 ? 0xffffu : (1u << count) - 1);
}

OCT_INLINE lanes load_lanes(const void *at)
{
    return (lanes)_mm512_loadu_si512(at);
}

OCT_INLINE lanes read_lanes(const int32_t *acc, int64_t count)
{
    return (lanes)_mm512_maskz_loadu_epi32(first_lanes(count), acc);
}

OCT_INLINE void write_lanes(int32_t *acc, int64_t count, lanes sum)
{
    _mm512_mask_storeu_epi32(acc, first_lanes(count), (__m512i)sum);
}

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
OCT_INLINE __m512 values_of(const coder *z, const bool whole, const bool added, const vector *s)
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
OCT_INLINE __m512i round_values(const coder *z, __m512 v)
{
    return _mm512_cvtps_epi32(_mm512_min_ps(z->hi, v));
}

/* Rounds sums to logical codes (code - zero_point); `to`: where its codes will be gives the place of its addend. */
OCT_INLINE __m512i logical_of(const coder *z, const bool whole, int64_t count, lanes sum,
                              int64_t channel, const uint8_t *to)
{
    vector s = {.sum = sum, .channel = channel, .count = count};
    if (!z->addend) return round_values(z, values_of(z, whole, false, &s));
    s.addend = z->addend + (to - z->codes);
    return round_values(z, values_of(z, whole, true, &s));
}

/* Makes codes of the logical codes of four vectors. Packing saturates, and works inside 128-bit
 * lanes, which are put in order last. */
OCT_INLINE __m512i codes_of(const coder *z, __m512i a, __m512i b, __m512i c, __m512i d)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i ab = _mm512_adds_epi16(_mm512_packs_epi32(a, b), z->zero_point);
    const __m512i cd = _mm512_adds_epi16(_mm512_packs_epi32(c, d), z->zero_point);
    const __m512i codes = _mm512_max_epu8(_mm512_packus_epi16(ab, cd), z->lo_code);
    return _mm512_permutexvar_epi32(order, codes);
}

/* Makes the codes of one vector alone. Nothing overflows: zero points are not negative. */
OCT_INLINE __m128i codes_of_one(const coder *z, __m512i a)
{
    const __m512i code = _mm512_add_epi32(a, z->zero_point32);
    return _mm512_cvtepi32_epi8(_mm512_max_epi32(code, z->lo_code32));
}

/* Stores the codes of 16 channels, or of the first `live` where no more exist. */
OCT_INLINE void store_channels(uint8_t *to, int64_t live, __m128i codes)
{
    if (live >= COLUMNS)
        _mm_storeu_si128((__m128i *)(void *)to, codes);
    else
        _mm_mask_storeu_epi8(to, first_lanes(live), codes);
}

/* Stores the codes of one vector alone, of the `live` channels from `channel` on. */
OCT_INLINE void store_vector(const coder *z, int64_t live, lanes sum, int64_t channel, uint8_t *to)
{
    const __m512i logical = live >= COLUMNS ? logical_of(z, true, live, sum, channel, to)
                                            : logical_of(z, false, live, sum, channel, to);
    store_channels(to, live, codes_of_one(z, logical));
}

/* Stores the codes of 2, 3 or 4 vectors of 16 channels. */
OCT_INLINE void store_whole_vectors(const int vectors, uint8_t *to, __m512i codes)
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
OCT_INLINE void store_row(const int panels, const oct_product *p, int64_t column, uint8_t *to,
                          lanes s0, lanes s1, lanes s2, lanes s3)
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
#endif
