/* Convolutions on raw pointers, forward and backward. NHWC activations, OHWI weights (O, kh, kw,
 * I/groups). A linear layer is the shape with h = w = kernel = 1; its samples are the positions.
 *
 * One op makes a plan of its shape and packs its weights once, then works leaf by leaf:
 *
 *     oct_conv_plan_init(&plan, &config);          sizes of everything
 *     oct_conv_plan_tables(&plan, memory);         memory: plan.table_bytes
 *     oct_conv_forward_pack(&plan, weight, packed);        packed: plan.forward.packed_bytes
 *     oct_conv_forward(&plan, &pass, scratch);             scratch: plan.forward.scratch_bytes
 *
 * Every element of y and grad_x is a sum in a fixed order that depends on the shape alone, so no bit of
 * them depends on how many samples a call has; a weight gradient is a sum over the samples of each leaf of
 * the call, in order, and over leaves by their tree. Nothing is allocated: tables, packed weights and
 * scratch are the caller's, 64-byte aligned; scratch is used by no other thread meanwhile. A plan and
 * packed weights are read only and shared by threads.
 */
#pragma once

#include "core/base/leaves.h"
#include "core/kernel/float_kernel.h"
#include "core/product/winograd.h"
#include "core/tensor/tensor.h"

/* A plan is made of the following. Callers read the sizes in bytes and the leaves; all else is for the kernels of this
 * folder. */

/* A depthwise plan says where a source plane is in its strip (depthwise.c), and which results the
 * windows over the strip have. */
typedef struct oct_depthwise_plan {
    int64_t from_h, from_w, channels; /* the source */
    int64_t apart_h, apart_w;         /* from one source position to the next in the strip */
    int64_t pad_h, pad_w;             /* of source position 0 in the strip */
    int64_t to_h, to_w;               /* the results */
    int64_t step_h, step_w;           /* from one result's window to the next */
    int64_t kernel_h, kernel_w;
    int64_t dilation_h, dilation_w; /* from one tap to the next */
    int64_t width;                  /* columns of the strip */
    int64_t max_lines;              /* results' lines that one strip serves */
} oct_depthwise_plan;

/* A product multiplies rows with packed weights: forward, or backward to data. */
typedef struct oct_conv_product {
    size_t packed_bytes;
    size_t scratch_bytes;     /* of one thread */
    int64_t rounded_channels; /* of floats that become rows of bfloat16 in scratch; 0: x is rows */
    int64_t columns;          /* of a group */
    int64_t panel_bytes, group_bytes;
    oct_conv_window window; /* unless depthwise: */
    oct_depthwise_plan strip;
    oct_winograd winograd;           /* of codes: .bytes: this way, and there is no window */
    int64_t offsets_at, zeros_bytes; /* in packed weights of codes: conv_bytes.c */
} oct_conv_product;

/* A weight plan says how the gradient of weights is computed for a leaf, or a segment of one, of `samples` samples;
 * conv_impl.h describes the layout of its operands. */
typedef struct oct_weight_plan {
    const oct_float_kernel *kernel;
    oct_conv_shape s;
    int64_t samples, full; /* full: those of a full segment */
    bool bf16;             /* what is multiplied */
    bool grad_bf16;        /* what rows of the gradient are */
    bool rounds_grad;      /* or become, line by line; they are floats */
    int64_t ins, outs;     /* of a group; ins: of those that a pass is for */
    int64_t block_samples, block_lines, blocks;
    int64_t line_words;                /* of the output */
    int64_t element;                   /* bytes of a value in a plane */
    int64_t copies, phases, pitch;     /* of a plane; a line of a copy has (phases, pitch) values */
    int64_t line, sample, copy, plane; /* values from one to the next */
    bool quads;                        /* in planes are as OCT_BF16_PARITIES has them */
    bool few_rows;                     /* of one ky */
    int64_t panels, panel_bytes;
    const oct_byte_product *bytes; /* INT8, or NULL */
    int digits;
    size_t tiles_bytes; /* of operands tile by tile (conv_weight_tiles.c), or 0: not this way */
    bool all_sums;      /* are in scratch: they are made of several parts */
} oct_weight_plan;

/* The gradient of weights is a product over positions. */
typedef struct oct_conv_weight_product {
    int64_t leaves;       /* that a call may have, at most: a power of two */
    size_t scratch_bytes; /* of one thread, for calls of up to `leaves` */
    /* INT8: scales of the gradient are of an output and a segment, some samples of a leaf one after another (the last may
     * be short): the least power of two with 512 positions, at most a leaf. Otherwise a segment is a leaf. One of more than
     * OCT_CONV_MAX_CODES positions is summed in parts of whole lines, whose floats are added. */
    int64_t segment_samples, leaf_segments; /* of a full one */
    oct_weight_plan segment;                /* a full one; unless depthwise: */
    oct_depthwise_plan strip;
} oct_conv_weight_product;

