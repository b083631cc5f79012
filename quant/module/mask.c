/* Masking of gradients, eight elements a byte: floats are kept or cleared as bit patterns, which a
 * compiler turns into vector code. */
#include "quant/module/mask.h"

#include "core/base/cpu.h"

#include <string.h>

OCT_CLONES
void oct_mask_apply(const uint8_t *mask, int64_t n, float *grad)
{
    static const uint32_t bit[8] = {1, 2, 4, 8, 16, 32, 64, 128};
    int64_t whole = n / 8;
    for (int64_t i = 0; i < whole; i++) {
        uint32_t word[8];
        memcpy(word, grad + 8 * i, sizeof word);
        for (int b = 0; b < 8; b++)
            word[b] &= mask[i] & bit[b] ? UINT32_MAX : 0;
        memcpy(grad + 8 * i, word, sizeof word);
    }
    for (int64_t i = 8 * whole; i < n; i++)
        if (!(mask[i / 8] & bit[i % 8])) grad[i] = 0.0f;
}
