/* round_half_even((float)sum * multiplier), of products of 16-bit codes in double. Layers are in kernel/epilogue.h, where
 * a second addend comes before rounding. */
#include "quant/rounding/rounding.h"

#include "core/base/cpu.h"

/* zero: what is added before rounding, `plus` it, and taken off after it. A block is not empty. */
#define PRODUCT(name, sum_t, value_t, nearest, zero, plus)                                         \
    OCT_CLONES                                                                                     \
    static void name(oct_code_block *k, float ratio)                                               \
    {                                                                                              \
        const int64_t n = k->n;                                                                    \
        const int32_t offset = (zero);                                                             \
        const value_t lo = (value_t)(k->lo + offset), hi = (value_t)(k->hi + offset);              \
        const value_t factor = (value_t)ratio;                                                     \
        int32_t *restrict a = k->a;                                                                \
        const int32_t *restrict b = k->b;                                                          \
        uint8_t *restrict flags = k->flags;                                                        \
        sum_t least = (sum_t)a[0] * b[0], most = least;                                            \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const sum_t p = (sum_t)a[i] * b[i];                                                    \
            const value_t r = nearest((value_t)p * factor plus);                                   \
            value_t cut = r > lo ? r : lo;                                                         \
            cut = cut < hi ? cut : hi;                                                             \
            a[i] = (int32_t)cut - offset;                                                          \
            flags[i] = (uint8_t)(r == cut);                                                        \
            least = p < least ? p : least;                                                         \
            most = p > most ? p : most;                                                            \
        }                                                                                          \
        if (least < k->least) k->least = least;                                                    \
        if (most > k->most) k->most = most;                                                        \
    }
/* Products of bytes have 17 bits, so their floats are exact; those of 16-bit codes have 33, which a double holds. */
PRODUCT(product_of_bytes, int32_t, float, rintf, 0, )
PRODUCT(product_offset_first, int32_t, float, rintf, k->zero_point, +(float)offset)
PRODUCT(product_wide, int64_t, double, rint, 0, )

/* Multiplies a by b and rounds to codes of the output, in place of a. */
static void product(oct_code_block *k, const oct_code_ratio *ratio)
{
    if (ratio->offset_first)
        product_offset_first(k, ratio->factor);
    else if (k->wide)
        product_wide(k, ratio->factor);
    else
        product_of_bytes(k, ratio->factor);
}

/* Rounds a * factor to codes of the output, in place of a. */
OCT_CLONES
static void rescale(oct_code_block *k, const oct_code_ratio *ratio)
{
    const int64_t n = k->n;
    const float lo = (float)k->lo, hi = (float)k->hi, factor = ratio->factor;
    int32_t *restrict a = k->a;
    uint8_t *restrict flags = k->flags;
    for (int64_t i = 0; i < n; i++) {
        const float r = rintf((float)a[i] * factor);
        float cut = r > lo ? r : lo;
        cut = cut < hi ? cut : hi;
        a[i] = (int32_t)cut;
        flags[i] = (uint8_t)(r == cut);
    }
}

const oct_rounding_row oct_rounding_float = {.adds = true, .product = product, .rescale = rescale};
