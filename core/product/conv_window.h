/* From the geometry of a convolution to the rows and runs of a product (product.h).
 *
 * Positions of the result that see the same taps form a class; its taps are listed once as runs, and
 * those that fall into the padding (or, backward with a stride, between the positions) are not listed.
 * Positions are worked in blocks of whole lines, or of whole samples where planes are small.
 *
 * FORWARD: positions are those of the output, rows lie in x (H, W, C).
 * BACKWARD: positions are those of the input, rows lie in grad_y (OH, OW, O), and the taps are those
 * through which an input position reaches an output: the gradient to data as a convolution of its own,
 * for every stride and padding. A class may have no taps at all; its gradient is 0.
 *
 * Tiles of a panel are numbered by tap: tap (ky, kx) of a group begins at
 * (ky * kernel_w + kx) * words, words being those of one tap. Runs are in ascending order of the tap
 * and neighbours in both x and tiles are joined.
 */
#pragma once

#include "core/product/product.h"
#include "core/tensor/conv_shape.h"

#include <stddef.h>

typedef enum oct_direction { OCT_FORWARD, OCT_BACKWARD } oct_direction;

typedef struct oct_conv_window_class {
    int64_t first_row, rows; /* of the whole period; rows is a multiple of period */
    int64_t first_run, runs;
} oct_conv_window_class;

typedef struct oct_conv_window_block {
    int64_t position, positions; /* within a sample, or of the whole period */
    int64_t first_class, classes;
} oct_conv_window_block;

/* Everything lies in the memory that oct_window_init was given. */
typedef struct oct_conv_window {
    int64_t period;    /* samples that one pass over the blocks covers; 1 where planes are large */
    int64_t positions; /* of a sample */
    int64_t x_bytes;   /* of a sample: distance of samples in x */
    int64_t max_block; /* positions of the largest block */
    int64_t num_blocks;
    const oct_conv_window_block *blocks;
    const oct_conv_window_class *classes;
    /* x from the first sample of the period on, acc from the first position of the block on, in units
     * of `acc_stride` a position. Rows of a class are in order of the samples. */
    const oct_row *rows;
    const oct_run *runs;
} oct_conv_window;

/* What a row is made of. */
typedef struct oct_conv_window_layout {
    int64_t pixel_bytes; /* from one position of x to the next: all groups, with what fills it up */
    int64_t
        tap_words; /* words of one tap of one group; what lies behind is multiplied with zeros */
    int64_t acc_stride; /* elements from one position of the result to the next */
    int64_t wanted;     /* positions that a block should have, about */
} oct_conv_window_layout;

size_t oct_window_bytes(const oct_conv_shape *s, oct_direction direction,
                        const oct_conv_window_layout *layout);
/* memory: of oct_window_bytes, 8-byte aligned. Never fails; s is a shape that fits (conv_shape.h). */
void oct_window_init(oct_conv_window *w, const oct_conv_shape *s, oct_direction direction,
                     const oct_conv_window_layout *layout, void *memory);

/* The product of one class of a block over `samples` (at most period) samples from x on; acc is that of
 * the block's first position. packed, panel_bytes, n and add are left to the caller. */
oct_product oct_conv_window_product(const oct_conv_window *w, const oct_conv_window_class *c,
                                    int64_t samples, const void *x, void *acc);
