/* The gradient of the weights of 3x3 convolutions of codes by Winograd's F(3x3, 2x2), in whole numbers and so exactly, where
 * winograd.h pays. A tile is 2 x 2 gradients q of an output; the nine taps multiply them with 4 x 4 codes d of a channel,
 * the zero point subtracted. The sums of taps are
 *
 *     A^T [sum over tiles of (G q G^T) x (B^T d B)] A     (x: element by element; B^T of 2 x 2 results in winograd.h)
 *
 *           | 1  0 |
 *       G = | 1  1 |     A^T = | 1 1/2  1/2  0 |
 *           | 1 -1 |           | 0 1/2 -1/2  0 |
 *           | 0  1 |           | 0 1/2  1/2 -1 |
 *
 * with halves of sums that are even. In units of 255 * 128 a tile adds at most 16 to any sum on this way, so TILES of them
 * stay below 2^31.
 *
 * Each of the 16 points of all tiles of a segment is a product: input channels are its rows, outputs its columns, and a
 * word is two tiles. */
#include "core/base/cpu.h"
#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "core/kernel/conv_impl.h"

#include <string.h>

enum {
    TAPS = 9,
    TILES = 4096,
    MAX_VALUES = 1 << 16, /* of an operand's point: all 16 take 2 MiB */
    LEAST_COLUMNS = 4,
    MOST_COLUMNS = 8,                          /* of a panel: one of these */
    SUMS = OCT_TILES_ROWS * OCT_TILES_COLUMNS, /* of a point */
};

typedef float floats_of_lanes OCT_VECTOR(4 * OCT_WINOGRAD_SUMS);
typedef double doubles_of_lanes OCT_VECTOR(8 * OCT_WINOGRAD_SUMS);

/* Where scratch has what, in bytes. A line of tiles is two lines of the output, filled up to whole pairs. */
typedef struct layout {
    int64_t line_pairs, pairs;
    int64_t codes_plane, panels_plane; /* of a point */
    int64_t panels, lines, bytes;
} layout;

static layout layout_of(const oct_weight_plan *p, int64_t samples, int64_t channels)
{
    const oct_conv_shape *s = &p->s;
    layout l = {.line_pairs = (s->out_w + 3) / 4};
    l.pairs = samples * ((s->out_h + 1) / 2) * l.line_pairs;
    /* A line more between points: those of one tile would share a set of the first-level cache. */
    l.codes_plane = l.pairs * channels * OCT_WORD + OCT_CACHE_LINE;
    l.panels_plane = l.pairs * s->out_c * OCT_WORD + OCT_CACHE_LINE;
    l.panels = OCT_WINOGRAD_POINTS * l.codes_plane;
    l.lines = l.panels + p->digits * OCT_WINOGRAD_POINTS * l.panels_plane;
    l.bytes =
        l.lines + oct_round_up((4 * l.line_pairs + 2) * oct_max_i64(4 * s->in_c, 2 * s->out_c),
                               OCT_CACHE_LINE);
    return l;
}

size_t oct_weight_tiles_bytes(const oct_weight_plan *p)
{
    const oct_conv_shape *s = &p->s;
    const bool lanes = s->in_c % OCT_WINOGRAD_LANES == 0 && s->out_c % OCT_WINOGRAD_LANES == 0;
    if (!oct_winograd_fits(p->bytes, s, p->full) || !lanes) return 0;
    if (p->bytes->col_tile != LEAST_COLUMNS && p->bytes->col_tile != MOST_COLUMNS) return 0;
    const layout l = layout_of(p, p->full, s->in_c);
    if (2 * l.pairs > TILES || 2 * l.pairs * oct_max_i64(s->in_c, s->out_c) > MAX_VALUES) return 0;
    return (size_t)l.bytes;
}

/* Writes the points of two tiles as words, `columns` of them side by side and the next ones `apart` bytes on. */
static inline __attribute__((always_inline)) void
write_words(oct_winograd_lanes two[2][OCT_WINOGRAD_POINTS], int64_t plane, const int columns,
            int64_t apart, char *to)
{
    for (int i = 0; i < OCT_WINOGRAD_POINTS; i++, to += plane) {
        const oct_winograd_lanes a = two[0][i], b = two[1][i];
        const oct_winograd_lanes words[2] = {
            __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23),
            __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                    31)};
        for (int c = 0; c < OCT_WINOGRAD_LANES; c += columns)
            memcpy(to + c / columns * apart, (const char *)words + c * OCT_WORD,
                   (size_t)columns * OCT_WORD);
    }
}

