/* What an oct_conv_plan (conv.h) is made of. Callers read the sizes in bytes and the leaves; all else is
 * for the kernels of this folder. */
#pragma once

#include "core/kernel/float_kernel.h"
#include "core/product/conv_window.h"
#include "core/tensor/tensor.h"

/* A depthwise plan says where a source plane lies in its strip (depthwise.c), and which results the
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
    size_t scratch_bytes; /* of one thread */
    int64_t columns;      /* of a group */
    int64_t panel_bytes, group_bytes;
    oct_conv_window window; /* unless depthwise: */
    oct_depthwise_plan strip;
} oct_conv_product;

/* A weight plan says how the gradient of weights is computed for a leaf of `samples` samples;
 * conv_weight_operands_impl.h describes the layout of its operands. */
typedef struct oct_weight_plan {
    const oct_float_kernel *kernel;
    oct_conv_shape s;
    int64_t samples;
    bool pairs;        /* words of two positions in bfloat16 */
    bool grad_pairs;   /* what rows of the gradient are */
    int64_t ins, outs; /* of a group; ins: of those that a pass is for */
    int64_t block_samples, block_lines, blocks;
    int64_t line_words;            /* of the output */
    int64_t element;               /* bytes of a value in a plane */
    int64_t phases, copies, pitch; /* a line of a plane: (copies, phases, pitch) values */
    int64_t line, sample, plane;   /* values from one to the next */
    bool few_rows;                 /* of one ky */
    int64_t panels, panel_bytes;
} oct_weight_plan;

/* The gradient of weights is a product over positions. */
typedef struct oct_conv_weight_product {
    int64_t leaves;       /* that a call may have, at most: a power of two */
    size_t scratch_bytes; /* of one thread, for calls of up to `leaves` */
    oct_weight_plan leaf; /* a full one; unless depthwise: */
    oct_depthwise_plan strip;
} oct_conv_weight_product;
