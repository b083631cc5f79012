/* How the accumulators of a layer become its output: by the requantizer of the
 * kernel tables where 8-bit codes become 8-bit codes, otherwise in loops that give the same bits on
 * every instruction set. In units of the output scale, for channel c,
 *
 *     v = (acc + bias[c]) * multiplier[c] + (s - z_s) * addend_multiplier
 *
 * the last term only where there is a second addend s. How that is computed the requantizer says (quant/rounding):
 *     FLOAT  every operation rounds to float, or where any tensor of the layer has 16-bit codes (`wide`) to double;
 *            r = round_half_even(v).
 *     others r is what their row makes of acc + bias and the channel's whole numbers, without a second addend. v, which
 *            only mask, range and float outputs show, is as in FLOAT with `wide`.
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

typedef struct oct_epilogue {
    oct_requantizer requantizer;
    bool wide;     /* some input or the output has 16 bits (oct_epilogue_is_wide) */
    oct_dtype acc; /* S32, or S64 of 16-bit inputs */
    oct_dtype out; /* U8, U16, F32 */
    /* Multiplier, bounds, activation; its bias is that of sums in float. Of a float output only relu, floor and six count,
     * in real units. */
    oct_requant q;
    const int64_t *bias;    /* (C): the others' */
    const oct_fixed *fixed; /* (C): multipliers of the others */
    oct_qcodes addend;      /* data NULL: none; otherwise as many as accumulators */
    float addend_multiplier;
} oct_epilogue;

/* addend: U8 when there is none. out: F32 counts as 8-bit. */
static inline bool oct_epilogue_is_wide(oct_dtype in, oct_dtype addend, oct_dtype out)
{
    return in == OCT_U16 || addend == OCT_U16 || out == OCT_U16;
}
/* Whether sums become floats, whose bias is that of the kernel tables. */
static inline bool oct_epilogue_is_float(const oct_epilogue *f)
{
    return !oct_rounding_of(f->requantizer)->rows && !f->wide;
}

/* Turns rows of accumulators into outputs (codes or floats), mask and range. A float output leaves the range alone. */
void oct_epilogue_rows(const oct_kernel *kernel, const oct_epilogue *f, const oct_acc_rows *r);
/* Whether the requantizer of a kernel table computes it, and with which constants. */
bool oct_epilogue_requantizes(const oct_epilogue *f);
oct_requant oct_epilogue_requant(const oct_epilogue *f);
/* Returns the epilogue of the part of a layer that begins `first` elements after its beginning: the codes
 * of the second addend are read from there. */
oct_epilogue oct_epilogue_at(const oct_epilogue *f, int64_t first);
