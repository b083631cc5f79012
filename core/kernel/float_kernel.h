/* Float kernels are a table of functions for each instruction set, best first in float_kernel_list.def,
 * the scalar reference last. Choice is a pure function of the instruction set.
 *
 * All tables but that of OpenBLAS, which is used where there is none for the processor, give the same bits: float
 * products are fused multiply-adds (one rounding) in the order of the words; bfloat16 products are those of
 * VDPBF16PS: of each pair the second first, each a fused multiply-add of exact products, round to nearest even, denormals
 * as zeros. A machine without that instruction computes the same with floats: its words of bfloat16 operands are floats
 * that hold rounded values, two words a pair with the second element first.
 */
#pragma once

#include "core/base/cpu.h"
#include "core/base/registry.h"
#include "core/product/product.h"

#define OCT_NUMERICS_LIST(X)                                                                       \
    X(OCT_NUMERICS_BF16, "bf16") /* operands of the backward of quantized layers are rounded */    \
    X(OCT_NUMERICS_F32, "f32")
typedef enum oct_numerics { OCT_NUMERICS_LIST(OCT_WORD_ID) } oct_numerics;
extern const oct_registry oct_numerics_table;

typedef struct oct_float_kernel {
    oct_isa isa;
    const char *name;
    int col_tile; /* columns of a panel; a tile is col_tile words */
    bool native_bf16;
    bool (*present)(void); /* whether what it needs besides instructions is there; NULL: nothing */
    oct_product_fn *f32;
    oct_product_fn *bf16; /* words as said above */
} oct_float_kernel;

#define OCT_FLOAT_KERNEL(ISA, isa) extern const oct_float_kernel oct_float_kernel_##isa;
#include "core/kernel/float_kernel_list.def"
#undef OCT_FLOAT_KERNEL

/* Returns the first kernel of the list that these instruction sets allow; the last is the scalar reference. */
const oct_float_kernel *oct_float_kernel_select(oct_isa_set have);
const oct_float_kernel *oct_float_kernel_here(void); /* of this machine and OCT_ISA */
/* What decides its bits, for people: "avx2", or which OpenBLAS it is. */
const char *oct_float_kernel_name(void);
/* Checks that OCT_ISA=blas can be obeyed; call once at start. */
oct_status oct_float_kernel_check(void) OCT_NODISCARD;

/* "f32", "bf16". */
const char *oct_numerics_name(oct_numerics numerics);
