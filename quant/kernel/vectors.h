/* Vectors of 256 bits (x86) and of 128 bits (ARM): loads of sums, the requantizer, and how sums become codes while they
 * are in registers. The second half is the same for both. */
#pragma once

#include "quant/kernel/simd.h"
#include "quant/rounding/bits.h"

#include <string.h>

/* Each kind of vectors has
 *     lanes, floats, bytes          LANES sums; as many values; four times as many codes
 *     read_lanes, write_lanes       of the first count sums, which may be more than LANES
 *     coder, coder_of               the constants with which sums become codes; codes: element 0 of the call, where
 *                                   its addend is
 *     values_of                     v = (sum + bias) * multiplier of LANES channels, plus the addend of codes that
 *                                   will be at `to` (oct_requant)
 *     codes_of                      the codes of four vectors
 *     store_codes                   stores those of vector i
 *     larger, smaller               of two vectors; the second's where either is not a number
 *     pass_of                       a bit for each value: whether it is not clipped (oct_requant) */
#ifdef __x86_64__
#include <immintrin.h>

enum { LANES = 8 };
typedef int32_t lanes __attribute__((vector_size(32)));
typedef __m256 floats;
typedef __m256i bytes;

OCT_INLINE __m256i load(const void *at)
{
    return _mm256_loadu_si256((const __m256i *)at);
}

OCT_INLINE __m256i first_lanes(int64_t count)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count < LANES ? (int)count : LANES), lane);
}

OCT_INLINE lanes read_lanes(const int32_t *acc, int64_t count)
{
    return count >= LANES ? (lanes)load(acc)
                          : (lanes)_mm256_maskload_epi32(acc, first_lanes(count));
}

OCT_INLINE void write_lanes(int32_t *acc, int64_t count, lanes sum)
{
    if (count >= LANES)
        _mm256_storeu_si256((__m256i *)(void *)acc, (__m256i)sum);
    else if (count > 0)
        _mm256_maskstore_epi32(acc, first_lanes(count), (__m256i)sum);
}

typedef struct coder {
    const oct_requant *q;
    const uint8_t *codes;
    __m256 hi, addend_factor;
    __m256i addend_zero, zero_point, lo_code; /* in 32, 16 and 8 bits */
} coder;

OCT_INLINE coder coder_of(const oct_requant *q, const uint8_t *codes)
{
    return (coder){.q = q,
                   .codes = codes,
                   .hi = _mm256_set1_ps((float)q->hi),
                   .addend_factor = _mm256_set1_ps(q->addend_multiplier),
                   .addend_zero = _mm256_set1_epi32(q->addend_zero_point),
                   .zero_point = _mm256_set1_epi16((int16_t)q->zero_point),
                   .lo_code = _mm256_set1_epi8((int8_t)(q->lo + q->zero_point))};
}

OCT_INLINE floats values_of(const coder *z, const bool added, lanes sum, int64_t channel,
                            const uint8_t *to)
{
    const __m256i biased = _mm256_add_epi32((__m256i)sum, load(z->q->bias + channel));
    const __m256 multiplier = _mm256_loadu_ps(z->q->multiplier + channel);
    const __m256 v = _mm256_mul_ps(_mm256_cvtepi32_ps(biased), multiplier);
    if (!added) return v;
    const uint8_t *addend = z->q->addend + (to - z->codes);
    const __m256i s = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)addend));
    const __m256 whole = _mm256_cvtepi32_ps(_mm256_sub_epi32(s, z->addend_zero));
    return _mm256_add_ps(v, _mm256_mul_ps(whole, z->addend_factor));
}

/* Conversion rounds half to even; what is too small for it, or not a number, becomes the least int32. Packing
 * saturates, and works inside 128-bit lanes, which are put in order last. */
OCT_INLINE bytes codes_of(const coder *z, floats a, floats b, floats c, floats d)
{
#define LOGICAL(v) _mm256_cvtps_epi32(_mm256_min_ps(z->hi, v))
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i ab = _mm256_adds_epi16(_mm256_packs_epi32(LOGICAL(a), LOGICAL(b)), z->zero_point);
    const __m256i cd = _mm256_adds_epi16(_mm256_packs_epi32(LOGICAL(c), LOGICAL(d)), z->zero_point);
    const __m256i codes = _mm256_max_epu8(_mm256_packus_epi16(ab, cd), z->lo_code);
    return _mm256_permutevar8x32_epi32(codes, order);
#undef LOGICAL
}

