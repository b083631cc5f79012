/* Float kernels are a table of functions for each instruction set, best first in float_kernel_list.def,
 * the scalar reference last. Choice is a pure function of the instruction set.
 *
 * All tables but that of OpenBLAS, which is used where there is none for the processor, give the same bits. Float
 * products are fused multiply-adds (one rounding) in the order of the words.
 *
 * Bfloat16 products are those of TDPBF16PS (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2). The
 * elements of a row are counted along its runs, and 32 of them are a block:
 *
 *     even = fma(x[30], w[30], ... fma(x[2], w[2], fma(x[0], w[0], +0)))    chains of a block
 *     odd  = fma(x[31], w[31], ... fma(x[3], w[3], fma(x[1], w[1], +0)))
 *     sum  = sum + (even + odd)
 *
 * rounded to nearest even, with denormals as zeros wherever they go in or come out. A last block with fewer elements is
 * filled up with zeros. A call of a product begins with a new block, and so does every tap or line with a quad: it has a
 * multiple of four elements, filled up with zeros, in every table.
 */
#pragma once

#include "core/base/cpu.h"
#include "core/base/registry.h"
#include "core/product/product.h"

#define OCT_NUMERICS_LIST(X)                                                                       \
    X(OCT_NUMERICS_BF16, "bf16") /* operands of the backward of quantized layers are rounded */    \
    X(OCT_NUMERICS_F32, "f32")                                                                     \
    X(OCT_NUMERICS_INT8, "int8") /* gradients are codes, products those of codes */
typedef enum oct_numerics { OCT_NUMERICS_LIST(OCT_WORD_ID) } oct_numerics;
extern const oct_registry oct_numerics_table;

/* What the float phase multiplies in. */
#define OCT_FLOAT_NUMERICS_LIST(X)                                                                 \
    X(OCT_FLOAT_F32, "f32")                                                                        \
    X(OCT_FLOAT_BF16, "bf16") /* operands of forward and backward are rounded */
typedef enum oct_float_numerics { OCT_FLOAT_NUMERICS_LIST(OCT_WORD_ID) } oct_float_numerics;
extern const oct_registry oct_float_numerics_table;

/* How the words of a table hold a quad, four elements of a row of bfloat16. */
typedef enum oct_bf16_words {
    OCT_BF16_FLOATS,     /* four words, each the value as a float */
    OCT_BF16_NEIGHBOURS, /* two words, of elements (0, 1) and (2, 3); the first is the lower half */
    /* Two words, (2, 0) and (3, 1), each of one chain: VDPBF16PS multiplies the upper half of a word first. */
    OCT_BF16_PARITIES,
} oct_bf16_words;

typedef struct oct_float_kernel {
    oct_isa isa;
    const char *name;
    int col_tile; /* columns of a panel; a tile is col_tile words */
    oct_bf16_words bf16_words;
    bool (*present)(void); /* whether what it needs besides instructions is there; NULL: nothing */
    bool (*pays)(
        void); /* whether this processor is faster with it than with the next one; NULL: yes */
    oct_product_fn *f32;
    oct_product_fn *bf16; /* of words as bf16_words says */
} oct_float_kernel;

#define OCT_FLOAT_KERNEL(ISA, isa) extern const oct_float_kernel oct_float_kernel_##isa;
#include "core/kernel/float_kernel_list.def"
#undef OCT_FLOAT_KERNEL

/* Returns the first kernel of the list that these instruction sets allow and that pays; the last is the scalar reference. */
const oct_float_kernel *oct_float_kernel_select(oct_isa_set have);
const oct_float_kernel *oct_float_kernel_here(void); /* of this machine and OCT_ISA */
/* What decides its bits, for people: "avx2", or which OpenBLAS it is. */
const char *oct_float_kernel_name(void);
/* Checks that OCT_ISA=blas can be obeyed; call once at start. */
oct_status oct_float_kernel_check(void);

/* "f32", "bf16". */
const char *oct_numerics_name(oct_numerics numerics);
