/* AVX-512 VNNI kernels: vpdpbusd sums four products u8 x s8 exactly into int32.
 *
 * Product: panels of 16 columns, [N/16][K/4][16][4]. A register block is up to 8 rows by 4 panels
 * (6 x 64, 8 x 48, 8 x 32, 8 x 16): one 4-byte broadcast of a row serves all its panels, and there are
 * enough independent sums to hide the instruction's latency.
 *
 * Depthwise: 64 channels at a time; the codes of four taps are interleaved by unpacking so that each
 * int32 lane holds the four taps of one channel. Unpacking works inside 128-bit lanes: vector v, lane l
 * holds channels 16 l + 4 v .. + 3, an order that the weights follow and that a transpose of lanes
 * undoes at the end.
 */
#include "quant/kernel/bits.h"
#include "quant/kernel/requant.h"
#include "quant/kernel/simd.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

enum { PANEL = 16, MAX_ROWS = 8 };

INLINE __mmask16 first_lanes(int64_t count)
{
    return (__mmask16)(count >= 16 ? 0xffffu : (1u << count) - 1);
}

/* Sums are vectors of int32 by type too: as __m512i, whose elements have 64 bits, the compiler holds
 * each of them in two registers and spills. */
typedef int32_t lanes __attribute__((vector_size(64)));

INLINE lanes broadcast4(const uint8_t *x)
{
    int32_t four;
    memcpy(&four, x, 4);
    return (lanes)_mm512_set1_epi32(four);
}

INLINE lanes load_lanes(const int8_t *w)
{
    return (lanes)_mm512_loadu_si512(w);
}

INLINE lanes add_product(lanes sum, lanes code, lanes w)
{
    return (lanes)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)code, (__m512i)w);
}

INLINE void store_lanes(int32_t *acc, int64_t columns, lanes sum)
{
    _mm512_mask_storeu_epi32(acc, first_lanes(columns), (__m512i)sum);
}

static void pack_tile(const int8_t *tile, int8_t *packed)
{
    memcpy(packed, tile, PANEL * 4);
}

/* What the blocks of a group of panels read and write. */
typedef struct block {
    const oct_taps *taps;
    const int8_t *panel;  /* of the first column */
    int64_t panel_stride; /* bytes */
    int64_t ldc;
    int64_t columns; /* of acc from the first column on */
} block;

/* One row of a block: a vector for each panel. */
typedef struct quad {
    lanes p0, p1, p2, p3;
} quad;

INLINE quad load_panels(const int panels, const int8_t *w, int64_t stride)
{
    const lanes zero = {0};
    return (quad){load_lanes(w), panels > 1 ? load_lanes(w + stride) : zero,
                  panels > 2 ? load_lanes(w + 2 * stride) : zero,
                  panels > 3 ? load_lanes(w + 3 * stride) : zero};
}

INLINE void add_products(const int panels, quad *sum, lanes code, const quad *w)
{
    sum->p0 = add_product(sum->p0, code, w->p0);
    if (panels > 1) sum->p1 = add_product(sum->p1, code, w->p1);
    if (panels > 2) sum->p2 = add_product(sum->p2, code, w->p2);
    if (panels > 3) sum->p3 = add_product(sum->p3, code, w->p3);
}

INLINE void store_sums(const int panels, const quad *sum, int32_t *acc, int64_t columns)
{
    store_lanes(acc, columns, sum->p0);
    if (panels > 1) store_lanes(acc + 16, columns - 16, sum->p1);
    if (panels > 2) store_lanes(acc + 32, columns - 32, sum->p2);
    if (panels > 3) store_lanes(acc + 48, columns - 48, sum->p3);
}

/* A block of rows x panels sums. Rows are spelled out instead of being an array, which the compiler
 * would keep in memory. */
