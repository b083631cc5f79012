/* What the gradient of weights (conv_weight.c) is multiplied from (conv_weight_operands.c).
 *
 * The input is turned into planes, one for each channel, so that a row of the product is a start in a
 * plane and its runs are the lines of the output: tap (ky, kx) begins ky lines lower and kx columns
 * further. With a stride, the columns of a line are sorted by their remainder, so that what a tap sees is
 * contiguous. Planes have zeros around them. Gradients become panels of words of one position (float32)
 * or of two neighbours in a line (bfloat16). Both are made for one block of positions after the other.
 */
#pragma once

#include "core/kernel/conv_impl.h"

enum {
    OCT_STRIP = 64,            /* positions of a line that are turned at a time */
    OCT_STRIP_CHANNELS = 16,   /* of so many channels */
    OCT_LEAF_GROUP_LEVELS = 3, /* of the tree over leaves that are worked side by side */
};

typedef struct oct_weight_plan {
    const oct_float_kernel *k;
    oct_conv_shape s;
    int64_t samples;
    bool pairs;        /* words of two positions in bfloat16 */
    bool grad_pairs;   /* what rows of the gradient are */
    int64_t ins, outs; /* of a group */
    int64_t block_samples, block_lines, blocks;
    int64_t line_words;            /* of the output */
    int64_t element;               /* bytes of a value in a plane */
    int64_t phases, copies, pitch; /* a line of a plane: (copies, phases, pitch) values */
    int64_t line, sample, plane;   /* values from one to the next */
    bool few_rows;                 /* of one ky */
    int64_t panels, panel_bytes;
} oct_weight_plan;

/* What scratch holds, for one leaf after the other. */
typedef struct oct_weight_scratch {
    char *planes, *panels;
    size_t planes_bytes, panels_bytes; /* of a leaf */
    int64_t num_runs; /* most of a leaf; two lists where there are several leaves */
    int64_t chunk;    /* rows that are multiplied at once */
    float *sums;      /* of a chunk, or of all rows where there are several blocks */
    float *waiting[OCT_LEAF_GROUP_LEVELS]; /* sums of a chunk over subtrees of several leaves */
    oct_row *rows;
    oct_run *runs;
    float *values;  /* (OCT_STRIP, OCT_STRIP_CHANNELS), or turned */
    uint8_t *codes; /* turned */
} oct_weight_scratch;

/* A block of positions: lines [line, line + lines) of samples [sample, sample + samples). */
typedef struct oct_weight_block {
    int64_t sample, samples, line, lines;
    bool first, last;
} oct_weight_block;

/* Planes of a group of x (all samples of the call), as far as the taps of the block see them. */
void oct_weight_pack_planes(const oct_weight_plan *p, const oct_conv_input *x, int64_t group,
                            const oct_weight_block *b, const oct_weight_scratch *r);

/* Panels of a group of the gradient's rows (oct_conv_grad_rows). */
void oct_weight_pack_panels(const oct_weight_plan *p, const void *grad, int64_t group,
                            const oct_weight_block *b, const oct_weight_scratch *r);
