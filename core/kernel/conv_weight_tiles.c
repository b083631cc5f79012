/* The gradient of the weights of 3x3 convolutions of codes by Winograd's F(3x3, 4x4) and F(3x3, 2x2), in whole numbers and
 * so exactly. A tile is 4 x 4 or, in small planes, 2 x 2 gradients q of an output; the nine taps multiply them with 6 x 6
 * or 4 x 4 codes d of a channel, the zero point subtracted. The sums of taps are
 *
 *     A^T [sum over tiles of (G q G^T) x (B^T d B)] A     (x: element by element; B^T of winograd.h)
 *
 *           | 1  0  0  0 |
 *           | 1  1  1  1 |                        | 6  4  4  1  1  0 |
 *       G = | 1 -1  1 -1 |     A^T = 1/24 times   | 0  4 -4  2 -2  0 |
 *           | 1  2  4  8 |                        | 0  4  4  4  4 24 |
 *           | 1 -2  4 -8 |
 *           | 0  0  0  1 |
 *
 * G q G^T is at most 225 * 128 and B^T d B 100 * 255: both have 16 bits. Sums wrap and are divided as those of winograd.h:
 * results are below 2^25, since PART pairs of tiles are summed at once, and those of up to TILES below 2^31.
 *
 * Of 2 x 2 gradients, with halves of sums that are even:
 *
 *           | 1  0 |
 *       G = | 1  1 |     A^T = | 1 1/2  1/2  0 |
 *           | 1 -1 |           | 0 1/2 -1/2  0 |
 *           | 0  1 |           | 0 1/2  1/2 -1 |
 *
 * Each of the 36 or 16 points is a product: input channels are its rows, outputs its columns, and a word is two tiles. */
#include "core/base/cpu.h"
#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "core/kernel/conv_impl.h"

#include <string.h>

enum {
    TAPS = 9,
    TILES = 2048,
    LEAST_SIDE = 4,        /* of a plane, */
    LEAST_POSITIONS = 128, /* and of a segment: fewer do not pay */
    PART = 32,             /* pairs of tiles: 1,024 gradients */
    MAX_VALUES = 1 << 16,  /* of an operand's point: all take 4.5 MiB */
    EDGE = OCT_WINOGRAD_EDGE,
    SIDE = OCT_WINOGRAD_SIDE,
    POINTS = OCT_TILES_POINTS,
    SUMS = OCT_TILES_ROWS * OCT_TILES_COLUMNS, /* of a point */
};

typedef oct_winograd_lanes lanes;
typedef oct_winograd_sums sums_of_lanes;
typedef oct_winograd_wrapping wrapping;
typedef float floats_of_lanes OCT_VECTOR(4 * OCT_WINOGRAD_SUMS);
typedef double doubles_of_lanes OCT_VECTOR(8 * OCT_WINOGRAD_SUMS);

/* Where scratch has what, in bytes. A line of tiles is filled up to whole pairs. */
typedef struct layout {
    int side, points; /* of a tile's gradients; of a tile */
    int64_t line_pairs, pairs;
    int64_t codes_plane, panels_plane; /* of a point */
    int64_t panels, lines, bytes;
} layout;

static layout layout_of(const oct_weight_plan *p, int64_t samples, int64_t channels)
{
    const oct_conv_shape *s = &p->s;
    layout l = {.side = oct_min_i64(s->out_h, s->out_w) > LEAST_SIDE ? 4 : 2};
    l.points = (l.side + 2) * (l.side + 2);
    l.line_pairs = oct_divide_up(s->out_w, 2 * l.side);
    l.pairs = samples * oct_divide_up(s->out_h, l.side) * l.line_pairs;
    /* A line more between points: those of one tile would share a set of the first-level cache. */
    l.codes_plane = l.pairs * channels * OCT_WORD + OCT_CACHE_LINE;
    l.panels_plane = l.pairs * s->out_c * OCT_WORD + OCT_CACHE_LINE;
    l.panels = l.points * l.codes_plane;
    l.lines = l.panels + p->digits * l.points * l.panels_plane;
    l.bytes = l.lines + oct_round_up((2 * l.side * l.line_pairs + 2) *
                                         oct_max_i64((l.side + 2) * s->in_c, l.side * s->out_c),
                                     OCT_CACHE_LINE);
    return l;
}

