/* octet bench kernels: integer products by every instruction set of this processor. */
#include "launch/bench/bench.h"

#include "core/base/mem.h"
#include "core/base/text.h"
#include "quant/kernel/kernel.h"

#include <string.h>

static const struct {
    const char *name;
    int64_t m, n, k;
} products[] = {
    {"conv 3x3 16-16 on 32x32", 1024, 16, 144},    {"conv 3x3 32-32 on 28x28", 784, 32, 288},
    {"conv 3x3 64-64 on 14x14", 196, 64, 576},     {"conv 1x1 64-128 on 16x16", 256, 128, 64},
    {"linear 3136-128, 64 images", 64, 128, 3136}, {"product 512x512x512", 512, 512, 512},
};

static oct_status bench_product(oct_bench *bench, const oct_kernel *kernel, size_t product)
{
    int64_t m = products[product].m, n = products[product].n, k = products[product].k;
    int64_t lda = (k + kernel->k_tile - 1) / kernel->k_tile * kernel->k_tile, calls = 0;
    uint8_t *a = NULL;
    int8_t *w = NULL, *packed = NULL;
    int32_t *acc = NULL;
    oct_status status = OCT_OK;
    OCT_TRY_OUT(oct_alloc(&a, (size_t)m, (size_t)lda));
    OCT_TRY_OUT(oct_alloc(&w, (size_t)n, (size_t)k));
    OCT_TRY_OUT(oct_alloc(&packed, (size_t)oct_packed_bytes(kernel, n, k), 1));
    OCT_TRY_OUT(oct_alloc(&acc, (size_t)m, (size_t)n * sizeof(int32_t)));
    memset(a, 3, (size_t)(m * lda));
    memset(w, 2, (size_t)(n * k));
    oct_pack_weights(kernel, n, k, w, packed);
    oct_gemm(kernel, m, n, k, a, lda, packed, acc, n);
    double begin = oct_seconds(), seconds = 0;
    for (; seconds < 0.05; seconds = oct_seconds() - begin, calls++)
        oct_gemm(kernel, m, n, k, a, lda, packed, acc, n);
    double gops = 2e-9 * (double)(m * n * k) * (double)calls / seconds;
    status =
        oct_bench_give(bench,
                       json_pack("{s:s, s:s, s:s, s:f}", "bench", "kernels", "isa", kernel->name,
                                 "product", products[product].name, "gops", gops),
                       "%-12s %-28s %8.1f Gop/s", kernel->name, products[product].name, gops);
out:
    oct_free(&a);
    oct_free(&w);
    oct_free(&packed);
    oct_free(&acc);
    return status;
}

oct_status oct_bench_kernels(oct_bench *bench)
{
    static const oct_isa isas[] = {OCT_ISA_REF, OCT_ISA_AVX2, OCT_ISA_AVX512VNNI};
    for (size_t i = 0; i < OCT_COUNT(isas); i++) {
        oct_isa_set set = 1U << isas[i] | 1U << OCT_ISA_REF;
        if (!oct_isa_has(oct_cpu_isa(), isas[i])) continue;
        for (size_t p = 0; p < OCT_COUNT(products); p++)
            OCT_TRY(bench_product(bench, oct_kernel_select(set), p));
    }
    return OCT_OK;
}
