/* This table is avx512's, with tiles for bfloat16: tdpbf16ps adds a block of 16 rows and 16 columns to their sums, and
 * so defines the order of all tables (float_kernel.h). */
#include "core/kernel/float_impl.h"

#define TILE_NAME bf16
#define TILE_MADD(sum, a, b) _tile_dpbf16ps(sum, a, b)
#include "core/product/tile.h"

_Static_assert(2 * TILE_DEPTH == OCT_BF16_BLOCK, "a tile is a block");

const oct_float_kernel oct_float_kernel_amx = {
    .isa = OCT_ISA_AMX,
    .name = "amx",
    .col_tile = TILE_COLUMNS,
    .bf16_words = OCT_BF16_NEIGHBOURS,
    .f32 = oct_product_f32_avx512,
    .bf16 = bf16,
};
