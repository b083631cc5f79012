/* Convolutions of codes by Winograd's F(4x4, 3x3) and F(2x2, 3x3) (Lavin and Gray 2016), in whole numbers and so exactly:
 * their sums are those of the product that goes tap by tap (product.h).
 *
 * A tile is 4 x 4 or 2 x 2 results. It reads 6 x 6 or 4 x 4 codes of each channel and takes 36 or 16 products of them where
 * tap by tap it takes 144 or 36, but of numbers of 16 bits, by a table's `pairs`. With g the weights of a channel and d its
 * codes less 128,
 *
 *     results = A^T [sum over channels of (G g G^T) x (B^T d B)] A + 128 * sum of g     (x: element by element)
 *
 * Of 4 x 4 results, with the fractions of the paper's G in A^T:
 *
 *           | 4  0 -5  0  1  0 |        | 1  0  0 |                         | 6  4  4  1  1  0 |
 *           | 0  4  4 -1 -1  0 |        | 1  1  1 |                         | 0  4 -4  2 -2  0 |
 *     B^T = | 0 -4  4  1 -1  0 |    G = | 1 -1  1 |    A^T = 1/24 times     | 0  4  4  4  4  0 |
 *           | 0 -2 -1  2  1  0 |        | 1  2  4 |                         | 0  4 -4  8 -8 24 |
 *           | 0  2 -1 -2  1  0 |        | 1 -2  4 |
 *           | 0  4  0 -5  0  1 |        | 0  0  1 |
 *
 * B^T d B is at most 100 * 128 and G g G^T 49 * 128: both have 16 bits. Sums wrap modulo 2^32; in the end those of A^T are
 * multiplied by the inverse of 9 and shifted by at most 6, which gives every result below 2^25: those of 227 channels.
 * More go part by part.
 *
 * Of 2 x 2 results, with halves of sums that are even. In units of 128 * 128 a channel adds at most 36 to one of the 16
 * sums and 54 to a sum of A^T: those of 1,024 channels are below 2^31.
 *
 *           | 1  0 -1  0 |        | 1  0  0 |
 *     B^T = | 0  1  1  0 |    G = | 1  1  1 |    A^T = | 1 1/2  1/2  0 |
 *           | 0 -1  1  0 |        | 1 -1  1 |          | 0 1/2 -1/2 -1 |
 *           | 0  1  0 -1 |        | 0  0  1 |
 */
#pragma once

#include "core/base/cpu.h"
#include "core/product/conv_window.h"

enum {
    OCT_WINOGRAD_SIDE = 4, /* of a tile's results, at most */
    OCT_WINOGRAD_EDGE = 6, /* of its codes and its points, at most: 2 more */
    OCT_WINOGRAD_CENTER = 128,
    OCT_WINOGRAD_LANES = 16, /* channels that are transformed at once */
    OCT_WINOGRAD_SUMS = 8,   /* columns whose sums are */
};

/* Vectors, at any address. */
#define OCT_VECTOR(bytes) __attribute__((vector_size(bytes), aligned(1), may_alias))
typedef int16_t oct_winograd_lanes OCT_VECTOR(2 * OCT_WINOGRAD_LANES);
typedef int32_t oct_winograd_sums OCT_VECTOR(4 * OCT_WINOGRAD_SUMS);
typedef uint32_t oct_winograd_wrapping OCT_VECTOR(4 * OCT_WINOGRAD_SUMS);

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

/* A line of B^T d, or of its transpose. */
OCT_INLINE void oct_winograd_line(const int side, const oct_winograd_lanes *d,
                                  oct_winograd_lanes *points)
{
    if (side == 2) {
        points[0] = d[0] - d[2];
        points[1] = d[1] + d[2];
        points[2] = d[2] - d[1];
        points[3] = d[1] - d[3];
        return;
    }
    const oct_winograd_lanes near = d[3] - d[1], far = d[4] - d[2];
    points[0] = 4 * (d[0] - d[2]) + far;
    points[1] = 4 * (d[1] + d[2]) - (d[3] + d[4]);
    points[2] = 4 * (d[2] - d[1]) + (d[3] - d[4]);
    points[3] = far + 2 * near;
    points[4] = far - 2 * near;
    points[5] = (d[5] - d[3]) - 4 * near;
}

/* Makes B^T d B of 16 channels of a tile, from one point to the next `apart` bytes: pixels and lines of d, less `zero`, are
 * pixel and line codes apart. The zero cancels out in all points but one, the second of the second line. */
OCT_INLINE void oct_winograd_codes(const int side, const uint8_t *d, int64_t line, int64_t pixel,
                                   int zero, int64_t apart, char *to)
{
    enum { EDGE = OCT_WINOGRAD_EDGE };
    oct_winograd_lanes columns[EDGE][EDGE]; /* [x][point] */
    for (int x = 0; x < side + 2; x++) {
        oct_winograd_lanes c[EDGE];
        for (int y = 0; y < side + 2; y++)
            OCT_WINOGRAD_WIDEN(d + y * line + x * pixel, c[y]);
        oct_winograd_line(side, c, columns[x]);
    }
    const int ones = side == 2 ? 2 : 6; /* what a line of B^T makes of ones */
    for (int y = 0; y < side + 2; y++) {
        oct_winograd_lanes row[EDGE], points[EDGE];
        for (int x = 0; x < side + 2; x++)
            row[x] = columns[x][y];
        oct_winograd_line(side, row, points);
        if (y == 1) points[1] -= (int16_t)(ones * ones * zero);
        for (int x = 0; x < side + 2; x++, to += apart)
            *(oct_winograd_lanes *)to = points[x];
    }
}

/* Divides by 9 * 2^shift a sum that is a multiple of it modulo 2^32. */
OCT_INLINE void oct_winograd_divide(const oct_winograd_wrapping *sum, int shift,
                                    oct_winograd_sums *result)
{
    *result = (oct_winograd_sums)(*sum * 0x38E38E39U) >> shift;
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
    int64_t part;                        /* input channels that are summed at once */
    int64_t columns;                     /* output channels of a product: whole panels */
    int64_t packed_bytes, scratch_bytes; /* 64-byte aligned; scratch is of one thread */
    /* Of a point: weights and codes (bytes), sums (elements). */
    int64_t matrix_bytes, plane_bytes, sum_plane;
    int64_t
        center_at; /* in packed weights: what OCT_WINOGRAD_CENTER in place of every code makes, int32 (out_c) */
    int64_t lines_at, planes_at, sums_at; /* parts of scratch */
} oct_winograd;

/* Whether s is a convolution that can go this way. */
bool oct_winograd_can(const oct_byte_product *bytes, const oct_conv_shape *s);
/* Returns the side of tiles by which products of codes of convolution s go, 0 if they do not; samples: that most calls will
 * have, 1 if not known. */
int oct_winograd_side(const oct_byte_product *bytes, const oct_conv_shape *s, int64_t samples);
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
