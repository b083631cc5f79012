/* The loops of a rounding by whole numbers. Who includes this has defined
 *     static inline int64_t round_sum(int64_t sum, oct_fixed ratio, bool wide_output)
 * and puts WHOLE_LOOPS into its row. LAYER_SUM(sum): what is left of a layer's sum, where that is not all of it. */
#include "core/base/cpu.h"

#ifndef LAYER_SUM
#define LAYER_SUM(sum) (sum)
#endif

#define ROWS(name, acc_t)                                                                          \
    OCT_CLONES                                                                                     \
    static void name(int64_t count, int64_t n, const void *sums, const int64_t *restrict bias,     \
                     const oct_fixed *restrict fixed, bool wide_output, double *restrict r)        \
    {                                                                                              \
        const acc_t *restrict acc = sums;                                                          \
        for (int64_t i = 0; i < count; i++, acc += n, r += n)                                      \
            for (int64_t c = 0; c < n; c++)                                                        \
                r[c] = (double)round_sum(LAYER_SUM(acc[c] + bias[c]), fixed[c], wide_output);      \
    }
ROWS(rows, int32_t)
ROWS(rows_wide, int64_t)

OCT_CLONES
static void each(int64_t n, int64_t *restrict x, oct_fixed ratio, bool wide_output)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = round_sum(x[i], ratio, wide_output);
}

OCT_CLONES
static void product(oct_code_block *k, const oct_code_ratio *ratio)
{
    const int64_t n = k->n, lo = k->lo, hi = k->hi;
    const oct_fixed fixed = ratio->fixed;
    const bool wide_output = k->wide_output;
    int32_t *restrict a = k->a;
    const int32_t *restrict b = k->b;
    uint8_t *restrict flags = k->flags;
    int64_t least = k->least, most = k->most;
    for (int64_t i = 0; i < n; i++) {
        const int64_t p = (int64_t)a[i] * b[i], r = round_sum(p, fixed, wide_output);
        int64_t cut = r < lo ? lo : r;
        cut = cut > hi ? hi : cut;
        a[i] = (int32_t)cut;
        flags[i] = (uint8_t)(r == cut);
        least = p < least ? p : least;
        most = p > most ? p : most;
    }
    k->least = least;
    k->most = most;
}

OCT_CLONES
static void rescale(oct_code_block *k, const oct_code_ratio *ratio)
{
    const int64_t n = k->n, lo = k->lo, hi = k->hi;
    const oct_fixed fixed = ratio->fixed;
    const bool wide_output = k->wide_output;
    int32_t *restrict a = k->a;
    uint8_t *restrict flags = k->flags;
    for (int64_t i = 0; i < n; i++) {
        const int64_t r = round_sum(a[i], fixed, wide_output);
        int64_t cut = r < lo ? lo : r;
        cut = cut > hi ? hi : cut;
        a[i] = (int32_t)cut;
        flags[i] = (uint8_t)(r == cut);
    }
}

#define WHOLE_LOOPS                                                                                \
    .rows = rows, .rows_wide = rows_wide, .each = each, .product = product, .rescale = rescale
