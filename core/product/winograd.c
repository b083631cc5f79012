/* Tiles of winograd.h: lines of codes are copied with what is around them, transformed, multiplied point by point, and
 * their sums transformed back. */
#include "core/product/winograd.h"

#include "core/base/int_math.h"
#include "core/base/mem.h"

#include <string.h>

enum {
    LANES = OCT_WINOGRAD_LANES,
    SUMS = OCT_WINOGRAD_SUMS,
    SIDE = OCT_WINOGRAD_SIDE,
    EDGE = OCT_WINOGRAD_EDGE,
    CENTER = OCT_WINOGRAD_CENTER,
    PART = 224, /* of tiles of 4 x 4 */
    SMALL_TILE_PART = 1024,
    PANELS = 4, /* of a product */
    /* The most results of a block, and codes that they read of all channels: with sums they stay in the second-level cache. */
    MAX_RESULTS = 384,
    RESULT_CODES = 65536,
    /* Measured: what it takes to transform a tile, as a number of channels more; the weights that are read for a tile while
     * it is multiplied; and those that the caches hold for tiles of 4 x 4, which have 72 bytes each. */
    TRANSFORM_CHANNELS = 24,
    TILE_WEIGHTS = 8192,
    LARGE_TILE_WEIGHTS = 131072,
};

typedef oct_winograd_lanes lanes;
typedef oct_winograd_sums sums_of_lanes;
typedef oct_winograd_wrapping wrapping;

static int64_t line_codes(const oct_winograd *w)
{
    return (w->side * w->tile_columns + 2) * w->in_c;
}

/* Returns how many tiles a block should have. */
static int64_t tiles_wanted(const oct_conv_shape *s, int side)
{
    const int64_t results = RESULT_CODES / oct_max_i64(s->in_c, s->out_c);
    return oct_max_i64(oct_min_i64(results, MAX_RESULTS) / (side * side), 1);
}

bool oct_winograd_can(const oct_byte_product *bytes, const oct_conv_shape *s)
{
    if (!bytes || !bytes->pairs) return false;
    const int64_t unit = oct_max_i64(bytes->col_tile, SUMS);
    return s->kernel_h == 3 && s->kernel_w == 3 && s->stride_h == 1 && s->stride_w == 1 &&
           s->dilation_h == 1 && s->dilation_w == 1 && s->pad_top <= 2 && s->pad_left <= 2 &&
           s->groups == 1 && s->in_c % unit == 0 && s->out_c % unit == 0 && s->in_c >= LANES &&
           s->out_c >= LANES;
}

/* Whether tiles take less time than going tap by tap. Both sides are products for an output channel and a sample, where
 * tap by tap those in the padding are left out. */
static bool side_pays(const oct_byte_product *bytes, const oct_conv_shape *s, int64_t samples,
                      int side)
{
    const int64_t least = oct_min_i64(s->in_c, s->out_c), points = (side + 2) * (side + 2);
    const int64_t tiles = oct_divide_up(s->out_h, side) * oct_divide_up(s->out_w, side);
    const int64_t taps =
        (3 * s->out_h - s->pad_top - s->pad_bottom) * (3 * s->out_w - s->pad_left - s->pad_right);
    const int64_t wanted = tiles_wanted(s, side);
    const int64_t together = oct_min_i64(oct_min_i64(samples, wanted) * tiles, wanted);
    return taps * least > tiles * points * bytes->pairs_time * (least + TRANSFORM_CHANNELS) &&
           together * TILE_WEIGHTS >= s->in_c * s->out_c * bytes->pairs_time;
}

int oct_winograd_side(const oct_byte_product *bytes, const oct_conv_shape *s, int64_t samples)
{
    if (!oct_winograd_can(bytes, s)) return 0;
    if (s->in_c * s->out_c <= LARGE_TILE_WEIGHTS && side_pays(bytes, s, samples, 4)) return 4;
    return side_pays(bytes, s, samples, 2) ? 2 : 0;
}

