/* Gradients are masked eight elements a byte: floats are kept or cleared as bit patterns. */
#include "quant/module/mask.h"

#include "core/base/cpu.h"

typedef uint32_t words __attribute__((vector_size(32), aligned(4), may_alias));

OCT_CLONES
void oct_mask_apply(const uint8_t *mask, int64_t n, float *grad)
{
    const words bit = {1, 2, 4, 8, 16, 32, 64, 128};
    int64_t whole = n / 8;
    for (int64_t i = 0; i < whole; i++)
        *(words *)(grad + 8 * i) &= (words)((bit & mask[i]) == bit);
    for (int64_t i = 8 * whole; i < n; i++)
        if (!(mask[i / 8] & (1U << i % 8))) grad[i] = 0.0F;
}
