/* Every kernel table, and memory for its operands. The kernels for AVX-VNNI are there a second time, built
 * from the same instruction of AVX-512 VNNI, so that a machine with only that can test them. */
#pragma once

#include "core/base/mem.h"
#include "quant/kernel/kernel.h"

#include <criterion/criterion.h>

#if defined(__x86_64__)
extern const oct_kernel oct_kernel_avxvnni_evex; /* tests/support/avxvnni_evex.c */
#endif

static const oct_kernel *const all_kernels[] = {
#if defined(__x86_64__)
    &oct_kernel_avxvnni_evex,
#endif
#define OCT_KERNEL(ISA, isa) &oct_kernel_##isa,
#include "quant/kernel/kernel_list.def"
#undef OCT_KERNEL
};

static inline bool runs_here(const oct_kernel *kernel)
{
#if defined(__x86_64__)
    if (kernel == &oct_kernel_avxvnni_evex) return oct_isa_has(oct_cpu_isa(), OCT_ISA_AVX512VNNI);
#endif
    return oct_isa_has(oct_cpu_isa(), kernel->isa);
}

static inline void *room(int64_t count, size_t size)
{
    void *block = NULL;
    cr_assert_eq(oct_alloc(&block, (size_t)count, size), OCT_OK);
    return block;
}
