/* Convolutions of codes: what training, evaluation and the runtime all call, so their codes cannot differ.
 * NHWC codes, OHWI weight codes; a linear layer is the shape with h = w = kernel = 1.
 *
 * A plan is made once per layer, shape and input. Every function takes the plan, what it works on, and the
 * scratch of one thread. Nothing is allocated: blocks of the plan's sizes, 64-byte aligned, come from the
 * caller. Callers run samples in parallel, each thread with its own scratch.
 */
#pragma once

#include "quant/kernel/epilogue.h"
#include "quant/kernel/qcodes.h"
#include "core/product/winograd.h"
#include "core/tensor/tensor.h"

/* What is known of a convolution before its weights and codes are there. Plain data; threads share it. */
typedef struct oct_qconv_plan {
    const oct_kernel *kernel;
    oct_conv_shape shape;
    oct_qparams in;        /* of the input's codes */
    int64_t table_bytes;   /* of the tables that the plan points to */
    int64_t packed_bytes;  /* of the packed weights */
    int64_t scratch_bytes; /* of one thread */
    bool affine;           /* a factor per channel in place of a product: oct_qconv_plan_affine */
    bool wide;             /* the codes have 16 bits, the accumulators 64; otherwise 8 and 32 */

    /* The rest is the business of qconv_plan.c and qconv.c. */
    bool depthwise; /* one filter a channel */
    bool copies;    /* input lines go through the stripe */
    int term_bytes; /* of a code that is multiplied: 2 where a copy of the input is widened for bytes.pairs */
    int64_t window_samples; /* of a block, from which on they do not nevertheless; 0: none */
    int64_t taps, run;      /* runs of codes in a window of a group, and their length */
    int64_t border;         /* codes before those of the input in a line of the stripe */
    int64_t pitch;          /* bytes from one line of the stripe to the next */
    int64_t period, lines;  /* of a block: samples, and lines of each */
    int64_t positions;      /* of the largest block */
    int64_t stripe_lines;   /* of one sample of a block */
    int64_t group_bytes;    /* packed weights of one group */
    oct_winograd winograd;  /* .bytes: this way, with neither tables nor codes made at once */
    oct_conv_window window; /* tables, where input lines are not copied */
    oct_row *rows;          /* tables, where they are: of a whole block */
    oct_run *runs;
    int64_t acc_at, wide_at, mask_at, line_at,
        columns_at; /* parts of scratch: bytes from its start */
} oct_qconv_plan;

/* Returns how many lines of the stripe are read for `lines` lines of output. */
static inline int64_t oct_qconv_stripe_lines(const oct_qconv_plan *p, int64_t lines)
{
    const oct_conv_shape *s = &p->shape;
    return (lines - 1) * s->stride_h + oct_conv_extent(s->kernel_h, s->dilation_h);
}

/* Decides everything but the tables. `in`: the qparams of the input's codes, whose scale does not count; samples: that most
 * passes will have, 1 if not known. */
void oct_qconv_plan_init(oct_qconv_plan *p, const oct_kernel *kernel, const oct_conv_shape *s,
                         oct_qparams in, int64_t samples);
enum { OCT_QCONV_AFFINE_BITS = 15 };
/* Makes the plan of a factor and a bias per channel, a batch norm on its own: s is the plane as a depthwise 1x1
 * convolution. Its weight codes are -1, 0 or 1 and stand for multiples of 2^15, which leaves room for the
 * bias and which no code of 8 bits holds: accumulators are (code - zero_point) * weight[c] * 2^15. Nothing
 * overflows while biases are within +-2^30, of 16-bit codes +-2^46. */
void oct_qconv_plan_affine(oct_qconv_plan *p, const oct_kernel *kernel, const oct_conv_shape *s,
                           oct_qparams in);
/* Writes the tables to memory of table_bytes, which stays where it is as long as the plan is used. */
void oct_qconv_plan_tables(oct_qconv_plan *p, void *memory);

/* Packs weight codes (O, kh, kw, I/groups) into packed_bytes, read only from then on. */
void oct_qconv_pack(const oct_qconv_plan *p, const int8_t *codes, void *packed);

/* Some samples of a layer, and where its outputs go. */
typedef struct oct_qconv_pass {
    int64_t samples;
    const void *x; /* codes (samples, H, W, I) */
    const void *packed;
    void *y; /* (samples, OH, OW, O): accumulators of oct_qconv_accumulate, outputs of _forward */
    uint8_t *mask; /* of _forward, from bit 0 on; NULL: left out */
    float *range;  /* of _forward; NULL: left out */
} oct_qconv_pass;

/* Takes the accumulators (positions, O) of a block of output positions that begins at `position`, counted over all
 * samples. It may change them. */
typedef void oct_acc_visit(void *args, int64_t position, int64_t positions, void *acc);
/* Computes acc (samples, OH, OW, O) = sum of x codes (padding counts as the zero point) times weight codes,
 * in int32, or in int64 of 16-bit codes. The zero point is NOT subtracted (it is in the bias), except by an
 * affine plan. Exact. Calls `visit` (NULL: nothing) for one block of output positions after the other, in
 * ascending order and without gaps; blocks depend on the plan alone. y keeps the accumulators as the
 * visitor leaves them; NULL: they are gone. */
void oct_qconv_accumulate(const oct_qconv_plan *p, const oct_qconv_pass *pass, oct_acc_visit *visit,
                          void *args, void *scratch);
/* Computes outputs in a single pass, block by block. The results are those of oct_qconv_accumulate followed
 * by oct_epilogue_rows, bit for bit. */
void oct_qconv_forward(const oct_qconv_plan *p, const oct_qconv_pass *pass, const oct_epilogue *f,
                       void *scratch);

/* Sums the first channels of rows of n accumulators, for the statistics of a batch: with a = acc - offset[c]
 * as a double, sum[c] += a and sum[n + c] += a * a, in the order of the rows. */
void oct_acc_sums(int64_t rows, int64_t n, int64_t channels, const int32_t *restrict acc,
                  const int32_t *restrict offset, double *restrict sum);
void oct_acc_sums16(int64_t rows, int64_t n, int64_t channels, const int64_t *restrict acc,
                    const int64_t *restrict offset, double *restrict sum); /* of 16-bit codes */

/* Returns the largest |acc| or |acc + bias| of a channel that can occur, partial sums included; it must be
 * below 2^31 for 8-bit codes. x_lo, x_hi: stored codes of x. */
int64_t oct_qconv_bound(const oct_conv_shape *s, const int8_t *codes, int64_t channel, int64_t bias,
                        int32_t x_lo, int32_t x_hi);