size_t oct_weight_tiles_bytes(const oct_weight_plan *p)
{
    const oct_conv_shape *s = &p->s;
    const int64_t side = oct_min_i64(s->out_h, s->out_w);
    if (!oct_winograd_can(p->bytes, s) || p->bytes->pairs_time > 1) return 0;
    if (s->in_c % OCT_WINOGRAD_LANES != 0 || s->out_c % OCT_WINOGRAD_LANES != 0) return 0;
    if (side < LEAST_SIDE || p->full * s->out_h * s->out_w < LEAST_POSITIONS) return 0;
    const layout l = layout_of(p, p->full, s->in_c);
    if (2 * l.pairs > TILES || 2 * l.pairs * oct_max_i64(s->in_c, s->out_c) > MAX_VALUES) return 0;
    return (size_t)l.bytes;
}

/* Writes `points` points of two tiles as words, `columns` of them side by side and the next ones `apart` bytes on. */
OCT_INLINE void write_words(lanes two[2][POINTS], const int points, int64_t plane,
                            const int columns, int64_t apart, char *to)
{
    for (int i = 0; i < points; i++, to += plane) {
        const lanes a = two[0][i], b = two[1][i];
        const lanes words[2] = {
            __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23),
            __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                    31)};
        for (int c = 0; c < OCT_WINOGRAD_LANES; c += columns)
            memcpy(to + c / columns * apart, (const char *)words + c * OCT_WORD,
                   (size_t)columns * OCT_WORD);
    }
}

/* A line of G q, or of its transpose. */
OCT_INLINE void transform_line(const int side, const lanes q[SIDE], lanes points[EDGE])
{
    if (side == 2) {
        points[0] = q[0];
        points[1] = q[0] + q[1];
        points[2] = q[0] - q[1];
        points[3] = q[1];
        return;
    }
    const lanes even = q[0] + q[2], odd = q[1] + q[3];
    const lanes far = q[0] + 4 * q[2], slope = 2 * (q[1] + 4 * q[3]);
    points[0] = q[0];
    points[1] = even + odd;
    points[2] = even - odd;
    points[3] = far + slope;
    points[4] = far - slope;
    points[5] = q[3];
}

/* Makes G q G^T of 16 outputs of a tile. */
OCT_INLINE void transform_tile(const int side, const int8_t *q, int64_t line, int64_t pixel,
                               lanes points[POINTS])
{
    lanes columns[SIDE][EDGE]; /* [x][point] */
    for (int x = 0; x < side; x++) {
        lanes of_column[SIDE];
        for (int y = 0; y < side; y++)
            OCT_WINOGRAD_WIDEN(q + y * line + x * pixel, of_column[y]);
        transform_line(side, of_column, columns[x]);
    }
    for (int y = 0; y < side + 2; y++, points += side + 2) {
        lanes row[SIDE];
        for (int x = 0; x < side; x++)
            row[x] = columns[x][y];
        transform_line(side, row, points);
    }
}

/* A line of tiles: its copy, and where it goes, as panels of channels side by side. */
typedef struct tile_line {
    const layout *l;
    int64_t channels, pixel, line; /* that are transformed; of the copy */
    int zero;                      /* of codes */
    int64_t first;                 /* pair */
    const char *copied;            /* from the first channel on */
    int64_t plane;                 /* of a point */
    char *to;
} tile_line;

/* Transforms codes or gradients: pair by pair those of 16 channels, then those of the next ones. */
OCT_INLINE void transform_line_as(const tile_line *t, const bool codes, const int side,
                                  const int columns)
{
    const int64_t panel = t->l->pairs * columns * OCT_WORD;
    const char *copied = t->copied;
    char *to = t->to + t->first * columns * OCT_WORD;
    for (int64_t pair = 0; pair < t->l->line_pairs; pair++, to += columns * OCT_WORD) {
        for (int64_t c = 0; c < t->channels; c += OCT_WINOGRAD_LANES) {
            lanes two[2][POINTS];
            for (int i = 0; i < 2; i++) {
                const void *tile = copied + side * i * t->pixel + c;
                if (codes)
                    oct_winograd_codes(side, tile, t->line, t->pixel, t->zero, sizeof(lanes),
                                       (char *)two[i]);
                else
                    transform_tile(side, tile, t->line, t->pixel, two[i]);
            }
            write_words(two, (side + 2) * (side + 2), t->plane, columns, panel,
                        to + c / columns * panel);
        }
        copied += 2 * side * t->pixel;
    }
}

OCT_CLONES static void transform_codes(const tile_line *t)
{
    if (t->l->side == 4)
        transform_line_as(t, true, 4, OCT_WINOGRAD_LANES);
    else
        transform_line_as(t, true, 2, OCT_WINOGRAD_LANES);
}

