/* Convolutions of codes by Winograd's F(2x2, 3x3) and F(4x4, 3x3) (Lavin and Gray 2016), in whole numbers and so exactly:
 * their sums are those of the product that goes tap by tap (product.h).
 *
 * A tile is 2 x 2 or 4 x 4 results. It reads 4 x 4 or 6 x 6 codes of each channel and takes 16 or 36 products of them where
 * tap by tap it takes 36 or 144, but of numbers of 16 bits: that pays where codes are multiplied as such anyway, which
 * a table of kernels says by its `pairs`. With g the weights of a channel and d its codes,
 *
 *     results = A^T [sum over channels of (G g G^T) x (B^T d B)] A     (x: element by element)
 *
 * Of 2 x 2 results:
 *
 *           | 1  0 -1  0 |        | 1  0  0 |
 *     B^T = | 0  1  1  0 |    G = | 1  1  1 |    A^T = | 1 1/2  1/2  0 |
 *           | 0 -1  1  0 |        | 1 -1  1 |          | 0 1/2 -1/2 -1 |
 *           | 0  1  0 -1 |        | 0  0  1 |
 *
 * G has the middle rows of the paper twice and A^T halves instead, of sums that are even. In units of 255 * 128 a channel
 * adds at most 36 to one of the 16 sums, and 54 to a sum of A^T: with OCT_WINOGRAD_CHANNELS nothing reaches 2^31.
 *
 * Of 4 x 4 results, with the fractions of G in A^T too:
 *
 *           | 4  0 -5  0  1  0 |        | 1  0  0 |                         | 6  4  4  1  1  0 |
 *           | 0  4  4 -1 -1  0 |        | 1  1  1 |                         | 0  4 -4  2 -2  0 |
 *     B^T = | 0 -4  4  1 -1  0 |    G = | 1 -1  1 |    A^T = 1/24 times     | 0  4  4  4  4  0 |
 *           | 0 -2 -1  2  1  0 |        | 1  2  4 |                         | 0  4 -4  8 -8 24 |
 *           | 0  2 -1 -2  1  0 |        | 1 -2  4 |
 *           | 0  4  0 -5  0  1 |        | 0  0  1 |
 *
 * B^T d B is at most 68 * 255 and G g G^T 49 * 128: both have 16 bits. Sums wrap modulo 2^32; in the end those of A^T are
 * multiplied by the inverse of 9 and shifted by at most 6, which gives every result below 2^25: those of 114 channels.
 */
#pragma once

#include "core/product/conv_window.h"

enum {
    OCT_WINOGRAD_CHANNELS = 1024,
    OCT_WINOGRAD_POINTS = 16, /* of a tile of 2 x 2, or of weights, transformed */
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

/* Widens 16 codes, from `from` on, element by element: gcc 12 makes two halves of a __builtin_convertvector. */
#define OCT_WINOGRAD_WIDEN(from, lanes)                                                            \
    do {                                                                                           \
        for (int lane_ = 0; lane_ < OCT_WINOGRAD_LANES; lane_++)                                   \
            (lanes)[lane_] = (from)[lane_];                                                        \
    } while (0)

/* Makes B^T d B of 16 channels of a tile: pixels and lines of d, less `zero`, are pixel and line codes apart. */
static inline __attribute__((always_inline)) void
oct_winograd_codes(const uint8_t *d, int64_t line, int64_t pixel, int16_t zero,
                   oct_winograd_lanes points[OCT_WINOGRAD_POINTS])
{
    oct_winograd_lanes rows[4][4];
    for (int x = 0; x < 4; x++, d += pixel) {
        oct_winograd_lanes c[4];
        for (int y = 0; y < 4; y++)
            OCT_WINOGRAD_WIDEN(d + y * line, c[y]);
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
    int side;      /* of a tile's results: 2 or 4 */
    int points;    /* of a tile */
    /* A block is some whole samples, or whole lines of tiles of one. */
    int64_t period, lines;
    int64_t tile_columns, max_tiles;     /* of a line, and of a block */
    int64_t packed_bytes, scratch_bytes; /* 64-byte aligned; scratch is of one thread */
    /* Of a point: weights and codes (bytes), sums (elements). */
    int64_t matrix_bytes, plane_bytes, sum_plane;
    int64_t lines_at, planes_at, sums_at; /* parts of scratch */
} oct_winograd;

/* Whether s is a convolution whose products of codes may go this way; samples: that most calls will have, 1 if not known. */
bool oct_winograd_fits(const oct_byte_product *bytes, const oct_conv_shape *s, int64_t samples);
/* Plans convolution s of codes, forward or backward to data, where it is one that goes this way. */
void oct_winograd_init(oct_winograd *w, const oct_byte_product *bytes, const oct_conv_shape *s,
                       int64_t samples, oct_direction direction, uint8_t fill);
/* Transforms weights (O, 3, 3, I), forward or backward, those of panels [first, end). */
void oct_winograd_pack(const oct_winograd *w, const int8_t *codes, int64_t first, int64_t end,
                       void *packed);

typedef struct oct_winograd_block {
    int64_t samples, line, lines;
} oct_winograd_block;

/* Writes the sums of a block. x: codes of its first sample. */
void oct_winograd_multiply(const oct_winograd *w, const oct_winograd_block *b, const uint8_t *x,
                           const void *packed, int32_t *sums, void *scratch);