void oct_winograd_init(oct_winograd *w, const oct_byte_product *bytes, const oct_conv_shape *s,
                       int64_t samples, oct_direction direction, uint8_t fill)
{
    const int side = oct_winograd_side(bytes, s, samples);
    const bool back = direction == OCT_BACKWARD;
    *w = (oct_winograd){0};
    if (side == 0) return;
    *w = (oct_winograd){.bytes = bytes,
                        .in_h = back ? s->out_h : s->in_h,
                        .in_w = back ? s->out_w : s->in_w,
                        .in_c = back ? s->out_c : s->in_c,
                        .out_h = back ? s->in_h : s->out_h,
                        .out_w = back ? s->in_w : s->out_w,
                        .out_c = back ? s->in_c : s->out_c,
                        .pad_top = back ? 2 - s->pad_top : s->pad_top,
                        .pad_left = back ? 2 - s->pad_left : s->pad_left,
                        .fill = fill,
                        .backward = back,
                        .side = side,
                        .points = (side + 2) * (side + 2)};
    const int64_t parts = oct_divide_up(w->in_c, side == 4 ? PART : SMALL_TILE_PART);
    w->part = oct_round_up(oct_divide_up(w->in_c, parts), SUMS);
    w->columns = PANELS * bytes->col_tile;
    const int64_t wanted = tiles_wanted(s, side), tile_lines = oct_divide_up(w->out_h, side);
    w->tile_columns = oct_divide_up(w->out_w, side);
    w->period = oct_max_i64(wanted / (tile_lines * w->tile_columns), 1);
    const int64_t fit = oct_max_i64(wanted / w->tile_columns, 1);
    const int64_t blocks = w->period > 1 ? 1 : oct_divide_up(tile_lines, fit);
    const int64_t block_lines = oct_divide_up(tile_lines, blocks);
    w->lines = oct_min_i64(side * block_lines, w->out_h);
    w->max_tiles = w->period * block_lines * w->tile_columns;
    /* A line more between points: those of one tile would share a set of the first-level cache. */
    w->matrix_bytes = w->in_c * w->out_c * (int64_t)sizeof(int16_t);
    w->plane_bytes = w->max_tiles * w->in_c * (int64_t)sizeof(int16_t) + OCT_CACHE_LINE;
    w->sum_plane = w->max_tiles * w->columns + OCT_CACHE_LINE / (int64_t)sizeof(int32_t);
    w->center_at = w->points * w->matrix_bytes;
    w->packed_bytes = w->center_at + w->out_c * (int64_t)sizeof(int32_t);
    w->lines_at = oct_round_up(w->max_tiles * (int64_t)sizeof(oct_row), OCT_CACHE_LINE);
    w->planes_at = w->lines_at + oct_round_up((side + 2) * line_codes(w), OCT_CACHE_LINE);
    w->sums_at = w->planes_at + oct_round_up(w->points * w->plane_bytes, OCT_CACHE_LINE);
    w->scratch_bytes = oct_round_up(
        w->sums_at + w->points * w->sum_plane * (int64_t)sizeof(int32_t), OCT_CACHE_LINE);
}

/* A line of G g, or of its transpose. */
OCT_INLINE void transform_taps(const int side, const lanes taps[3], lanes points[EDGE])
{
    const lanes ends = taps[0] + taps[2];
    points[0] = taps[0];
    points[1] = ends + taps[1];
    points[2] = ends - taps[1];
    if (side == 4) {
        const lanes far = taps[0] + 4 * taps[2];
        points[3] = far + 2 * taps[1];
        points[4] = far - 2 * taps[1];
    }
    points[side + 1] = taps[2];
}

/* Packs two channels of up to LANES / 2 columns: from one output of `from` to the next, one input, one tap there are `out`,
 * `in` and `inner` codes. Adds the columns' weights to `sums`. */
OCT_INLINE void pack_words(const oct_winograd *w, const int8_t *from, int64_t out, int64_t in,
                           int64_t inner, int columns, int32_t *sums, char *to)
{
    lanes taps[3][3] = {{{0}}}, columns_of_taps[3][EDGE], points[EDGE]; /* [x][y], [x][point] */
    for (int tap = 0; tap < 9; tap++) {
        const int at = w->backward ? 8 - tap : tap;
        for (int lane = 0; lane < 2 * columns; lane++) {
            taps[at % 3][at / 3][lane] = from[lane / 2 * out + lane % 2 * in + tap * inner];
            sums[lane / 2] += taps[at % 3][at / 3][lane];
        }
    }
    for (int x = 0; x < 3; x++)
        transform_taps(w->side, taps[x], columns_of_taps[x]);
    for (int y = 0; y < w->side + 2; y++) {
        const lanes row[3] = {columns_of_taps[0][y], columns_of_taps[1][y], columns_of_taps[2][y]};
        transform_taps(w->side, row, points);
        for (int x = 0; x < w->side + 2; x++, to += w->matrix_bytes)
            memcpy(to, &points[x], (size_t)columns * OCT_WORD);
    }
}