OCT_CLONES static void transform_gradients(const tile_line *t, int columns)
{
    const bool wide = t->l->side == 4;
    if (wide && columns == 8)
        transform_line_as(t, false, 4, 8);
    else if (columns == 8)
        transform_line_as(t, false, 2, 8);
    else if (wide)
        transform_line_as(t, false, 4, columns);
    else
        transform_line_as(t, false, 2, columns);
}

void oct_weight_pack_tiles(const oct_weight_plan *p, const oct_conv_weight_pass *pass,
                           const oct_weight_block *b, const oct_weight_scratch *r)
{
    const layout l = layout_of(p, p->samples, p->ins);
    const oct_conv_shape *s = &p->s;
    const int64_t width = 2 * l.side * l.line_pairs;
    const oct_winograd_lines codes = {.lines = s->in_h,
                                      .bytes = s->in_w * s->in_c,
                                      .before = s->pad_left * s->in_c,
                                      .to_bytes = (width + 2) * s->in_c,
                                      .fill = pass->x.zero_point};
    const oct_winograd_lines grads = {
        .lines = s->out_h, .bytes = s->out_w * s->out_c, .to_bytes = width * s->out_c};
    char *const lines = r->tiles + l.lines;
    tile_line of_codes = {.l = &l,
                          .channels = p->ins,
                          .pixel = s->in_c,
                          .line = codes.to_bytes,
                          .zero = pass->x.zero_point,
                          .copied = lines + b->channel,
                          .plane = l.codes_plane,
                          .to = r->tiles};
    tile_line of_grads = {.l = &l,
                          .channels = s->out_c,
                          .pixel = s->out_c,
                          .line = grads.to_bytes,
                          .copied = lines,
                          .plane = l.panels_plane};
    for (int64_t n = 0; n < p->samples; n++)
        for (int64_t y = 0; y < s->out_h; y += l.side) {
            oct_winograd_copy(&codes, pass->x.codes + n * codes.lines * codes.bytes, y - s->pad_top,
                              l.side + 2, lines);
            transform_codes(&of_codes);
            for (int i = 0; i < p->digits; i++) {
                const char *digits = i == 0 ? pass->grad : pass->low;
                oct_winograd_copy(&grads, digits + n * grads.lines * grads.bytes, y, l.side, lines);
                of_grads.to = r->tiles + l.panels + i * l.points * l.panels_plane;
                transform_gradients(&of_grads, p->bytes->col_tile);
            }
            of_codes.first = of_grads.first += l.line_pairs;
        }
}

/* A line of A^T m, or of its transpose. Of tiles of 4 x 4 the first is 24 times what it should be, the second 12, the
 * third 6. */
OCT_INLINE void transform_sums(const int side, const wrapping m[EDGE], wrapping results[3])
{
    const wrapping even = m[1] + m[2], odd = m[1] - m[2];
    if (side == 2) {
        const wrapping half = (wrapping)((sums_of_lanes)even >> 1);
        results[0] = m[0] + half;
        results[1] = (wrapping)((sums_of_lanes)odd >> 1);
        results[2] = half - m[3];
        return;
    }
    const wrapping far = m[3] + m[4], slope = m[3] - m[4];
    results[0] = 6 * m[0] + 4 * even + far;
    results[1] = 2 * odd + slope;
    results[2] = even + far + 6 * m[5];
}

/* Makes the sums of the nine taps from those of the points, or adds them to those of the tiles before. */
OCT_INLINE void sum_taps(const int side, const int32_t *points, bool first, int32_t *taps)
{
    wrapping rows[3][EDGE];
    for (int x = 0; x < side + 2; x++, points += SUMS) {
        wrapping m[EDGE], column[3];
        for (int y = 0; y < side + 2; y++)
            m[y] = *(const wrapping *)(points + (side + 2) * y * SUMS);
        transform_sums(side, m, column);
        for (int y = 0; y < 3; y++)
            rows[y][x] = column[y];
    }
    for (int y = 0; y < 3; y++) {
        wrapping results[3];
        transform_sums(side, rows[y], results);
        for (int x = 0; x < 3; x++, taps += SUMS) {
            sums_of_lanes *to = (sums_of_lanes *)taps, sum = (sums_of_lanes)results[x];
            if (side == 4) oct_winograd_divide(&results[x], 6 - y - x, &sum);
            if (!first) sum += *to;
            *to = sum;
        }
    }
}

