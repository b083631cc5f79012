/* The files that implement conv.h share this. */
#pragma once

#include "core/base/half.h"
#include "core/kernel/conv.h"

enum {
    OCT_PAIR_COLUMNS = 16,    /* of a panel whose words are two bfloat16 */
    OCT_DEPTHWISE_LANES = 16, /* channels that are worked together */
    /* Columns that are packed at once, in a loop that vectors take well: a cache line of codes. A
     * multiple of every table's panel. */
    OCT_PACKED_COLUMNS = 64,
    OCT_CHUNK_ROWS =
        96, /* whose sums of codes become floats together: whole blocks of a microkernel */
    OCT_CHUNK_COLUMNS = 128, /* the same, whole panels */
};

/* Returns the words that `values` values of a row take; bfloat16 ones are filled up to whole quads. */
static inline int64_t oct_row_words(const oct_float_kernel *k, bool bf16, int64_t values)
{
    if (!bf16) return values;
    return (values + 3) / 4 * (k->bf16_words == OCT_BF16_FLOATS ? 4 : 2);
}

/* Says which elements of a quad word 0 or 1 has in its two halves. */
static inline void oct_halves_of_word(const oct_float_kernel *k, int word, int *lower, int *upper)
{
    const bool parities = k->bf16_words == OCT_BF16_PARITIES;
    *lower = parities ? word + 2 : 2 * word;
    *upper = parities ? word : 2 * word + 1;
}

/* Returns where element i is in a row of two-byte elements. */
static inline int64_t oct_place_in_quads(const oct_float_kernel *k, int64_t i)
{
    static const int place[4] = {1, 3, 0, 2};
    return k->bf16_words == OCT_BF16_PARITIES ? i / 4 * 4 + place[i % 4] : i;
}

/* to = whole quads of bfloat16 elements as OCT_BF16_PARITIES has them; from == to is fine. */
static inline void oct_order_quads(int64_t elements, const uint16_t *from, uint16_t *to)
{
    typedef uint16_t pair __attribute__((vector_size(16)));
    typedef uint16_t quad __attribute__((vector_size(8))); /* which no wider load has to wait for */
    pair two;
    quad one;
    int64_t i = 0;
    for (; i + 8 <= elements; i += 8) {
        memcpy(&two, from + i, sizeof two);
        two = __builtin_shufflevector(two, two, 2, 0, 3, 1, 6, 4, 7, 5);
        memcpy(to + i, &two, sizeof two);
    }
    if (i == elements) return;
    memcpy(&one, from + i, sizeof one);
    one = __builtin_shufflevector(one, one, 2, 0, 3, 1);
    memcpy(to + i, &one, sizeof one);
}

/* Rows of codes, `pitch` apart, with `columns` codes each. */
typedef struct oct_code_rows {
    const int8_t *codes;
    int64_t rows, columns, pitch;
} oct_code_rows;

/* Packs rows into panels: four rows (zeros after the last) are the words of one tile in each panel, panels being
 * panel_bytes apart, the next four those of the next tile. tile: the first one of the first panel. */
void oct_pack_words(const oct_byte_product *k, const oct_code_rows *r, char *tile,
                    int64_t panel_bytes);

/* The gradient to the input of INT8 numerics (conv_bytes.c), as oct_conv_backward_data. */
void oct_conv_byte_pack(const oct_conv_plan *p, const int8_t *codes, void *packed);
void oct_conv_byte_multiply(const oct_conv_plan *p, const oct_conv_pass *pass, void *scratch);

/* A group's part of rows: `n` channels of `pitch`, times factor (NULL: 1); bytes: of a row that is written. */
typedef struct oct_group_rows {
    int64_t rows, n, pitch, bytes;
    const float *from, *factor;
} oct_group_rows;

/* Rounds rows to bfloat16 as words of this table, filled up to whole quads. */
void oct_round_rows(const oct_float_kernel *k, const oct_group_rows *rows, char *to);

/* Fills in the part of a plan that is about weight gradients (conv_weight_plan.c). */
void oct_weight_product_init(oct_conv_plan *p);

