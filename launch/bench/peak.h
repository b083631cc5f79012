/* This measures what the processor can do: the products of Octet's own tables (core/product/panel.h) on
 * operands that stay in registers and the first-level cache, the best of some rounds. It is the ceiling
 * under which figures stand, taken in the same run. */
#pragma once

#include "core/kernel/float_kernel.h"
#include "quant/kernel/kernel.h"

typedef enum oct_roof { OCT_ROOF_INT8, OCT_ROOF_BF16, OCT_ROOF_F32, OCT_ROOFS } oct_roof;

/* Operations a second of one thread, in units of 1e9; a multiplication and an addition are two. */
typedef struct oct_peak {
    double gops[OCT_ROOFS];
} oct_peak;

oct_status oct_peak_measure(oct_isa_set have, oct_peak *peak) OCT_NODISCARD;