OCT_CLONES static void sum_taps_of_part(const oct_weight_part *a, int side, const int32_t *points,
                                        bool first, int32_t *taps)
{
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t o = 0; o < a->columns; o += OCT_WINOGRAD_SUMS) {
            const int64_t at = r * OCT_TILES_COLUMNS + o;
            if (side == 4)
                sum_taps(4, points + at, first, taps + at);
            else
                sum_taps(2, points + at, first, taps + at);
        }
}

/* Makes floats of sums of taps; those of the lower digit come TAPS * SUMS later. */
OCT_INLINE void write_taps_as(const oct_weight_part *a, const int32_t *taps,
                              const oct_weight_factors *f, const bool wide, const bool add,
                              float *sums)
{
    for (int tap = 0; tap < TAPS; tap++, taps += SUMS)
        for (int64_t r = 0; r < a->rows; r++, sums += a->columns)
            for (int64_t o = 0; o < a->columns; o += OCT_WINOGRAD_SUMS) {
                const int32_t *from = taps + r * OCT_TILES_COLUMNS + o;
                const sums_of_lanes high = *(const sums_of_lanes *)from;
                const floats_of_lanes scale = *(const floats_of_lanes *)(f->scale + a->column + o);
                floats_of_lanes *to = (floats_of_lanes *)(sums + o);
                floats_of_lanes value = __builtin_convertvector(high, floats_of_lanes);
                /* Two digits are below 2^40 together: exact, and rounded once. */
                if (wide)
                    value = __builtin_convertvector(
                        256.0 * __builtin_convertvector(high, doubles_of_lanes) +
                            __builtin_convertvector(*(const sums_of_lanes *)(from + TAPS * SUMS),
                                                    doubles_of_lanes),
                        floats_of_lanes);
                value = scale * value;
                if (f->factor)
                    value = *(const floats_of_lanes *)(f->factor + a->column + o) * value;
                if (add)
                    *to += value;
                else
                    *to = 0.0F + value;
            }
}

OCT_CLONES static void write_taps(const oct_weight_part *a, const int32_t *taps,
                                  const oct_weight_factors *f, bool wide, bool add, float *sums)
{
    if (wide)
        write_taps_as(a, taps, f, true, add, sums);
    else if (add)
        write_taps_as(a, taps, f, false, true, sums);
    else
        write_taps_as(a, taps, f, false, false, sums);
}

bool oct_weight_next_part(const oct_weight_plan *p, oct_weight_part *a)
{
    a->first += a->rows;
    if (a->first == p->ins) {
        a->first = 0;
        a->column += a->columns;
    }
    a->rows = oct_min_i64(OCT_TILES_ROWS, p->ins - a->first);
    a->columns = oct_min_i64(OCT_TILES_COLUMNS, p->outs - a->column);
    return a->columns > 0;
}

void oct_weight_multiply_tiles(const oct_weight_plan *p, const oct_weight_part *a,
                               const oct_weight_scratch *r, const oct_weight_factors *f, bool add,
                               float *sums)
{
    const layout l = layout_of(p, p->samples, p->ins);
    const int64_t panel = l.pairs * p->bytes->col_tile * OCT_WORD;
    int32_t *const taps = r->points + POINTS * SUMS;
    oct_run run = {0};
    oct_row rows[OCT_TILES_ROWS];
    oct_product product = {.rows = rows,
                           .m = a->rows,
                           .n = a->columns,
                           .runs = &run,
                           .num_runs = 1,
                           .word_step = OCT_WINOGRAD_LANES * OCT_WORD,
                           .panel_bytes = panel};
    for (int64_t i = 0; i < a->rows; i++)
        rows[i] = (oct_row){
            (i / OCT_WINOGRAD_LANES * OCT_WINOGRAD_LANES * l.pairs + i % OCT_WINOGRAD_LANES) *
                OCT_WORD,
            i * OCT_TILES_COLUMNS};
    const char *const codes = r->tiles + a->first * l.pairs * OCT_WORD;
    const char *const panels = r->tiles + l.panels + a->column / p->bytes->col_tile * panel;
    for (int64_t first = 0; first < l.pairs; first += run.words) {
        run = (oct_run){first * product.word_step, first, oct_min_i64(PART, l.pairs - first)};
        for (int digit = 0; digit < p->digits; digit++) {
            for (int i = 0; i < l.points; i++) {
                product.x = codes + i * l.codes_plane;
                product.packed = panels + (digit * l.points + i) * l.panels_plane;
                product.acc = r->points + i * SUMS;
                p->bytes->pairs(&product);
            }
            sum_taps_of_part(a, l.side, r->points, first == 0, taps + digit * TAPS * SUMS);
        }
    }
    write_taps(a, taps, f, p->digits == 2, add, sums);
}
