/* A window makes rows and runs of a product (product.h) of the geometry of a convolution.
 *
 * Positions of the result that see the same taps form a class; its taps are listed once as runs, and
 * those that fall into the padding (or, backward with a stride, between the positions) are not listed.
 * Positions are worked in blocks of whole lines, or of whole samples where planes are small.
 *
 * FORWARD: positions are those of the output, rows are in x (H, W, C).
 * BACKWARD: positions are those of the input, rows are in grad_y (OH, OW, O), and the taps are those
 * through which an input position reaches an output: the gradient to data as a convolution of its own,
 * for every stride, padding and dilation. A class may have no taps at all; its gradient is 0.
 *
 * Tiles of a panel are numbered by tap: tap (ky, kx) of a group begins at
 * (ky * kernel_w + kx) * words, words being those of one tap. Runs are in ascending order of the tap
 * and neighbours in both x and tiles are merged.
 */
#pragma once

#include "core/product/product.h"
#include "core/tensor/conv_shape.h"

#include <stddef.h>

typedef enum oct_direction { OCT_FORWARD, OCT_BACKWARD } oct_direction;

typedef struct oct_conv_window_class {
    int64_t first_row, rows; /* of the whole period; rows is a multiple of period */
    int64_t first_run, runs;
    int64_t number; /* of its runs among those of all classes: below oct_conv_window_kinds */
} oct_conv_window_class;

typedef struct oct_conv_window_block {
    int64_t position, positions; /* within a sample, or of the whole period */
    int64_t first_class, classes;
} oct_conv_window_block;

/* A layout says what a row is made of. */
typedef struct oct_conv_window_layout {
    int64_t pixel_bytes; /* from one pixel of x to the next: all groups, with what fills it up */
    int64_t tap_words;   /* of one tap of one group; what follows is multiplied with zeros */
    int64_t acc_stride;  /* elements from one position of the result to the next */
    int64_t wanted;      /* positions that a block should have, about */
} oct_conv_window_layout;

/* An axis is one side of the geometry. */
typedef struct oct_conv_axis {
    int64_t positions;               /* of the result */
    int64_t pixels;                  /* of x */
    int64_t kernel, stride, padding; /* padding: before the first pixel */
    int64_t dilation;                /* pixels from one tap to the next */
    int64_t step;                    /* from one tap that a position reaches to the next */
    bool backward;
    int64_t reaches; /* different sets of taps that positions reach */
} oct_conv_axis;

typedef struct oct_conv_window {
    int64_t period;    /* samples that one pass over the blocks covers; 1 where planes are large */
    int64_t positions; /* of a sample */
    int64_t x_bytes;   /* of a sample: distance of samples in x */
    int64_t lines;     /* of a block; the last one may have fewer */
    int64_t num_blocks;
    size_t table_bytes;
    oct_conv_window_layout layout;
    oct_conv_axis y_axis, x_axis;
    /* The tables. */
    const oct_conv_window_block *blocks;
    const oct_conv_window_class *classes;
    /* x from the first sample of the period on, acc from the first position of the block on, in units
     * of `acc_stride` a position. Rows of a class are in order of the samples. */
    const oct_row *rows;
    const oct_run *runs;
} oct_conv_window;

/* Plans the blocks and counts the tables, which it does not make. s is a shape that fits (conv_shape.h). */
void oct_conv_window_init(oct_conv_window *w, const oct_conv_shape *s, oct_direction direction,
                          const oct_conv_window_layout *layout);
/* Makes the tables in memory of table_bytes, 8-byte aligned, which is to stay as long as w is used. */
void oct_conv_window_tables(oct_conv_window *w, void *memory);

/* Returns how many different lists of runs there may be. */
static inline int64_t oct_conv_window_kinds(const oct_conv_window *w)
{
    return w->y_axis.reaches * w->x_axis.reaches;
}

/* Gives the product of one class of a block over `samples` (at most period) samples from x on; acc is
 * that of the block's first position. packed, panel_bytes, n and add are left to the caller. */
oct_product oct_conv_window_product(const oct_conv_window *w, const oct_conv_window_class *c,
                                    int64_t samples, const void *x, void *acc);
