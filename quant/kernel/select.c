/* Choice of a kernel table and the packing of weights for it. Choosing is a pure function of the set
 * of instruction sets, so the choice for a machine that nobody has is a unit test. */
#include "quant/kernel/kernel.h"

#include <string.h>

static const oct_kernel *const kernels[] = {
#define OCT_KERNEL(ISA, isa) &oct_kernel_##isa,
#include "quant/kernel/kernel_list.def"
#undef OCT_KERNEL
};

const oct_kernel *oct_kernel_select(oct_isa_set have)
{
    size_t i = 0;
    while (i + 1 < OCT_COUNT(kernels) && !oct_isa_has(have, kernels[i]->isa))
        i++;
    return kernels[i];
}

const oct_kernel *oct_kernel_here(void)
{
    return oct_kernel_select(oct_cpu_isa());
}

static int64_t tiles_of(int64_t count, int tile)
{
    return (count + tile - 1) / tile;
}

int64_t oct_packed_taps_bytes(const oct_kernel *kernel, int64_t n, int64_t taps, int64_t k)
{
    return tiles_of(n, kernel->col_tile) * taps * tiles_of(k, kernel->k_tile) * kernel->tile_bytes;
}

/* Panels of col_tile columns; in a panel the k tiles one after another, run by run. */
void oct_pack_taps(const oct_kernel *kernel, int64_t n, int64_t taps, int64_t k, const int8_t *w,
                   int8_t *packed)
{
    enum { LARGEST_TILE = 256 };
    int8_t tile[LARGEST_TILE];
    int cols = kernel->col_tile, depth = kernel->k_tile;
    OCT_ASSERT(cols * depth <= LARGEST_TILE);
    for (int64_t col = 0; col < n; col += cols) {
        for (int64_t run = 0; run < taps * k; run += k) {
            for (int64_t at = 0; at < k; at += depth) {
                memset(tile, 0, sizeof tile);
                for (int64_t c = 0; c < cols && col + c < n; c++)
                    for (int64_t d = 0; d < depth && at + d < k; d++)
                        tile[c * depth + d] = w[(col + c) * taps * k + run + at + d];
                kernel->pack_tile(tile, packed);
                packed += kernel->tile_bytes;
            }
        }
    }
}

int64_t oct_packed_bytes(const oct_kernel *kernel, int64_t n, int64_t k)
{
    return oct_packed_taps_bytes(kernel, n, 1, k);
}

void oct_pack_weights(const oct_kernel *kernel, int64_t n, int64_t k, const int8_t *w,
                      int8_t *packed)
{
    oct_pack_taps(kernel, n, 1, k, w, packed);
}
