/* Plain loops over fmaf define the float products, and those of bfloat16 (float_kernel.h). */
#include "core/kernel/float_impl.h"

#include <math.h>

enum { TILE = 4 };

/* Adds the products of a row and a column to `sum`, in the order of the words. */
typedef float sum_fn(const oct_product *p, const char *x, const float *weights, float sum);

static float sum_words(const oct_product *p, const char *x, const float *weights, float sum)
{
    for (const oct_run *run = p->runs; run < p->runs + p->num_runs; run++) {
        const float *value = (const float *)(const void *)(x + run->x);
        for (int64_t i = 0; i < run->words; i++)
            sum = fmaf(value[i], weights[(run->tile + i) * TILE], sum);
    }
    return sum;
}

static float sum_blocks(const oct_product *p, const char *x, const float *weights, float sum)
{
    float chain[2] = {0, 0};
    int words = 0; /* of the block */
    for (const oct_run *run = p->runs; run < p->runs + p->num_runs; run++) {
        const float *value = (const float *)(const void *)(x + run->x);
        for (int64_t i = 0; i < run->words; i++) {
            float *even_odd = &chain[words % 2];
            *even_odd = fmaf(value[i], weights[(run->tile + i) * TILE], *even_odd);
            if (++words < OCT_BF16_BLOCK) continue;
            sum += chain[0] + chain[1];
            chain[0] = chain[1] = 0;
            words = 0;
        }
    }
    if (words == 0) return sum;
    return sum +
           ((chain[0] + 0.0F) + (chain[1] + 0.0F)); /* what fills the block up makes +0 of -0 */
}

/* acc (m, n) = or += rows * packed panels (product.h). */
static __attribute__((noinline)) void multiply(const oct_product *p, sum_fn *add_products)
{
    for (int64_t row = 0; row < p->m; row++) {
        float *acc = (float *)p->acc + p->rows[row].acc;
        for (int64_t column = 0; column < p->n; column++) {
            const char *panel = (const char *)p->packed + column / TILE * p->panel_bytes;
            const float *weights = (const float *)(const void *)panel + column % TILE;
            acc[column] = add_products(p, (const char *)p->x + p->rows[row].x, weights,
                                       p->add ? acc[column] : 0.0F);
        }
    }
}

static void f32(const oct_product *p)
{
    multiply(p, sum_words);
}

static void blocks(const oct_product *p)
{
    multiply(p, sum_blocks);
}
OCT_FLUSHED(bf16, blocks)

const oct_float_kernel oct_float_kernel_ref = {
    .isa = OCT_ISA_REF,
    .name = "ref",
    .col_tile = TILE,
    .bf16_words = OCT_BF16_FLOATS,
    .f32 = f32,
    .bf16 = bf16,
};