OCT_INLINE void store_codes(uint8_t *to, bytes codes, const int i)
{
    const int64_t eight = codes[i];
    memcpy(to, &eight, sizeof eight);
}

OCT_INLINE floats larger(floats a, floats b)
{
    return _mm256_max_ps(a, b);
}

OCT_INLINE floats smaller(floats a, floats b)
{
    return _mm256_min_ps(a, b);
}

OCT_INLINE uint32_t pass_of(floats v, floats lo, floats hi, floats floor, floats six)
{
    const __m256 r = _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m256 inside =
        _mm256_and_ps(_mm256_cmp_ps(r, lo, _CMP_GE_OQ), _mm256_cmp_ps(r, hi, _CMP_LE_OQ));
    const __m256 active =
        _mm256_and_ps(_mm256_cmp_ps(v, floor, _CMP_GT_OQ), _mm256_cmp_ps(v, six, _CMP_LT_OQ));
    return (uint32_t)_mm256_movemask_ps(_mm256_and_ps(inside, active));
}
#else /* NEON */
#include <arm_neon.h>

enum { LANES = 4 };
typedef int32x4_t lanes;
typedef float32x4_t floats;
typedef uint8x16_t bytes;

OCT_INLINE lanes read_lanes(const int32_t *acc, int64_t count)
{
    int32_t four[LANES] = {0};
    if (count >= LANES) return vld1q_s32(acc);
    for (int64_t i = 0; i < count; i++)
        four[i] = acc[i];
    return vld1q_s32(four);
}

OCT_INLINE void write_lanes(int32_t *acc, int64_t count, lanes sum)
{
    int32_t four[LANES];
    if (count >= LANES) {
        vst1q_s32(acc, sum);
        return;
    }
    vst1q_s32(four, sum);
    for (int64_t i = 0; i < count; i++)
        acc[i] = four[i];
}

/* Loads 16 codes; only the first count exist. */
OCT_INLINE bytes load_codes(const uint8_t *at, int64_t count)
{
    uint8_t codes[16] = {0};
    if (count >= 16) return vld1q_u8(at);
    memcpy(codes, at, (size_t)count);
    return vld1q_u8(codes);
}

typedef struct coder {
    const oct_requant *q;
    const uint8_t *codes;
    float32x4_t lo, hi;
    int32x4_t zero_point;
} coder;

OCT_INLINE coder coder_of(const oct_requant *q, const uint8_t *codes)
{
    return (coder){.q = q,
                   .codes = codes,
                   .lo = vdupq_n_f32((float)q->lo),
                   .hi = vdupq_n_f32((float)q->hi),
                   .zero_point = vdupq_n_s32(q->zero_point)};
}

OCT_INLINE floats values_of(const coder *z, const bool added, lanes sum, int64_t channel,
                            const uint8_t *to)
{
    const int32x4_t biased = vaddq_s32(sum, vld1q_s32(z->q->bias + channel));
    const float32x4_t v = vmulq_f32(vcvtq_f32_s32(biased), vld1q_f32(z->q->multiplier + channel));
    if (!added) return v;
    uint32_t word;
    memcpy(&word, z->q->addend + (to - z->codes), sizeof word);
    const uint16x8_t wide = vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(word)));
    const int32x4_t s = vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(wide)));
    const float32x4_t whole = vcvtq_f32_s32(vsubq_s32(s, vdupq_n_s32(z->q->addend_zero_point)));
    return vaddq_f32(v, vmulq_f32(whole, vdupq_n_f32(z->q->addend_multiplier)));
}

/* Of a number and what is none the larger is the number: codes of the latter are the least. */
OCT_INLINE bytes codes_of(const coder *z, floats a, floats b, floats c, floats d)
{
#define CODE(v)                                                                                    \
    vreinterpretq_u16_s32(                                                                         \
        vaddq_s32(vcvtnq_s32_f32(vminnmq_f32(vmaxnmq_f32(v, z->lo), z->hi)), z->zero_point))
    const uint16x8_t ab = vuzp1q_u16(CODE(a), CODE(b)), cd = vuzp1q_u16(CODE(c), CODE(d));
    return vuzp1q_u8(vreinterpretq_u8_u16(ab), vreinterpretq_u8_u16(cd));
#undef CODE
}

