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

enum {
    OCT_WINOGRAD_CHANNELS = 1024,
    OCT_WINOGRAD_POINTS = 16, /* of a tile, or of weights, transformed */
    OCT_WINOGRAD_LANES = 16,  /* channels that are transformed at once */
    OCT_WINOGRAD_SUMS = 8,    /* columns whose sums are */
};

/* Vectors, at any address. */
#define OCT_VECTOR(bytes) __attribute__((vector_size(bytes), aligned(1), may_alias))
typedef int16_t oct_winograd_lanes OCT_VECTOR(2 * OCT_WINOGRAD_LANES);
typedef int32_t oct_winograd_sums OCT_VECTOR(4 * OCT_WINOGRAD_SUMS);

/* Lines of a plane, of `bytes` each, that are copied to lines of to_bytes: from `before` bytes on, with `fill` around them. A
 * copy may be too short for a line's end. */
typedef struct oct_winograd_lines {
    int64_t lines, bytes, before, to_bytes;
    int fill;
} oct_winograd_lines;

/* Copies lines [first, first + count), those outside of the plane too. */
void oct_winograd_copy(const oct_winograd_lines *l, const void *plane, int64_t first, int64_t count,
                       void *to);

/* Makes B^T d B of 16 channels of a tile: pixels and lines of d, less `zero`, are pixel and line codes apart. */
static inline __attribute__((always_inline)) void
oct_winograd_codes(const uint8_t *d, int64_t line, int64_t pixel, int16_t zero,
                   oct_winograd_lanes points[OCT_WINOGRAD_POINTS])
{
    typedef uint8_t codes OCT_VECTOR(OCT_WINOGRAD_LANES);
    oct_winograd_lanes rows[4][4];
    for (int x = 0; x < 4; x++, d += pixel) {
        oct_winograd_lanes c[4];
        for (int y = 0; y < 4; y++)
            c[y] = __builtin_convertvector(*(const codes *)(d + y * line), oct_winograd_lanes);
        rows[0][x] = c[0] - c[2];
        rows[1][x] = c[1] + c[2] - (int16_t)(2 * zero); /* from the other rows it cancels out */
        rows[2][x] = c[2] - c[1];
        rows[3][x] = c[1] - c[3];
    }
    for (int y = 0; y < 4; y++, points += 4) {
        const oct_winograd_lanes *r = rows[y];
        points[0] = r[0] - r[2];
        points[1] = r[1] + r[2];
        points[2] = r[2] - r[1];
        points[3] = r[1] - r[3];
    }
}

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

/* Whether s is a convolution whose products of codes may go this way. */
bool oct_winograd_fits(const oct_byte_product *bytes, const oct_conv_shape *s);
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