enum {
    /* Products of a plan. */
    OCT_CONV_FORWARD = 1,
    OCT_CONV_BACKWARD_DATA = 2,
    OCT_CONV_BACKWARD_WEIGHT = 4,
    /* No plan works more leaves side by side in a call. */
    OCT_CONV_MAX_LEAVES = 8,
};

typedef struct oct_conv_config {
    oct_conv_shape shape; /* one that fits (conv_shape.h) */
    const oct_float_kernel *kernel;
    oct_numerics
        numerics; /* of the products, as oct_conv_numerics says; depthwise ones are float32 */
    bool
        grad_is_floats; /* rows of the gradient are floats in bfloat16 too, and rounded by each product */
    oct_dtype input; /* of x in the weight gradient: F32, U8 or U16 */
    /* INT8: how codes are multiplied, and the digits (1 or 2) of the gradient in each of the products. */
    const oct_byte_product *bytes;
    int data_digits, weight_digits;
    int64_t leaf;       /* samples of a full one */
    int64_t max_leaves; /* that a call of the weight gradient may have */
    unsigned products;  /* what the plan is for; it has no sizes of others */
} oct_conv_config;

typedef struct oct_conv_plan {
    oct_conv_config config;
    bool depthwise;
    oct_conv_product forward, data;
    oct_conv_weight_product weight;
    size_t table_bytes;
    size_t grad_row_bytes; /* of oct_conv_grad_rows */
    /* Rows of the gradient are floats, which may be written without oct_conv_grad_rows: grad_y times
     * factor[o]. */
    bool grad_rows_are_floats;
} oct_conv_plan;

/* Sums of that many products of codes are exact: of u8 and s8 they are within 255 * 128 * 2^15 < 2^31, and with the offsets
 * that are subtracted within (255 + 128) * 128 * 2^15. */
enum { OCT_CONV_MAX_CODES = 1 << 15 };

/* Returns what a layer uses of the numerics that are wanted: gradients become codes (INT8) where the input is of 8 bits and
 * the products are worth it, that is 32 operations or more for each code, and sums are exact; otherwise bfloat16. */
oct_numerics oct_conv_numerics(const oct_conv_shape *s, oct_dtype input, oct_numerics wanted);
/* Fills in everything but the tables. */
void oct_conv_plan_init(oct_conv_plan *p, const oct_conv_config *config);
/* Makes the tables in memory of table_bytes, which is to stay as long as the plan is used. */
void oct_conv_plan_tables(oct_conv_plan *p, void *memory);

/* A pass takes samples through packed weights. */
typedef struct oct_conv_pass {
    int64_t samples;
    /* Forward: floats (n, H, W, I), which bfloat16 numerics round; backward to data: rows of the gradient. */
    const void *x;
    const void *packed;
    const float *bias; /* (O), forward only; NULL: none */
    float *y;          /* (n, OH, OW, O); backward to data: grad_x (n, H, W, I) */
    bool add;          /* backward to data: adds to grad_x */
    /* Backward to data of INT8: x has rows of codes q + 128; the lower digits, or NULL; and what a sum of codes is
     * multiplied with, of each sample. */
    const void *low;
    const float *scale; /* (samples) */
} oct_conv_pass;

/* Packs weights (O, kh, kw, I/groups) for oct_conv_forward. */
void oct_conv_forward_pack(const oct_conv_plan *p, const float *weight, void *packed);
/* y = x * weight + bias. */
void oct_conv_forward(const oct_conv_plan *p, const oct_conv_pass *pass, void *scratch);

/* Makes of the gradient of the output an operand of both backward products: rows (positions) of
 * grad_row_bytes each. Writes `rows` rows from grad_y (rows, O), each channel times factor[o] (NULL: as
 * they are), rounded to bfloat16 when numerics say so. A part of a sample may be written at a time. */
void oct_conv_grad_rows(const oct_conv_plan *p, int64_t rows, const float *grad_y,
                        const float *factor, void *out);