/* Plans the products that the plan is for. Depthwise layers have one filter a channel. Gradients of the output are rows
 * of floats, (positions, C), whatever the numerics. Every element of y and grad_x is one sum over all taps, those in
 * the padding as zeros; products and sums are rounded one by one. With a group a channel, the transposed layout of sums
 * is that of the weights. */
void oct_depthwise_plan_init(oct_conv_plan *p);
void oct_depthwise_pack(const oct_conv_shape *s, const float *weight, const int8_t *codes,
                        oct_direction direction, void *packed);
void oct_depthwise_multiply(const oct_depthwise_plan *p, const oct_conv_pass *pass, void *scratch);
/* sums (C, taps) = or += factor * weight gradient over the samples. The channels of a pass begin at a multiple of
 * OCT_DEPTHWISE_LANES, and end at one or with all. */
void oct_depthwise_backward_weight(const oct_conv_plan *plan, const oct_conv_weight_pass *pass,
                                   void *scratch);

/* The gradient of weights (conv_weight.c) is multiplied from two operands (conv_weight_operands.c).
 *
 * The input is transposed into planes, one for each channel, so that a row of the product is a start in a
 * plane and its runs are the lines of the output: tap (ky, kx) begins ky lines lower and kx columns
 * further, times the dilation. With a stride, the columns of a line are sorted by their remainder, so that what a tap
 * sees is contiguous. Planes have zeros around them. Gradients become panels of words of one position or, of
 * bfloat16, two of a quad of neighbours in a line, or of four (codes). Both are made for one block of positions after the
 * other; how many a block of bfloat16 has is the same for all tables, since a call begins with a block of its sums.
 *
 * Codes (INT8) stay codes: padding is the zero point, and of sums of q * code is subtracted zero_point * sum of q, the
 * offset, for which there is one more plane, of zero points alone. Sums of codes are whole numbers for a segment of a leaf,
 * at most OCT_CONV_MAX_CODES positions; then they become floats, times the segment's scale of each output, and are added.
 */
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
    float *sums;      /* of a chunk, or of all rows where they are made of several parts */
    /* INT8: the sums of codes of a chunk, or of all rows where there are several blocks, and the offsets of every ky (of a
     * leaf); the lower digits' come acc_sums and num_offsets elements later. */
    int32_t *acc, *offsets;
    int64_t acc_sums, num_offsets;
    float *waiting[OCT_LEAF_GROUP_LEVELS]; /* sums of a part over subtrees of several leaves */
    oct_row *rows;
    oct_run *runs;
    /* Tile by tile, beside sums and `waiting`: operands of a leaf, and sums of points of a part. */
    char *tiles;
    size_t tiles_bytes;
    int32_t *points;
    char *grad;     /* a line of the gradient, rounded */
    char *raw;      /* a line of all planes before its quads are ordered */
    float *values;  /* a patch, as it is or transposed */
    uint8_t *codes; /* a transposed patch */
} oct_weight_scratch;

/* A block has positions: lines [line, line + lines) of samples [sample, sample + samples). */
typedef struct oct_weight_block {
    int64_t group;   /* of the convolution */
    int64_t channel; /* first one of the input, of all groups */
    int64_t sample, samples, line, lines;
    bool first, last; /* sums begin with it; the gradient is complete after it and is written */
    bool ends, fresh; /* INT8: sums of codes become floats after it; these are set, not added */
} oct_weight_block;

/* Kernel rows with the same lines of a block are multiplied together. */
typedef struct oct_kernel_rows {
    int64_t first, end;
    int64_t line, lines; /* of the block: only these are not all padding */
} oct_kernel_rows;

/* Returns the lines of a plane that the taps of `lines` lines of the output see. */
static inline int64_t oct_weight_plane_lines(const oct_weight_plan *p, int64_t lines)
{
    const oct_conv_shape *s = &p->s;
    return (lines - 1) * s->stride_h + oct_conv_extent(s->kernel_h, s->dilation_h);
}

/* Sums that are made together: of columns [column, column + columns) of the product, and of its rows
 * [first, first + rows), or tile by tile of all taps of that many channels. */
typedef struct oct_weight_part {
    int64_t first, rows, column, columns;
} oct_weight_part;

/* Plans the gradient of a segment of `samples` samples, in blocks of samples or lines with about 1,024 values, of
 * codes words, of bfloat16 twice as many: as many for all tables, whose sums begin again with a block. */