INLINE void multiply(const int rows, const int panels, const block *b, const uint8_t *const *row,
                     int32_t *acc)
{
#define EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define START(r)                                                                                   \
    quad sum##r = {zero, zero, zero, zero};                                                        \
    const uint8_t *x##r = NULL;
#define AIM(r)                                                                                     \
    if (r < rows) x##r = row[r] + offset;
#define STEP(r)                                                                                    \
    if (r < rows) add_products(panels, &sum##r, broadcast4(x##r + at), &w);
#define STORE(r)                                                                                   \
    if (r < rows) store_sums(panels, &sum##r, acc + r * b->ldc, b->columns);

    const lanes zero = {0};
    const int64_t stride = b->panel_stride, k = (b->taps->k + 3) & ~(int64_t)3;
    const int8_t *tile = b->panel;
    EACH_ROW(START)
    for (int64_t t = 0; t < b->taps->count; t++) {
        const int64_t offset = b->taps->offset[t];
        EACH_ROW(AIM)
        for (int64_t at = 0; at < k; at += 4, tile += PANEL * 4) {
            const quad w = load_panels(panels, tile, stride);
            EACH_ROW(STEP)
        }
    }
    EACH_ROW(STORE)
#undef EACH_ROW
#undef START
#undef AIM
#undef STEP
#undef STORE
}

/* A function for each shape, so that the compiler gives registers to one at a time. */
typedef void multiply_fn(const block *b, const uint8_t *const *row, int32_t *acc);

#define MULTIPLY(rows, panels)                                                                     \
    static __attribute__((noinline)) void multiply_##rows##x##panels(                              \
        const block *b, const uint8_t *const *row, int32_t *acc)                                   \
    {                                                                                              \
        multiply(rows, panels, b, row, acc);                                                       \
    }
#define MULTIPLY_ROWS(panels)                                                                      \
    MULTIPLY(1, panels)                                                                            \
    MULTIPLY(2, panels)                                                                            \
    MULTIPLY(3, panels)                                                                            \
    MULTIPLY(4, panels)                                                                            \
    MULTIPLY(5, panels)                                                                            \
    MULTIPLY(6, panels)                                                                            \
    MULTIPLY(7, panels)                                                                            \
    MULTIPLY(8, panels)
MULTIPLY_ROWS(1)
MULTIPLY_ROWS(2)
MULTIPLY_ROWS(3)
MULTIPLY_ROWS(4)
#define ROWS_OF(panels)                                                                            \
    {                                                                                              \
        multiply_1x##panels, multiply_2x##panels, multiply_3x##panels, multiply_4x##panels,        \
            multiply_5x##panels, multiply_6x##panels, multiply_7x##panels, multiply_8x##panels     \
    }
static multiply_fn *const multiply_of[4][MAX_ROWS] = {ROWS_OF(1), ROWS_OF(2), ROWS_OF(3),
                                                      ROWS_OF(4)};

static void conv(int64_t m, int64_t n, const oct_taps *taps, const uint8_t *const *rows,
                 const int8_t *packed, int32_t *acc, int64_t ldc)
{
    const int64_t panel_stride = taps->count * ((taps->k + 3) / 4) * (PANEL * 4);
    for (int64_t column = 0, left = (n + PANEL - 1) / PANEL, take; left > 0;
         left -= take, column += take * PANEL) {
        take = left == 5 ? 3 : left < 4 ? left : 4;
        const block b = {.taps = taps,
                         .panel = packed + column / PANEL * panel_stride,
                         .panel_stride = panel_stride,
                         .ldc = ldc,
                         .columns = n - column};
        const int64_t most = take == 4 ? 6 : MAX_ROWS;
        for (int64_t i = 0, count; i < m; i += count) {
            count = m - i < most ? m - i : most;
            multiply_of[take - 1][count - 1](&b, rows + i, acc + i * ldc + column);
        }
    }
}

enum { LANES = 4, DEEP = OCT_INTERLEAVED(LANES) }; /* channels of a depthwise block */

static int64_t depthwise_bytes(int64_t channels, int64_t taps)
{
    return oct_interleaved_bytes(LANES, channels, taps);
}

static void depthwise_pack(int64_t channels, int64_t taps, const int8_t *w, int8_t *packed)
{
    oct_interleaved_pack(LANES, channels, taps, w, packed);
}

/* One output position, up to 64 channels from x on. */
INLINE void depthwise_block(const oct_taps *taps, const uint8_t *x, __mmask64 live, const int8_t *w,
                            int64_t channels, int32_t *acc)
{
    const __m512i none = _mm512_setzero_si512();
    __m512i sum0 = none, sum1 = none, sum2 = none, sum3 = none;
    for (int64_t t = 0; t < taps->count; t += 4, w += DEEP * 4) {
        const int64_t left = taps->count - t, *at = taps->offset + t;
        const __m512i a = _mm512_maskz_loadu_epi8(live, x + at[0]);
        const __m512i b = left > 1 ? _mm512_maskz_loadu_epi8(live, x + at[1]) : none;
        const __m512i c = left > 2 ? _mm512_maskz_loadu_epi8(live, x + at[2]) : none;
        const __m512i d = left > 3 ? _mm512_maskz_loadu_epi8(live, x + at[3]) : none;
        const __m512i ab_low = _mm512_unpacklo_epi8(a, b), ab_high = _mm512_unpackhi_epi8(a, b);
        const __m512i cd_low = _mm512_unpacklo_epi8(c, d), cd_high = _mm512_unpackhi_epi8(c, d);
        sum0 =
            _mm512_dpbusd_epi32(sum0, _mm512_unpacklo_epi16(ab_low, cd_low), _mm512_loadu_si512(w));
        sum1 = _mm512_dpbusd_epi32(sum1, _mm512_unpackhi_epi16(ab_low, cd_low),
                                   _mm512_loadu_si512(w + 64));
        sum2 = _mm512_dpbusd_epi32(sum2, _mm512_unpacklo_epi16(ab_high, cd_high),
                                   _mm512_loadu_si512(w + 128));
        sum3 = _mm512_dpbusd_epi32(sum3, _mm512_unpackhi_epi16(ab_high, cd_high),
                                   _mm512_loadu_si512(w + 192));
    }
    /* Transpose of 4 x 4 lanes: lane l of the four sums is channels 16 l to 16 l + 15. */
    const __m512i low01 = _mm512_shuffle_i32x4(sum0, sum1, 0x44);
    const __m512i low23 = _mm512_shuffle_i32x4(sum2, sum3, 0x44);
    const __m512i high01 = _mm512_shuffle_i32x4(sum0, sum1, 0xee);
    const __m512i high23 = _mm512_shuffle_i32x4(sum2, sum3, 0xee);
    _mm512_mask_storeu_epi32(acc, first_lanes(channels), _mm512_shuffle_i32x4(low01, low23, 0x88));
    if (channels > 16)
        _mm512_mask_storeu_epi32(acc + 16, first_lanes(channels - 16),
                                 _mm512_shuffle_i32x4(low01, low23, 0xdd));
    if (channels > 32)
        _mm512_mask_storeu_epi32(acc + 32, first_lanes(channels - 32),
                                 _mm512_shuffle_i32x4(high01, high23, 0x88));
    if (channels > 48)
        _mm512_mask_storeu_epi32(acc + 48, first_lanes(channels - 48),
                                 _mm512_shuffle_i32x4(high01, high23, 0xdd));
}

static void depthwise(int64_t m, int64_t channels, const oct_taps *taps, const uint8_t *const *rows,
                      const int8_t *packed, int32_t *acc)
{
    const int64_t block_bytes = oct_interleaved_bytes(LANES, DEEP, taps->count);
    for (int64_t c = 0; c < channels; c += DEEP, packed += block_bytes) {
        const int64_t left = channels - c < DEEP ? channels - c : DEEP;
        const __mmask64 live = ~(__mmask64)0 >> (DEEP - left);
        for (int64_t i = 0; i < m; i++)
            depthwise_block(taps, rows[i] + c, live, packed, left, acc + i * channels + c);
    }
}

INLINE void requantize_as(const bool masked, const bool ranged, int64_t m, int64_t n,
                          const int32_t *acc, const oct_requant *q, uint8_t *codes, uint8_t *mask,
                          float *range)
{
    const oct_requant_limits limits = oct_requant_limits_of(q);
    const __m512 lo = _mm512_set1_ps(limits.lo), hi = _mm512_set1_ps(limits.hi);
    const __m512 floor = _mm512_set1_ps(limits.floor), six = _mm512_set1_ps(limits.six);
    const __m512i zero_point = _mm512_set1_epi32(limits.zero_point);
    __m512 least = _mm512_set1_ps(INFINITY), most = _mm512_set1_ps(-INFINITY);
    oct_bit_writer bits = {.out = mask};
    for (int64_t i = 0; i < m; i++) {
        for (int64_t c = 0; c < n; c += 16, acc += 16, codes += 16) {
            const int count = n - c < 16 ? (int)(n - c) : 16;
            const __mmask16 live = first_lanes(count);
            const __m512i sum = _mm512_add_epi32(_mm512_maskz_loadu_epi32(live, acc),
                                                 _mm512_maskz_loadu_epi32(live, q->bias + c));
            const __m512 v = _mm512_mul_ps(_mm512_cvtepi32_ps(sum),
                                           _mm512_maskz_loadu_ps(live, q->multiplier + c));
            const __m512 r = _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
            const __m512i code = _mm512_add_epi32(
                _mm512_cvtps_epi32(_mm512_min_ps(_mm512_max_ps(r, lo), hi)), zero_point);
            if (count == 16)
                _mm_storeu_si128((__m128i *)(void *)codes, _mm512_cvtepi32_epi8(code));
            else
                _mm_mask_storeu_epi8(codes, live, _mm512_cvtepi32_epi8(code));
            if (masked) {
                __mmask16 pass = _mm512_mask_cmp_ps_mask(live, r, lo, _CMP_GE_OQ);
                pass = _mm512_mask_cmp_ps_mask(pass, r, hi, _CMP_LE_OQ);
                pass = _mm512_mask_cmp_ps_mask(pass, v, floor, _CMP_GT_OQ);
                pass = _mm512_mask_cmp_ps_mask(pass, v, six, _CMP_LT_OQ);
                oct_bits_put(&bits, pass, count);
            }
            if (ranged) {
                const __m512 clipped = _mm512_min_ps(_mm512_max_ps(v, floor), six);
                least = _mm512_mask_min_ps(least, live, clipped, least);
                most = _mm512_mask_max_ps(most, live, clipped, most);
            }
        }
        acc -= (16 - n % 16) % 16;
        codes -= (16 - n % 16) % 16;
    }
    if (masked) oct_bits_end(&bits);
    if (ranged) {
        oct_requant_range_merge(range, _mm512_reduce_min_ps(least), _mm512_reduce_max_ps(most));
        oct_requant_range_end(q, n, range);
    }
}

OCT_REQUANTIZE(requantize_as)

const oct_kernel oct_kernel_avx512vnni = {
    .isa = OCT_ISA_AVX512VNNI,
    .name = "avx512vnni",
    .col_tile = PANEL,
    .k_tile = 4,
    .tile_bytes = PANEL * 4,
    .pack_tile = pack_tile,
    .conv = conv,
    .depthwise_bytes = depthwise_bytes,
    .depthwise_pack = depthwise_pack,
    .depthwise = depthwise,
    .requantize = requantize,
};
