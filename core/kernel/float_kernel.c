/* The choice of a table is a pure function of the set of instruction sets. */
#include "core/kernel/float_kernel.h"

#include "core/kernel/blas.h"

#include <stdlib.h>
#include <string.h>

static const oct_float_kernel *const kernels[] = {
#define OCT_FLOAT_KERNEL(ISA, isa) &oct_float_kernel_##isa,
#include "core/kernel/float_kernel_list.def"
#undef OCT_FLOAT_KERNEL
};

const oct_float_kernel *oct_float_kernel_select(oct_isa_set have)
{
    size_t i = 0;
    for (; i + 1 < OCT_COUNT(kernels); i++) {
        const oct_float_kernel *kernel = kernels[i];
        const bool there =
            oct_isa_has(have, kernel->isa) && (!kernel->present || kernel->present());
        if (there && (!kernel->pays || kernel->pays())) break;
    }
    return kernels[i];
}

const oct_float_kernel *oct_float_kernel_here(void)
{
    return oct_float_kernel_select(oct_cpu_isa());
}

const char *oct_float_kernel_name(void)
{
    const oct_float_kernel *kernel = oct_float_kernel_here();
    return kernel == &oct_float_kernel_blas ? oct_blas_name() : kernel->name;
}

oct_status oct_float_kernel_check(void)
{
    const char *word = getenv("OCT_ISA");
    if (!word || strcmp(word, oct_isa_name(OCT_ISA_BLAS)) != 0) return OCT_OK;
    if (oct_blas_init() != OCT_OK) return oct_fail_prefix("OCT_ISA=%s", word);
    OCT_CHECK(
        oct_float_kernel_here() == &oct_float_kernel_blas, OCT_RESOURCE,
        "OCT_ISA=%s: equal rows of a product do not have equal bits with %s, so that ranks and "
        "threads would change results; leave OCT_ISA out",
        word, oct_blas_name());
    return OCT_OK;
}

static const void *const numerics_words[] = {OCT_NUMERICS_LIST(OCT_WORD_ITEM)};
const oct_registry oct_numerics_table = OCT_REGISTRY("numerics", numerics_words);

static const void *const float_numerics_words[] = {OCT_FLOAT_NUMERICS_LIST(OCT_WORD_ITEM)};
const oct_registry oct_float_numerics_table = OCT_REGISTRY("float.numerics", float_numerics_words);

const char *oct_numerics_name(oct_numerics numerics)
{
    return oct_registry_name(&oct_numerics_table, numerics);
}
