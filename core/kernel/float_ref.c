/* Plain loops over fmaf define the float products. */
#include "core/kernel/float_impl.h"

#include <math.h>

enum { TILE = 4 };

/* Adds the products of a row and a column to `sum`, in the order of the words. */
static float sum_column(const oct_product *p, int64_t row, int64_t column, float sum)
{
    const char *panel = (const char *)p->packed + column / TILE * p->panel_bytes;
    const float *weights = (const float *)(const void *)panel + column % TILE;
    for (const oct_run *run = p->runs; run < p->runs + p->num_runs; run++) {
        const char *x = (const char *)p->x + p->rows[row].x + run->x;
        for (int64_t i = 0; i < run->words; i++)
            sum = fmaf(((const float *)(const void *)x)[i], weights[(run->tile + i) * TILE], sum);
    }
    return sum;
}

/* acc (m, n) = or += rows * packed panels (product.h). */
static __attribute__((noinline)) void f32(const oct_product *p)
{
    for (int64_t row = 0; row < p->m; row++) {
        float *acc = (float *)p->acc + p->rows[row].acc;
        for (int64_t column = 0; column < p->n; column++)
            acc[column] = sum_column(p, row, column, p->add ? acc[column] : 0.0F);
    }
}

OCT_BF16_BY_F32

const oct_float_kernel oct_float_kernel_ref = {
    .isa = OCT_ISA_REF,
    .name = "ref",
    .col_tile = TILE,
    .native_bf16 = false,
    .f32 = f32,
    .bf16 = bf16,
};