/* Transforms the codes of p->ins channels for the line of tiles that begins with pair `first`: pair by pair those of 16
 * channels, then those of the next ones. copied: four lines, from the first channel on. */
OCT_CLONES static void transform_codes(const oct_weight_plan *p, const layout *l, int64_t first,
                                       const uint8_t *copied, int16_t zero_point, char *planes)
{
    const int64_t pixel = p->s.in_c, line = (4 * l->line_pairs + 2) * pixel;
    for (int64_t pair = first; pair < first + l->line_pairs; pair++, copied += 4 * pixel)
        for (int64_t c = 0; c < p->ins; c += OCT_WINOGRAD_LANES) {
            oct_winograd_lanes two[2][OCT_WINOGRAD_POINTS];
            for (int i = 0; i < 2; i++)
                oct_winograd_codes(copied + c + 2 * i * pixel, line, pixel, zero_point, two[i]);
            write_words(two, l->codes_plane, OCT_WINOGRAD_LANES, 0,
                        planes + (c * l->pairs + OCT_WINOGRAD_LANES * pair) * OCT_WORD);
        }
}

static inline __attribute__((always_inline)) void
transform_gradients_as(const oct_weight_plan *p, const layout *l, const int8_t *copied,
                       const int columns, char *panels)
{
    const int64_t pixel = p->s.out_c, line = 4 * l->line_pairs * pixel;
    const int64_t panel = l->pairs * columns * OCT_WORD;
    for (int64_t pair = 0; pair < l->line_pairs; pair++, copied += 4 * pixel)
        for (int64_t c = 0; c < pixel; c += OCT_WINOGRAD_LANES) {
            oct_winograd_lanes two[2][OCT_WINOGRAD_POINTS];
            for (int i = 0; i < 2; i++) {
                oct_winograd_lanes rows[4][2], *to = two[i];
                for (int x = 0; x < 2; x++) {
                    const int8_t *from = copied + c + (2 * i + x) * pixel;
                    OCT_WINOGRAD_WIDEN(from, rows[0][x]);
                    OCT_WINOGRAD_WIDEN(from + line, rows[3][x]);
                    rows[1][x] = rows[0][x] + rows[3][x];
                    rows[2][x] = rows[0][x] - rows[3][x];
                }
                for (int y = 0; y < 4; y++, to += 4) {
                    to[0] = rows[y][0];
                    to[1] = rows[y][0] + rows[y][1];
                    to[2] = rows[y][0] - rows[y][1];
                    to[3] = rows[y][1];
                }
            }
            write_words(two, l->panels_plane, columns, panel,
                        panels + c / columns * panel + pair * columns * OCT_WORD);
        }
}

/* Transforms the gradients of a line of tiles into panels. copied: two lines. */
OCT_CLONES static void transform_gradients(const oct_weight_plan *p, const layout *l,
                                           const int8_t *copied, char *panels)
{
    if (p->bytes->col_tile == MOST_COLUMNS)
        transform_gradients_as(p, l, copied, MOST_COLUMNS, panels);
    else
        transform_gradients_as(p, l, copied, LEAST_COLUMNS, panels);
}

void oct_weight_pack_tiles(const oct_weight_plan *p, const oct_conv_weight_pass *pass,
                           const oct_weight_block *b, const oct_weight_scratch *r)
{
    const layout l = layout_of(p, p->samples, p->ins);
    const oct_conv_shape *s = &p->s;
    const int64_t width = 4 * l.line_pairs;
    const oct_winograd_lines codes = {.lines = s->in_h,
                                      .bytes = s->in_w * s->in_c,
                                      .before = s->pad_left * s->in_c,
                                      .to_bytes = (width + 2) * s->in_c,
                                      .fill = pass->x.zero_point};
    const oct_winograd_lines grads = {
        .lines = s->out_h, .bytes = s->out_w * s->out_c, .to_bytes = width * s->out_c};
    char *lines = r->tiles + l.lines;
    const void *const digits[] = {pass->grad, pass->low};
    int64_t pair = 0;
    for (int64_t n = 0; n < p->samples; n++)
        for (int64_t y = 0; y < s->out_h; y += 2, pair += l.line_pairs) {
            oct_winograd_copy(&codes, pass->x.codes + n * codes.lines * codes.bytes, y - s->pad_top,
                              4, lines);
            transform_codes(p, &l, pair, (const uint8_t *)lines + b->channel,
                            (int16_t)pass->x.zero_point, r->tiles);
            for (int i = 0; i < p->digits; i++) {
                oct_winograd_copy(&grads, (const char *)digits[i] + n * grads.lines * grads.bytes,
                                  y, 2, lines);
                transform_gradients(p, &l, (const int8_t *)lines,
                                    r->tiles + l.panels + i * OCT_WINOGRAD_POINTS * l.panels_plane +
                                        pair * p->bytes->col_tile * OCT_WORD);
            }
        }
}