OCT_INLINE void store_codes(uint8_t *to, bytes codes, const int i)
{
    const uint32_t four = vreinterpretq_u32_u8(codes)[i];
    memcpy(to, &four, sizeof four);
}

OCT_INLINE floats larger(floats a, floats b)
{
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}

OCT_INLINE floats smaller(floats a, floats b)
{
    return vbslq_f32(vcltq_f32(a, b), a, b);
}

OCT_INLINE uint32_t pass_of(floats v, floats lo, floats hi, floats floor, floats six)
{
    const uint32x4_t bit = {1, 2, 4, 8};
    const float32x4_t r = vrndnq_f32(v);
    const uint32x4_t inside = vandq_u32(vcgeq_f32(r, lo), vcleq_f32(r, hi));
    const uint32x4_t active = vandq_u32(vcgtq_f32(v, floor), vcltq_f32(v, six));
    return vaddvq_u32(vandq_u32(vandq_u32(inside, active), bit));
}
#endif

/* Where the codes of a vector go: from `channel` on there are `left` channels. */
typedef struct place {
    int64_t channel, left;
    uint8_t *to;
} place;

OCT_INLINE floats values_at(const coder *z, lanes sum, place at)
{
    return z->q->addend ? values_of(z, true, sum, at.channel, at.to)
                        : values_of(z, false, sum, at.channel, at.to);
}

/* Makes codes of the channels that exist of a vector, one by one. */
static __attribute__((noinline)) void store_few(const coder *z, lanes sum, place at)
{
    const oct_requant_limits limits = oct_requant_limits_of(z->q);
    for (int64_t i = 0; i < at.left && i < LANES; i++) {
        bool pass;
        const float v = oct_requant_value(z->q, at.to - z->codes + i, at.channel + i, sum[i]);
        at.to[i] = oct_requant_one(v, &limits, &pass);
    }
}

/* Makes codes of 1 to 4 vectors of sums. From one to the next there are `channels` channels and `step` codes. */
OCT_INLINE void store_vectors(const int vectors, const coder *z, place at, const int64_t channels,
                              int64_t step, lanes s0, lanes s1, lanes s2, lanes s3)
{
#define PLACE(i) ((place){at.channel + (i)*channels, at.left - (i)*channels, at.to + (i)*step})
#define VALUES(i) values_at(z, s##i, PLACE(i))
    if (at.left - (vectors - 1) * channels < LANES) {
        store_few(z, s0, at);
        if (vectors > 1) store_few(z, s1, PLACE(1));
        if (vectors > 2) store_few(z, s2, PLACE(2));
        if (vectors > 3) store_few(z, s3, PLACE(3));
        return;
    }
    const floats v0 = VALUES(0), v1 = vectors > 1 ? VALUES(1) : v0;
    const bytes codes =
        codes_of(z, v0, v1, vectors > 2 ? VALUES(2) : v0, vectors > 3 ? VALUES(3) : v1);
    if (vectors == 4 && channels > 0) {
        memcpy(at.to, &codes, sizeof codes);
        return;
    }
    store_codes(at.to, codes, 0);
    if (vectors > 1) store_codes(at.to + step, codes, 1);
    if (vectors > 2) store_codes(at.to + 2 * step, codes, 2);
    if (vectors > 3) store_codes(at.to + 3 * step, codes, 3);
#undef PLACE
#undef VALUES
}

/* PANEL_STORE (core/product/panel.h). */
OCT_INLINE void store_row(const int panels, const oct_product *p, int64_t column, uint8_t *to,
                          lanes s0, lanes s1, lanes s2, lanes s3)
{
    const place at = {column, p->n - column, to};
    store_vectors(panels, p->epilogue, at, LANES, LANES, s0, s1, s2, s3);
}

/* Codes of the sums of 1 or 4 positions, of LANES channels from `channel` on; element `at` is the first (simd_table.h). */
OCT_INLINE void store_positions(const int positions, const oct_depthwise *d, int64_t channel,
                                int64_t at, lanes s0, lanes s1, lanes s2, lanes s3)
{
    const place first = {channel, d->channels - channel, d->codes + at};
    store_vectors(positions, d->epilogue, first, 0, d->channels, s0, s1, s2, s3);
}

