/* Integer kernels: one table of functions for each instruction set, best first in kernel_list.def,
 * the scalar reference last. All variants give the same bits; the reference is the definition.
 *
 * Convolutions and linear layers are products of rows of codes with packed weights
 * (core/product/product.h), exact in int32: a word is four codes, a tile what it is multiplied with in each column.
 * Depthwise convolutions go line by line.
 */
#pragma once

#include "core/base/cpu.h"
#include "core/product/product.h"

#include <stdbool.h>
#include <stdint.h>

/* How an int32 accumulator becomes an unsigned code, per output channel c, every operation rounding to
 * float:
 *     v = (float)(acc + bias[c]) * multiplier[c]
 *     v += (float)(s - addend_zero_point) * addend_multiplier   where there is a second addend s
 *     r = round_half_even(v)
 *     code = clamp(r, lo, hi) + zero_point
 *     pass = lo <= r <= hi, and with `relu` also v > floor, and with `six` also v < six
 * acc + bias wraps never: prepare proves the bound. bias already holds -zero_point_x * sum(w). */
typedef struct oct_requant {
    const int32_t *bias;     /* (C) */
    const float *multiplier; /* (C), may be negative or zero */
    int32_t lo, hi;          /* logical codes: stored minus zero_point */
    int32_t zero_point;
    bool relu;             /* gradient of max(floor, .) */
    float floor;           /* lower clip in units of the output scale: 0 of relu; -inf: none */
    float six;             /* upper clip of relu6 or clip, in the same; +inf without */
    const uint8_t *addend; /* codes, as many as accumulators; NULL: none */
    int32_t addend_zero_point;
    float addend_multiplier;
} oct_requant;

/* Rows of accumulators, and where the outputs that they become go. The mask has a bit for each output, bit
 * i of it being output i of this call; whole bytes are written, so callers keep m * n of each call but the
 * last a multiple of 8. The least and the largest v, as float and with the clips of relu and six applied,
 * are merged into range[2]; zero is +0, and a multiplier that is not finite makes it NaN, so that a
 * maximum of keys shows it. */
typedef struct oct_acc_rows {
    int64_t m, n;    /* rows, channels */
    const void *acc; /* (m, n), contiguous */
    void *y;         /* (m, n) */
    uint8_t *mask;   /* NULL: left out */
    float *range;    /* NULL: left out */
} oct_acc_rows;

/* One line of output of a convolution with one filter a channel:
 *     acc[x][c] = sum over ky, kx of line[ky][x * stride + kx - padding][c] * w[c][ky][kx]
 * where a place outside the input's columns, or on a line that is NULL, is `fill`. */
typedef struct oct_depthwise {
    int64_t channels, in_w, out_w;
    int kernel_h, kernel_w, stride, padding;
    uint8_t fill;
    /* Also the next line of output, which begins out_w * channels elements on and looks one line further: there is one
     * more line. Where oct_kernel.depthwise_pairs, and kernel_h is less than 4. */
    bool pair;
    const uint8_t *const *line; /* (kernel_h), each (in_w, channels) */
    const int8_t *packed;       /* from depthwise_pack */
    int32_t *acc;               /* (out_w, channels) */
    uint8_t *codes;             /* depthwise_codes: the same in place of acc */
    const void *epilogue;       /* what makes codes, as in oct_product */
    void *scratch;              /* of the plan, 64-byte aligned */
} oct_depthwise;

/* The weights of such a convolution. Packed, their taps are `dilation` columns apart, with zeros between
 * them: as those of a kernel of (kernel_w - 1) * dilation + 1 columns. */
typedef struct oct_depthwise_weights {
    int64_t channels;
    int kernel_h, kernel_w, dilation;
    const int8_t *codes; /* (channels, kernel_h, kernel_w) */
} oct_depthwise_weights;

static inline int oct_depthwise_columns(const oct_depthwise_weights *w)
{
    return (w->kernel_w - 1) * w->dilation + 1;
}

/* Gives the weight of a channel at row ky and column x of the packed kernel. */
static inline int8_t oct_depthwise_weight(const oct_depthwise_weights *w, int64_t channel, int ky,
                                          int x)
{
    if (x % w->dilation != 0) return 0;
    return w->codes[(channel * w->kernel_h + ky) * w->kernel_w + x / w->dilation];
}

typedef struct oct_kernel {
    oct_isa isa;
    const char *name;
    bool tiles; /* multiplies sixteen rows at once: positions of a class should not be few */
    oct_byte_product bytes;

    int64_t (*depthwise_bytes)(int64_t channels, int kernel_h, int kernel_w);
    void (*depthwise_pack)(const oct_depthwise_weights *w, int8_t *packed);
    void (*depthwise)(const oct_depthwise *d);
    bool depthwise_pairs; /* computes two lines at once, which share what is made of their input */

    /* Both make codes of the sums at once, as requantize does without mask and range: accumulators are
     * never in memory. Element 0 of q's columns and of its addend is element 0 of the call's; acc of p
     * are codes, and nothing is added to them. NULL: there is only one after the other. */
    void (*product_codes)(const oct_product *p, const oct_requant *q);
    void (*pairs_codes)(const oct_product *p, const oct_requant *q); /* of bytes.pairs */
    void (*depthwise_codes)(const oct_depthwise *d, const oct_requant *q);

    /* Turns rows of int32 accumulators into codes. */
    void (*requantize)(const oct_acc_rows *r, const oct_requant *q);
} oct_kernel;

#define OCT_KERNEL(ISA, isa) extern const oct_kernel oct_kernel_##isa;
#include "quant/kernel/kernel_list.def"
#undef OCT_KERNEL

/* Returns the best kernel of the set; REF is in every set. */
const oct_kernel *oct_kernel_select(oct_isa_set have);
const oct_kernel *oct_kernel_here(void); /* of this machine and OCT_ISA */

/* Return the bytes of weights packed by oct_pack_taps, and of one panel of them. */
int64_t oct_packed_taps_bytes(const oct_kernel *kernel, int64_t n, int64_t taps, int64_t k);
int64_t oct_panel_bytes(const oct_kernel *kernel, int64_t taps, int64_t k);
/* Packs w (n, taps, k), one group of columns: runs of k codes, filled up to words, in panels of col_tile columns. */
void oct_pack_taps(const oct_kernel *kernel, int64_t n, int64_t taps, int64_t k, const int8_t *w,
                   int8_t *packed);