/* Makes codes of rows of the gradient of one sample, INT8 numerics: operands of one product, since the other has other
 * factors. With t = grad * factor[c] rounded half to even:
 *
 *     one digit:   |t| <= 127 * 256          q = (t + u) >> 8, u from 0 to 255: unbiased (Fitzgibbon and Felix 2025)
 *     two digits:  |t| <= 127 * 256 + 127    q = (t + 128) >> 8, low = t - 256 q
 *
 * t beyond its bounds is clipped. u is a pure function of key, position and channel:
 * u = (mix(key + position * 0x9e3779b9) + c * 0x9e3779b9) >> 24, so how rows are cut changes nothing. Values that are not
 * finite make any codes. */
enum { OCT_GRAD_MOST = 127 * 256, OCT_GRAD_MOST_WIDE = 127 * 256 + 127, OCT_GRAD_FLIP = 0x80 };
typedef struct oct_grad_codes {
    int64_t rows, position; /* the first row's in the sample's plane */
    uint32_t key;           /* random, of this sample and product */
    const float *grad;      /* (rows, O) */
    const float *factor;    /* (O) */
    /* What codes are xored with: OCT_GRAD_FLIP makes q + 128 (u8), for backward to data; 0 leaves s8. */
    uint8_t flip;
    uint8_t *codes, *low; /* rows of grad_row_bytes; low NULL: one digit */
    int64_t *
        errors; /* of one digit: adds sum (256 q - t)^2 and sum t^2 to errors[0] and [1]; NULL: neither */
} oct_grad_codes;
void oct_conv_grad_codes(const oct_conv_plan *p, const oct_grad_codes *c);

/* Packs weights for oct_conv_backward_data: floats, which bfloat16 numerics round; weight NULL: codes (weights as whole
 * numbers, exact in all numerics) instead. INT8 takes codes alone, and the plan's tables. */
void oct_conv_backward_data_pack(const oct_conv_plan *p, const float *weight, const int8_t *codes,
                                 void *packed);
/* grad_x = or += the transposed convolution of rows of the gradient. INT8: scale[n] * (float)(the sum of codes). */
void oct_conv_backward_data(const oct_conv_plan *p, const oct_conv_pass *pass, void *scratch);

/* A weight gradient is multiplied with an input: floats, which bfloat16 numerics round, or the exact whole
 * numbers code - zero_point (of bytes, or of 16-bit codes: those are not exact in bfloat16 and are always
 * multiplied in float32). Padding is the value 0. The one of the plan's input is given. */
typedef struct oct_conv_input {
    const float *values;  /* or NULL */
    const uint8_t *codes; /* or NULL */
    const uint16_t *codes16;
    int32_t zero_point;
} oct_conv_input;

/* A weight pass sums the products of its samples: those of a leaf of up to config.leaf, or of several leaves,
 * at most the plan's weight.leaves, all full but the last, which may be short. */
typedef struct oct_conv_weight_pass {
    int64_t samples;
    const void *grad; /* rows of the gradient */
    oct_conv_input x;
    const float *factor; /* (O); NULL: 1 */
    /* INT8: grad has rows of codes q; the lower digits, or NULL; and what sums of codes are multiplied with, before
     * `factor`, of each segment of all leaves: those of leaf i begin with segment i * leaf_segments. */
    const void *low;
    const float *scale; /* (segments, O) */
    float *sums;
    bool add;
    int64_t channel, channels; /* of the input: those whose sums are written; 0 channels: all */
} oct_conv_weight_pass;

/* sums[k][o] = or += factor[o] * sum over the samples in order, or of INT8 over the segments in order of
 * scale[o] * (float)(the sum of codes, exact). Not `add` gives the bits of adding to
 * zeros, so -0 becomes 0; what is there is not read. The layout is transposed: for each group (depth,
 * O/groups), with depth = (kh, kw, I/groups) in this order: outputs are the columns of the product. The
 * sums of several leaves are added by the balanced tree before they are written or added: the bits are those of
 * one row for each leaf, added as core/base/leaves.h says. Threads may share a pass by its channels, cut as
 * oct_conv_weight_cut says; each packs the gradient for itself. */
void oct_conv_backward_weight(const oct_conv_plan *p, const oct_conv_weight_pass *pass,
                              void *scratch);
/* Cuts `passes` passes, whose units are channels of the input, for `threads` threads. */
oct_cut oct_conv_weight_cut(const oct_conv_plan *p, int64_t passes, int threads);
/* Puts sums (groups, depth, outs) into the layout of weights (groups, outs, depth); threads share it. */
void oct_conv_weight_transpose(int64_t groups, int64_t depth, int64_t outs, const float *sums,
                               float *weight);

/* grad_bias (channels) += sum over rows of grad_y, in order; rows are `pitch` apart. */
void oct_bias_backward(int64_t rows, int64_t pitch, int64_t channels, const float *grad_y,
                       float *grad_bias);
