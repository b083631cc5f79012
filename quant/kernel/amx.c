/* AMX kernels: tdpbusd adds products u8 x s8 of 16 rows of 64 codes and 16 columns to 16 x 16 sums in int32. What is no
 * product of codes is that of AVX-512 VNNI, which every such machine has. */
#define OCT_SIMD_512
#include "quant/kernel/simd.h"

/* Makes codes of the sums of four rows of one panel, or of two rows of two. */
OCT_INLINE void end_rows(const int panels, const oct_product *p, int64_t column,
                         const oct_row *rows, const int32_t *sums)
{
    const coder *z = p->epilogue;
    const int64_t left = p->n - column;
    uint8_t *const to = (uint8_t *)p->acc + column;
#define LOGICAL(i, whole)                                                                          \
    logical_of(z, whole, left - (i) % panels * COLUMNS, load_lanes(sums + (i)*COLUMNS),            \
               column + (i) % panels * COLUMNS,                                                    \
               to + rows[(i) / panels].acc + (i) % panels * COLUMNS)
#define CODES_AS(whole)                                                                            \
    codes_of(z, LOGICAL(0, whole), LOGICAL(1, whole), LOGICAL(2, whole), LOGICAL(3, whole))
    const __m512i codes = left >= panels * COLUMNS ? CODES_AS(true) : CODES_AS(false);
#undef CODES_AS
#undef LOGICAL
    const __mmask64 live =
        ~(__mmask64)0 >> (64 - (left < panels * COLUMNS ? left : panels * COLUMNS));
    for (int i = 0; i < 4; i += panels) /* a row's codes are the first of those that are left */
        _mm512_mask_storeu_epi8(
            to + rows[i / panels].acc, live,
            _mm512_permutexvar_epi64(
                _mm512_setr_epi64(2 * i, 2 * i + 1, 2 * i + 2, 2 * i + 3, 0, 0, 0, 0), codes));
}

/* Makes codes of the sums of a row of 1 to 4 panels, or of the rows that have four panels together. */
OCT_INLINE void end_sums(int64_t rows, int64_t panels, const oct_product *p, int64_t column,
                         const oct_row *row, const int32_t *sums)
{
    const lanes s0 = load_lanes(sums);
    uint8_t *const to = (uint8_t *)p->acc + row->acc + column;
    if (panels == 1 && rows == 1) {
        store_row(1, p, column, to, s0, s0, s0, s0);
        return;
    }
    if (panels == 1) {
        end_rows(1, p, column, row, sums);
        return;
    }
    const lanes s1 = load_lanes(sums + COLUMNS);
    if (panels == 2 && rows == 1) {
        store_row(2, p, column, to, s0, s1, s0, s0);
        return;
    }
    if (panels == 2) {
        end_rows(2, p, column, row, sums);
        return;
    }
    const lanes s2 = load_lanes(sums + 2 * COLUMNS);
    if (panels == 3)
        store_row(3, p, column, to, s0, s1, s2, s0);
    else
        store_row(4, p, column, to, s0, s1, s2, load_lanes(sums + 3 * COLUMNS));
}

#define TILE_NAME multiply_tiles
#define TILE_MADD(sum, a, b) _tile_dpbusd(sum, a, b)
#define TILE_END end_sums
#include "core/product/tile.h"

static void product(const oct_product *p)
{
    if (tile_pays(p))
        multiply_tiles(p);
    else
        oct_kernel_avx512vnni.bytes.product(p);
}

static void product_codes(const oct_product *p, const oct_requant *q)
{
    const coder z = coder_of(q, p->acc);
    oct_product with_coder = *p;
    with_coder.epilogue = &z;
    if (tile_pays(&with_coder))
        multiply_tiles(&with_coder);
    else
        oct_kernel_avx512vnni.product_codes(p, q);
}

static int64_t depthwise_bytes(int64_t channels, int kernel_h, int kernel_w)
{
    return oct_kernel_avx512vnni.depthwise_bytes(channels, kernel_h, kernel_w);
}

static void depthwise_pack(const oct_depthwise_weights *w, int8_t *packed)
{
    oct_kernel_avx512vnni.depthwise_pack(w, packed);
}

static void depthwise(const oct_depthwise *d)
{
    oct_kernel_avx512vnni.depthwise(d);
}

static void depthwise_codes(const oct_depthwise *d, const oct_requant *q)
{
    oct_kernel_avx512vnni.depthwise_codes(d, q);
}

static void requantize(const oct_acc_rows *r, const oct_requant *q)
{
    oct_kernel_avx512vnni.requantize(r, q);
}

const oct_kernel oct_kernel_amx = {
    .isa = OCT_ISA_AMX,
    .name = "amx",
    .tiles = true,
    .bytes = {TILE_COLUMNS, TILE_PITCH, NULL, product},
    .depthwise_bytes = depthwise_bytes,
    .depthwise_pack = depthwise_pack,
    .depthwise = depthwise,
    .depthwise_pairs = true,
    .product_codes = product_codes,
    .depthwise_codes = depthwise_codes,
    .requantize = requantize,
};
