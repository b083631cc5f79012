/* Choice of a kernel table: a pure function of the set of instruction sets, so the choice for a machine
 * that no machine has is a unit test. */
#include "quant/kernel/kernel.h"

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
