/* The choice of a table is a pure function of the set of instruction sets. */
#include "core/kernel/float_kernel.h"

static const oct_float_kernel *const kernels[] = {
#define OCT_FLOAT_KERNEL(ISA, isa) &oct_float_kernel_##isa,
#include "core/kernel/float_kernel_list.def"
#undef OCT_FLOAT_KERNEL
};

const oct_float_kernel *oct_float_kernel_select(oct_isa_set have)
{
    size_t i = 0;
    while (i + 1 < OCT_COUNT(kernels) && !oct_isa_has(have, kernels[i]->isa))
        i++;
    return kernels[i];
}

const oct_float_kernel *oct_float_kernel_here(void)
{
    return oct_float_kernel_select(oct_cpu_isa());
}

static const void *const numerics_words[] = {OCT_NUMERICS_LIST(OCT_WORD_ITEM)};
const oct_registry oct_numerics_table = OCT_REGISTRY("numerics", numerics_words);

const char *oct_numerics_name(oct_numerics numerics)
{
    return oct_registry_name(&oct_numerics_table, numerics);
}