/* Makes the sums of the nine taps from those of the points. */
static inline __attribute__((always_inline)) void sums_of_taps(const int32_t *from,
                                                               oct_winograd_sums *taps)
{
    oct_winograd_sums rows[3][4];
    for (int x = 0; x < 4; x++, from += SUMS) {
        oct_winograd_sums m[4];
        for (int y = 0; y < 4; y++)
            m[y] = *(const oct_winograd_sums *)(from + 4 * y * SUMS);
        const oct_winograd_sums half = (m[1] + m[2]) >> 1;
        rows[0][x] = m[0] + half;
        rows[1][x] = (m[1] - m[2]) >> 1;
        rows[2][x] = half - m[3];
    }
    for (int y = 0; y < 3; y++, taps += 3) {
        const oct_winograd_sums *m = rows[y], half = (m[1] + m[2]) >> 1;
        taps[0] = m[0] + half;
        taps[1] = (m[1] - m[2]) >> 1;
        taps[2] = half - m[3];
    }
}

/* points: sums of the points; those of the lower digit come POINTS * SUMS later. */
static inline __attribute__((always_inline)) void
write_taps_as(const oct_weight_part *a, const int32_t *points, const oct_weight_factors *f,
              const bool wide, const bool add, float *sums)
{
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t o = 0; o < a->columns; o += OCT_WINOGRAD_SUMS) {
            const floats_of_lanes scale = *(const floats_of_lanes *)(f->scale + a->column + o);
            floats_of_lanes factor = (floats_of_lanes){0} + 1.0F;
            if (f->factor) factor = *(const floats_of_lanes *)(f->factor + a->column + o);
            const int32_t *from = points + r * OCT_TILES_COLUMNS + o;
            oct_winograd_sums high[TAPS], low[TAPS];
            sums_of_taps(from, high);
            if (wide) sums_of_taps(from + OCT_WINOGRAD_POINTS * SUMS, low);
            for (int tap = 0; tap < TAPS; tap++) {
                floats_of_lanes *to =
                    (floats_of_lanes *)(sums + (tap * a->rows + r) * a->columns + o);
                floats_of_lanes value = __builtin_convertvector(high[tap], floats_of_lanes);
                /* Two digits are below 2^40 together: exact, and rounded once. */
                if (wide)
                    value = __builtin_convertvector(
                        256.0 * __builtin_convertvector(high[tap], doubles_of_lanes) +
                            __builtin_convertvector(low[tap], doubles_of_lanes),
                        floats_of_lanes);
                value = factor * (scale * value);
                *to = add ? *to + value : 0.0F + value;
            }
        }
}

OCT_CLONES static void write_taps(const oct_weight_part *a, const int32_t *points,
                                  const oct_weight_factors *f, bool wide, bool add, float *sums)
{
    if (wide)
        write_taps_as(a, points, f, true, add, sums);
    else if (add)
        write_taps_as(a, points, f, false, true, sums);
    else
        write_taps_as(a, points, f, false, false, sums);
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
    const oct_run run = {.words = l.pairs};
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
    for (int i = 0; i < p->digits * OCT_WINOGRAD_POINTS; i++) {
        product.x = codes + i % OCT_WINOGRAD_POINTS * l.codes_plane;
        product.packed = panels + i * l.panels_plane;
        product.acc = r->points + i * SUMS;
        p->bytes->pairs(&product);
    }
    write_taps(a, r->points, f, p->digits == 2, add, sums);
}
