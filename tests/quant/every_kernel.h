/* Every kernel table, and memory for its operands. */
#pragma once

#include "core/base/mem.h"
#include "quant/kernel/kernel.h"

#include <criterion/criterion.h>

static const oct_kernel *const all_kernels[] = {
#define OCT_KERNEL(ISA, isa) &oct_kernel_##isa,
#include "quant/kernel/kernel_list.def"
#undef OCT_KERNEL
};

static inline bool runs_here(const oct_kernel *kernel)
{
    return oct_isa_has(oct_cpu_isa(), kernel->isa);
}

static inline void *room(int64_t count, size_t size)
{
    void *block = NULL;
    cr_assert_eq(oct_alloc(&block, (size_t)count, size), OCT_OK);
    return block;
}
