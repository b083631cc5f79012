/* How the accumulators of a layer become its output: by the requantizer of the
 * kernel tables where 8-bit codes become 8-bit codes, otherwise in loops that give the same bits on
 * every instruction set. In units of the output scale, for channel c,
 *
 *     v = (acc + bias[c]) * multiplier[c] + (s - z_s) * addend_multiplier
 *
 * the last term only where there is a second addend s. The arithmetic says how it is computed:
 *     FLOAT  every operation rounds to float; r = round_half_even(v). Accumulators are int32.
 *     WIDE   the same in double: for layers of which any tensor has 16-bit codes.
 *     SHIFT  multipliers are powers of two, 2^-k, and r = (acc + bias + 2^(k-1)) >> k, arithmetically
 *            (a shift to the left for k <= 0). No second addend.
 *     SHIFT_EVEN  the same, where halves become the even number.
 *     SHIFT_20    as SHIFT, where acc + bias is first cut to 20 bits, -2^19 to 2^19 - 1. Accumulators are int32.
 *     DOUBLE r is oct_fixed_double of acc + bias and the channel's whole multiplier (requantizer.h). v, which only
 *            mask, range and float outputs show, is as in WIDE. Accumulators are int32, and no second addend.
 *     Q15    r is oct_fixed_q15 of them, accumulators being of either kind.
 * Codes, mask and range follow from r and v as in oct_requant. A float output is v itself, clipped by
 * relu and six, with one zero; its mask says where it was not clipped.
 *
 * Nothing overflows in int64: 16-bit inputs have accumulators below 2^39 (OCT_MAX_PRODUCTS * 65535 *
 * 127), biases stay within +-2^46 and what the zero point takes off within 2^39, so |acc + bias| <
 * 2^47, which a shift to the left by at most 16 keeps below 2^63. (By 16 is enough to leave every
 * range of codes; by 62 to the right, to reach 0.) A double holds each of these sums exactly.
 */
#pragma once

#include "quant/kernel/kernel.h"
#include "quant/kernel/qcodes.h"
#include "quant/rounding/requantizer.h"

typedef enum oct_arithmetic {
    OCT_ARITHMETIC_FLOAT,
    OCT_ARITHMETIC_WIDE,
    OCT_ARITHMETIC_SHIFT,
    OCT_ARITHMETIC_DOUBLE,
    OCT_ARITHMETIC_SHIFT_EVEN,
    OCT_ARITHMETIC_SHIFT_20,
    OCT_ARITHMETIC_Q15,
} oct_arithmetic;

/* Tells whether multipliers are powers of two, of which only the exponents count. */
static inline bool oct_arithmetic_shifts(oct_arithmetic a)
{
    return a == OCT_ARITHMETIC_SHIFT || a == OCT_ARITHMETIC_SHIFT_EVEN ||
           a == OCT_ARITHMETIC_SHIFT_20;
}

/* Chooses by the types. addend: U8 when there is none. out: F32 counts as 8-bit. */
static inline oct_arithmetic oct_arithmetic_of(oct_requantizer r, oct_dtype in, oct_dtype addend,
                                               oct_dtype out)
{
    const bool wide = in == OCT_U16 || addend == OCT_U16 || out == OCT_U16;
    if (r == OCT_REQUANT_SHIFT) return OCT_ARITHMETIC_SHIFT;
    if (r == OCT_REQUANT_SHIFT_EVEN) return OCT_ARITHMETIC_SHIFT_EVEN;
    if (r == OCT_REQUANT_SHIFT_20) return OCT_ARITHMETIC_SHIFT_20;
    if (r == OCT_REQUANT_DOUBLE) return OCT_ARITHMETIC_DOUBLE;
    if (r == OCT_REQUANT_Q15) return OCT_ARITHMETIC_Q15;
    return wide ? OCT_ARITHMETIC_WIDE : OCT_ARITHMETIC_FLOAT;
}

typedef struct oct_epilogue {
    oct_arithmetic arithmetic;
    oct_dtype acc; /* S32, or S64 of 16-bit inputs */
    oct_dtype out; /* U8, U16, F32 */
    /* Multiplier, bounds, activation; its bias is FLOAT's. Of a float output only relu, floor and six count,
     * in real units. */
    oct_requant q;
    const int64_t *bias;    /* (C): the others' */
    const oct_fixed *fixed; /* (C): multipliers of DOUBLE and Q15 */
    oct_qcodes addend;      /* data NULL: none; otherwise as many as accumulators */
    float addend_multiplier;
} oct_epilogue;

/* Computes rows of outputs. A float output leaves the range alone. */
void oct_epilogue_rows(const oct_kernel *kernel, const oct_epilogue *f, const oct_acc_rows *r);
/* Tells whether the requantizer of a kernel table computes it, and with which constants. */
bool oct_epilogue_requantizes(const oct_epilogue *f);
oct_requant oct_epilogue_requant(const oct_epilogue *f);
/* Returns the epilogue of the part of a layer that begins `first` elements behind its beginning: the codes
 * of the second addend are read from there. */
oct_epilogue oct_epilogue_at(const oct_epilogue *f, int64_t first);
