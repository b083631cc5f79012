/* Convolutions of codes by Winograd's F(2x2, 3x3) (Lavin and Gray 2016), in whole numbers and so exactly: their sums are
 * those of the product that goes tap by tap (product.h).
 *
 * A tile is 2 x 2 results. It reads 4 x 4 codes of each channel and takes 16 products of them where tap by tap it takes 36,
 * but of numbers of 16 bits: that pays where codes are multiplied as such anyway, which a table of kernels says by
 * its `pairs`. With g the weights of a channel and d its codes,
 *
 *     results = A^T [sum over channels of (G g G^T) x (B^T d B)] A     (x: element by element)
 *
 *           | 1  0 -1  0 |        | 1  0  0 |
 *     B^T = | 0  1  1  0 |    G = | 1  1  1 |    A^T = | 1 1/2  1/2  0 |
 *           | 0 -1  1  0 |        | 1 -1  1 |          | 0 1/2 -1/2 -1 |
 *           | 0  1  0 -1 |        | 0  0  1 |
 *
 * G has the middle rows of the paper twice and A^T halves instead, of sums that are even. In units of 255 * 128 a channel
 * adds at most 36 to one of the 16 sums, and 54 to a sum of A^T: with OCT_WINOGRAD_CHANNELS nothing reaches 2^31.
 */
#pragma once

#include "core/product/conv_window.h"

enum { OCT_WINOGRAD_CHANNELS = 1024 };

typedef struct oct_winograd {
    const oct_byte_product *bytes; /* NULL: this convolution goes tap by tap */
    /* Codes (samples, in_h, in_w, in_c), with `fill` outside, become sums (samples, out_h, out_w, out_c). */
    int64_t in_h, in_w, in_c, out_h, out_w, out_c;
    int64_t pad_top, pad_left;
    uint8_t fill;
    bool backward; /* weights are turned by half a turn, and their outputs summed over */
    /* A block is some whole samples, or an even number of lines of one. */
    int64_t period, lines;
    int64_t tile_columns, max_tiles;     /* of two lines, and of a block */
    int64_t packed_bytes, scratch_bytes; /* 64-byte aligned; scratch is of one thread */
    /* One of 16: weights and codes (bytes), sums (elements). */
    int64_t matrix_bytes, plane_bytes, sum_plane;
    int64_t lines_at, planes_at, sums_at; /* parts of scratch */
} oct_winograd;

/* Plans convolution s of codes, forward or backward to data, where it is one that goes this way. */
void oct_winograd_init(oct_winograd *w, const oct_byte_product *bytes, const oct_conv_shape *s,
                       oct_direction direction, uint8_t fill);
/* Transforms weights (O, 3, 3, I), forward or backward, those of panels [first, end). */
void oct_winograd_pack(const oct_winograd *w, const int8_t *codes, int64_t first, int64_t end,
                       void *packed);

typedef struct oct_winograd_block {
    int64_t samples, line, lines;
} oct_winograd_block;

/* Writes the sums of a block. x: codes of its first sample. */
void oct_winograd_multiply(const oct_winograd *w, const oct_winograd_block *b, const uint8_t *x,
                           const void *packed, int32_t *sums, void *scratch);