OCT_CLONES void oct_winograd_pack(const oct_winograd *w, const int8_t *codes, int64_t first,
                                  int64_t end, void *packed)
{
    const int64_t inner = w->backward ? w->out_c : w->in_c;
    const int64_t out = w->backward ? 1 : 9 * inner, in = w->backward ? 9 * inner : 1;
    const int panel = w->bytes->col_tile, columns = panel < LANES / 2 ? panel : LANES / 2;
    int32_t *center = (int32_t *)(void *)((char *)packed + w->center_at);
    char *to = (char *)packed + first * w->in_c / 2 * panel * OCT_WORD;
    OCT_ASSERT(panel <= 2 * LANES && panel % columns == 0);
    for (int64_t column = first * panel; column < end * panel; column += panel) {
        int32_t sums[2 * LANES] = {0};
        for (int64_t c = 0; c < w->in_c; c += 2, to += panel * OCT_WORD)
            for (int i = 0; i < panel; i += columns)
                pack_words(w, codes + (column + i) * out + c * in, out, in, inner, columns,
                           sums + i, to + i * OCT_WORD);
        for (int i = 0; i < panel; i++)
            center[column + i] = CENTER * sums[i];
    }
}

void oct_winograd_copy(const oct_winograd_lines *l, const void *plane, int64_t first, int64_t count,
                       void *to)
{
    const int64_t read = oct_min_i64(l->bytes, l->to_bytes - l->before);
    memset(to, l->fill, (size_t)(count * l->to_bytes));
    for (int64_t i = first; i < first + count; i++, to = (char *)to + l->to_bytes)
        if (i >= 0 && i < l->lines)
            memcpy((char *)to + l->before, (const char *)plane + i * l->bytes, (size_t)read);
}

/* Transforms the codes of a line of tiles of a sample, which read lines of codes from `top` on. The lines are copied
 * with what is outside of the sample; then 16 channels go at a time, and the last group may overlap the one before. */
OCT_CLONES static void transform_codes(const oct_winograd *w, const uint8_t *sample, int64_t top,
                                       uint8_t *copied, char *planes)
{
    const int64_t channels = w->in_c, line = line_codes(w);
    const oct_winograd_lines lines = {.lines = w->in_h,
                                      .bytes = w->in_w * channels,
                                      .before = w->pad_left * channels,
                                      .to_bytes = line,
                                      .fill = w->fill};
    oct_winograd_copy(&lines, sample, top, w->side + 2, copied);
    for (int64_t tile = 0; tile < w->tile_columns; tile++, copied += w->side * channels)
        for (int64_t c = 0; c < channels; c += LANES) {
            const int64_t at = oct_min_i64(c, channels - LANES);
            char *to = planes + 2 * (tile * channels + at);
            if (w->side == 4)
                oct_winograd_codes(4, copied + at, line, channels, CENTER, w->plane_bytes, to);
            else
                oct_winograd_codes(2, copied + at, line, channels, CENTER, w->plane_bytes, to);
        }
}

/* A line of A^T m, or of its transpose. Of four, the first is 24 times what it should be, the second 12, the others 6. */
OCT_INLINE void transform_sums(const int side, const wrapping m[EDGE], wrapping results[SIDE])
{
    const wrapping even = m[1] + m[2], odd = m[1] - m[2];
    if (side == 2) {
        results[0] = m[0] + (wrapping)((sums_of_lanes)even >> 1);
        results[1] = (wrapping)((sums_of_lanes)odd >> 1) - m[3];
        return;
    }
    const wrapping far = m[3] + m[4], slope = m[3] - m[4];
    results[0] = 6 * m[0] + 4 * even + far;
    results[1] = 2 * odd + slope;
    results[2] = even + far;
    results[3] = odd + 2 * slope + 6 * m[5];
}

/* Results of a line of tiles: of some lines and columns, of channels from `to` on. */
typedef struct line_results {
    const int32_t *planes, *center;
    int64_t count, lines; /* channels, lines of results */
    bool add;             /* to those of the parts before */
    int32_t *to;
} line_results;

