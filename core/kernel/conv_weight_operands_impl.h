/* The gradient of weights (conv_weight.c) is multiplied from two operands (conv_weight_operands.c).
 *
 * The input is transposed into planes, one for each channel, so that a row of the product is a start in a
 * plane and its runs are the lines of the output: tap (ky, kx) begins ky lines lower and kx columns
 * further, times the dilation. With a stride, the columns of a line are sorted by their remainder, so that what a tap sees is
 * contiguous. Planes have zeros around them. Gradients become panels of words of one position (float32)
 * or of two neighbours in a line (bfloat16). Both are made for one block of positions after the other.
 */
#pragma once

#include "core/kernel/conv_impl.h"

enum {
    /* A patch is transposed at a time: positions of a line, and channels. */
    OCT_PATCH_COLUMNS = 64,
    OCT_PATCH_CHANNELS = 16,
    OCT_LEAF_GROUP_LEVELS = 3, /* of the tree over leaves that are computed side by side */
};

_Static_assert(1 << OCT_LEAF_GROUP_LEVELS == OCT_CONV_MAX_LEAVES, "a level for each doubling");

/* Scratch holds this for one leaf after the other. */
typedef struct oct_weight_scratch {
    char *planes, *panels;
    size_t planes_bytes, panels_bytes; /* of a leaf */
    int64_t num_runs; /* most of a leaf; two lists where there are several leaves */
    int64_t chunk;    /* rows that are multiplied at once */
    float *sums;      /* of a chunk, or of all rows where there are several blocks */
    float *waiting[OCT_LEAF_GROUP_LEVELS]; /* sums of a chunk over subtrees of several leaves */
    oct_row *rows;
    oct_run *runs;
    float *values;  /* a patch, as it is or transposed */
    uint8_t *codes; /* a transposed patch */
} oct_weight_scratch;

/* A block has positions: lines [line, line + lines) of samples [sample, sample + samples). */
typedef struct oct_weight_block {
    int64_t group;   /* of the convolution */
    int64_t channel; /* first one of the input, of all groups */
    int64_t sample, samples, line, lines;
    bool first, last;
} oct_weight_block;

/* Returns the lines of a plane that the taps of `lines` lines of the output see. */
static inline int64_t oct_weight_plane_lines(const oct_weight_plan *p, int64_t lines)
{
    const oct_conv_shape *s = &p->s;
    return (lines - 1) * s->stride_h + oct_conv_extent(s->kernel_h, s->dilation_h);
}

/* Makes the planes of p->ins channels of x (all samples of the leaf), as far as the taps of the block
 * see them. */
void oct_weight_pack_planes(const oct_weight_plan *p, const oct_conv_input *x,
                            const oct_weight_block *b, const oct_weight_scratch *r);

/* Makes the panels of a group of the gradient's rows (oct_conv_grad_rows). */
void oct_weight_pack_panels(const oct_weight_plan *p, const void *grad, const oct_weight_block *b,
                            const oct_weight_scratch *r);