oct_weight_plan oct_weight_segment_plan(const oct_conv_config *c, int64_t samples);
/* Lays scratch out (NULL: nowhere) for `leaves` leaves; returns its bytes, enough for fewer samples, too. Several
 * blocks need sums of all rows, one only those of a chunk; leaves of a group a second list of runs, and sums that
 * wait in the tree. Tile by tile there are only operands, sums of points, and sums: of all parts where segments are
 * several, otherwise of one. */
size_t oct_weight_lay_out(const oct_weight_plan *p, int64_t leaves, void *scratch,
                          oct_weight_scratch *r);

/* Returns the plan of one line of all planes before its quads are ordered: as long as all copies need it. */
static inline oct_weight_plan oct_weight_raw_plan(const oct_weight_plan *p)
{
    oct_weight_plan raw = *p;
    raw.pitch = p->pitch + p->copies - 1;
    raw.plane = raw.line = p->phases * raw.pitch;
    return raw;
}

/* Packs the operands of a block: planes of p->ins channels of the input, as far as the taps see them, and panels of the
 * gradient's rows of a group, line by line of the output. With two digits the panels of the lower one follow those of the
 * higher. */
void oct_weight_pack_block(const oct_weight_plan *p, const oct_conv_weight_pass *pass,
                           const oct_weight_block *b, const oct_weight_scratch *r);

/* Moves c to the next kernel rows whose weight gradients are one matrix product; false at the end. Neighbours that are
 * inside the input for the same lines of the output share one. Where a product for each would be too small to pay, one
 * has all, with padding for what is outside. */
bool oct_weight_next_rows(const oct_weight_plan *p, const oct_weight_block *b, oct_kernel_rows *c);
/* Lists the runs of a row of the product: each output line that the kernel rows see, in a plane and among the tiles. */
int64_t oct_weight_list_runs(const oct_weight_plan *p, const oct_weight_block *b,
                             const oct_kernel_rows *c, oct_run *runs);
/* Lists where rows [first, first + m) of the product, which are (ky, kx, channel), begin in planes and sums. */
void oct_weight_list_rows(const oct_weight_plan *p, int64_t first, int64_t m, oct_row *rows);

/* Multiplies rows [at, at + product->m), which are listed, with all panels: sums (m, outs) = or += (product->add) their
 * products. INT8: those are summed as whole numbers until the block ends that. */
void oct_weight_multiply_rows(const oct_weight_plan *p, const oct_weight_block *b,
                              const oct_weight_scratch *r, oct_product *product, int64_t at,
                              const float *scale, float *sums);
/* INT8 (otherwise nothing): r->offsets of kernel rows c = or += (product->add) zero_point * sum of q over the lines that
 * they read, a product with the plane of zero points. product: that of these rows, with its runs. Overwrites r->rows. */
void oct_weight_compute_offsets(const oct_weight_plan *p, const oct_kernel_rows *c,
                                const oct_weight_scratch *r, const oct_product *product);

/* INT8, tile by tile in place of these (conv_weight_tiles.c). Of a part, whose sums of all points stay in the
 * second-level cache: */
enum { OCT_TILES_ROWS = 48, OCT_TILES_COLUMNS = 32, OCT_TILES_POINTS = 36 };
/* Returns the bytes of the operands of a full segment, or 0 where segments do not go this way. */
size_t oct_weight_tiles_bytes(const oct_weight_plan *p);
/* Packs the operands of a whole segment. */
void oct_weight_pack_tiles(const oct_weight_plan *p, const oct_conv_weight_pass *pass,
                           const oct_weight_block *b, const oct_weight_scratch *r);
/* Moves a, at first {0}, to the next part of the sums; false at the end. */
bool oct_weight_next_part(const oct_weight_plan *p, oct_weight_part *a);
/* What sums of codes are multiplied with, one after the other, of each output; factor NULL: 1. */
typedef struct oct_weight_factors {
    const float *scale, *factor;
} oct_weight_factors;
/* sums (taps, a->rows, a->columns) = or += (add) those of the segment. */
void oct_weight_multiply_tiles(const oct_weight_plan *p, const oct_weight_part *a,
                               const oct_weight_scratch *r, const oct_weight_factors *f, bool add,
                               float *sums);
