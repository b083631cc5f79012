/* AMX kernels: tdpbusd adds products u8 x s8 of 16 rows of 64 codes and 16 columns to 16 x 16 sums in int32. What is no
 * product of codes is that of AVX-512 VNNI, which every such machine has. */
#define OCT_SIMD_512
#include "quant/kernel/simd.h"

/* Makes codes of a row's sums of 1 to 4 panels. */
INLINE void end_row(int64_t panels, const oct_product *p, int64_t column, uint8_t *to,
                    const int32_t *sums)
{
    const lanes s0 = load_lanes(sums);
    if (panels == 1) {
        store_row(1, p, column, to, s0, s0, s0, s0);
        return;
    }
    const lanes s1 = load_lanes(sums + COLUMNS);
    if (panels == 2) {
        store_row(2, p, column, to, s0, s1, s0, s0);
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
#define TILE_END end_row
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
    if (!tile_pays(p)) {
        oct_kernel_avx512vnni.product_codes(p, q);
        return;
    }
    const coder z = coder_of(q, p->acc);
    oct_product with_coder = *p;
    with_coder.epilogue = &z;
    multiply_tiles(&with_coder);
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