/* A call of the requantizer: its constants, and what it has found. */
typedef struct requantizer {
    coder constants;
    oct_requant_limits limits;
    floats lo, hi, floor, six, least, most;
    float range[2]; /* of values outside of vectors */
    oct_bit_writer bits;
} requantizer;

OCT_INLINE floats everywhere(float value)
{
    return (floats){0} + value;
}

/* What is made beside codes: the bits of the gradient's mask, the range of v; added: v has a second addend. */
typedef struct made {
    bool masked, ranged, added;
} made;

/* Requantizes 1, 2 or 4 vectors of neighbouring accumulators. */
OCT_INLINE void requantize_vectors(const int vectors, const made kind, const int32_t *acc,
                                   int64_t channel, uint8_t *to, requantizer *z)
{
    floats v[4];
    for (int i = 0; i < vectors; i++)
        v[i] = values_of(&z->constants, kind.added, read_lanes(acc + i * LANES, LANES),
                         channel + i * LANES, to + i * LANES);
    const bytes codes = codes_of(&z->constants, v[0], v[vectors > 1 ? 1 : 0],
                                 v[vectors > 2 ? 2 : 0], v[vectors > 2 ? 3 : 0]);
    if (vectors == 4)
        memcpy(to, &codes, sizeof codes);
    else
        for (int i = 0; i < vectors; i++)
            store_codes(to + i * LANES, codes, i);
    for (int i = 0; i < vectors; i++) {
        if (kind.masked)
            oct_bits_put(&z->bits, pass_of(v[i], z->lo, z->hi, z->floor, z->six), LANES);
        if (kind.ranged) {
            const floats clipped = smaller(larger(v[i], z->floor), z->six);
            z->least = smaller(clipped, z->least);
            z->most = larger(clipped, z->most);
        }
    }
}

/* The same of one accumulator, whose code is code i of the call. */
OCT_INLINE void requantize_one(const made kind, int32_t acc, int64_t channel, int64_t i,
                               uint8_t *to, requantizer *z)
{
    const float v = oct_requant_value(z->constants.q, i, channel, acc);
    bool pass;
    *to = oct_requant_one(v, &z->limits, &pass);
    if (kind.masked) oct_bits_put(&z->bits, pass, 1);
    if (kind.ranged) {
        const float clipped = oct_requant_clip(v, &z->limits);
        oct_requant_range_merge(z->range, clipped, clipped);
    }
}

/* Makes codes of rows of accumulators (oct_requant). */
OCT_INLINE void requantize_as(const bool masked, const bool ranged, const bool added,
                              const oct_acc_rows *rows, const oct_requant *q)
{
    const int64_t n = rows->n;
    const int32_t *acc = rows->acc;
    uint8_t *to = rows->y;
    const oct_requant own = *q; /* which no write of codes can change */
    const made kind = {masked, ranged, added};
    const oct_requant_limits limits = oct_requant_limits_of(q);
    requantizer z = {.constants = coder_of(&own, rows->y),
                     .limits = limits,
                     .lo = everywhere(limits.lo),
                     .hi = everywhere(limits.hi),
                     .floor = everywhere(limits.floor),
                     .six = everywhere(limits.six),
                     .least = everywhere(INFINITY),
                     .most = everywhere(-INFINITY),
                     .range = {INFINITY, -INFINITY},
                     .bits = {.out = rows->mask}};
    for (int64_t i = 0; i < rows->m; i++, acc += n, to += n) {
        int64_t c = 0;
        for (; c + 4 * LANES <= n; c += 4 * LANES)
            requantize_vectors(4, kind, acc + c, c, to + c, &z);
        for (; c + 2 * LANES <= n; c += 2 * LANES)
            requantize_vectors(2, kind, acc + c, c, to + c, &z);
        for (; c + LANES <= n; c += LANES)
            requantize_vectors(1, kind, acc + c, c, to + c, &z);
        for (; c < n; c++)
            requantize_one(kind, acc[c], c, i * n + c, to + c, &z);
    }
    if (masked) oct_bits_end(&z.bits);
    if (ranged) {
        for (int lane = 0; lane < LANES; lane++)
            oct_requant_range_merge(rows->range, z.least[lane], z.most[lane]);
        oct_requant_range_merge(rows->range, z.range[0], z.range[1]);
        oct_requant_range_end(q, n, rows->range);
    }
}