/* Writes a tile's results of SUMS channels; `columns` of them are there. */
OCT_INLINE void write_tile(const oct_winograd *w, const line_results *r, const int side,
                           const bool add, int64_t c, const int32_t *from, int64_t columns,
                           int32_t *to)
{
    static const int shift[SIDE] = {3, 2, 1, 1};
    const sums_of_lanes center = *(const sums_of_lanes *)(r->center + c);
    wrapping rows[SIDE][EDGE];
    for (int x = 0; x < side + 2; x++) {
        wrapping m[EDGE], column[SIDE];
        for (int y = 0; y < side + 2; y++)
            m[y] = *(const wrapping *)(from + (y * (side + 2) + x) * w->sum_plane);
        transform_sums(side, m, column);
        for (int y = 0; y < side; y++)
            rows[y][x] = column[y];
    }
    for (int y = 0; y < side && y < r->lines; y++, to += w->out_w * w->out_c) {
        wrapping results[SIDE];
        transform_sums(side, rows[y], results);
        for (int x = 0; x < side && x < columns; x++) {
            sums_of_lanes *at = (sums_of_lanes *)(to + x * w->out_c);
            sums_of_lanes result = (sums_of_lanes)results[x];
            if (side == 4) oct_winograd_divide(&results[x], shift[y] + shift[x], &result);
            *at = result + (add ? *at : center);
        }
    }
}

/* Writes the results of a line of tiles; the last one may have fewer columns. */
OCT_CLONES static void write_results(const oct_winograd *w, const line_results *r)
{
    const int32_t *from = r->planes;
    int32_t *to = r->to;
    for (int64_t x = 0; x < w->out_w; x += w->side, from += w->columns, to += w->side * w->out_c)
        for (int64_t c = 0; c < r->count; c += SUMS)
            if (w->side == 2)
                write_tile(w, r, 2, r->add, c, from + c, w->out_w - x, to + c);
            else if (r->add)
                write_tile(w, r, 4, true, c, from + c, w->out_w - x, to + c);
            else
                write_tile(w, r, 4, false, c, from + c, w->out_w - x, to + c);
}

void oct_winograd_multiply(const oct_winograd *w, const oct_winograd_block *b, const uint8_t *x,
                           const void *packed, int32_t *sums, void *scratch)
{
    oct_row *rows = scratch;
    uint8_t *lines = (uint8_t *)scratch + w->lines_at;
    char *codes = (char *)scratch + w->planes_at;
    int32_t *planes = (int32_t *)(void *)((char *)scratch + w->sums_at);
    const int64_t tile_bytes = 2 * w->in_c;
    int64_t tiles = 0;
    for (int64_t n = 0; n < b->samples; n++, x += w->in_h * w->in_w * w->in_c)
        for (int64_t y = b->line; y < b->line + b->lines; y += w->side, tiles += w->tile_columns)
            transform_codes(w, x, y - w->pad_top, lines, codes + tiles * tile_bytes);
    OCT_ASSERT(tiles <= w->max_tiles);
    for (int64_t i = 0; i < tiles; i++)
        rows[i] = (oct_row){.x = i * tile_bytes, .acc = i * w->columns};
    oct_run run = {0};
    oct_product p = {.rows = rows,
                     .m = tiles,
                     .runs = &run,
                     .num_runs = 1,
                     .panel_bytes = w->in_c / 2 * w->bytes->col_tile * OCT_WORD};
    const void *center = (const char *)packed + w->center_at;
    for (int64_t channel = 0; channel < w->in_c; channel += w->part) {
        run = (oct_run){2 * channel, channel / 2, oct_min_i64(w->part, w->in_c - channel) / 2};
        for (int64_t column = 0; column < w->out_c; column += w->columns) {
            p.n = oct_min_i64(w->columns, w->out_c - column);
            for (int point = 0; point < w->points; point++) {
                p.x = codes + point * w->plane_bytes;
                p.acc = planes + point * w->sum_plane;
                p.packed = (const char *)packed + point * w->matrix_bytes +
                           column / w->bytes->col_tile * p.panel_bytes;
                w->bytes->pairs(&p);
            }
            line_results r = {planes, (const int32_t *)center + column, p.n, .add = channel > 0};
            for (int64_t n = 0; n < b->samples; n++)
                for (int64_t y = 0; y < b->lines;
                     y += w->side, r.planes += w->tile_columns * w->columns) {
                    r.lines = b->lines - y;
                    r.to = sums + (n * b->lines + y) * w->out_w * w->out_c + column;
                    write_results(w, &r);
                }
        }
    }
}
