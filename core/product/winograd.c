/* Tiles of winograd.h: lines of codes are copied with what is around them, transformed, multiplied point by point, and
 * their sums transformed back. */
#include "core/product/winograd.h"

#include "core/base/cpu.h"
#include "core/base/int_math.h"
#include "core/base/mem.h"

#include <string.h>

enum {
    LANES = OCT_WINOGRAD_LANES,
    SUMS = OCT_WINOGRAD_SUMS,
    COLUMNS = 16, /* whose sums are made at once: whole panels */
    /* Tiles of a block, half of it where they are of 4 x 4: their codes and sums stay in the second-level cache, and
     * weights are read for enough of them. */
    MAX_TILES = 48,
    MIN_TILES = 32,
    TILE_CODES = 8192, /* codes of a point of all tiles */
    LEAST_CHANNELS = 16,
    /* The most for tiles of 4 x 4 that are whole groups of SUMS (winograd.h); more weights would not fit the caches. */
    LARGE_TILE_CHANNELS = 112,
    /* Smaller planes leave many taps out: those of LEAST_SIDE pay where MIN_TILES share their weights. */
    WIDE_SIDE = 8,
    LEAST_SIDE = 4,
};

#define INLINE static inline __attribute__((always_inline))

typedef oct_winograd_lanes lanes;
typedef uint32_t sums_of_lanes OCT_VECTOR(4 * SUMS); /* which wrap */

static int64_t line_codes(const oct_winograd *w)
{
    return (w->side * w->tile_columns + 2) * w->in_c;
}

bool oct_winograd_fits(const oct_byte_product *bytes, const oct_conv_shape *s, int64_t samples)
{
    const int64_t least = oct_min_i64(s->in_c, s->out_c), most = oct_max_i64(s->in_c, s->out_c);
    const bool window = s->kernel_h == 3 && s->kernel_w == 3 && s->stride_h == 1 &&
                        s->stride_w == 1 && s->dilation_h == 1 && s->dilation_w == 1 &&
                        s->pad_top <= 2 && s->pad_left <= 2;
    const bool channels = s->groups == 1 && s->in_c % SUMS == 0 && s->out_c % SUMS == 0 &&
                          least >= LEAST_CHANNELS && most <= OCT_WINOGRAD_CHANNELS;
    const int64_t side = oct_min_i64(s->out_h, s->out_w);
    const int64_t tiles = samples * ((s->out_h + 1) / 2) * ((s->out_w + 1) / 2);
    const bool plane = side >= WIDE_SIDE || (side >= LEAST_SIDE && tiles >= MIN_TILES);
    return bytes && bytes->pairs && window && channels && plane;
}

void oct_winograd_init(oct_winograd *w, const oct_byte_product *bytes, const oct_conv_shape *s,
                       int64_t samples, oct_direction direction, uint8_t fill)
{
    *w = (oct_winograd){0};
    if (!oct_winograd_fits(bytes, s, samples)) return;
    const bool back = direction == OCT_BACKWARD;
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
                        .backward = back};
    w->side = w->in_c <= LARGE_TILE_CHANNELS ? 4 : 2;
    w->points = (w->side + 2) * (w->side + 2);
    const int64_t wanted =
        oct_min_i64(oct_max_i64(TILE_CODES / w->in_c, MIN_TILES), MAX_TILES) * 2 / w->side;
    const int64_t tile_lines = (w->out_h + w->side - 1) / w->side;
    w->tile_columns = (w->out_w + w->side - 1) / w->side;
    w->period = oct_max_i64(wanted / (tile_lines * w->tile_columns), 1);
    const int64_t fit = oct_max_i64(wanted / w->tile_columns, 1);
    const int64_t blocks = w->period > 1 ? 1 : (tile_lines + fit - 1) / fit;
    const int64_t block_lines = (tile_lines + blocks - 1) / blocks;
    w->lines = oct_min_i64(w->side * block_lines, w->out_h);
    w->max_tiles = w->period * block_lines * w->tile_columns;
    /* A line more between points: those of one tile would share a set of the first-level cache. */
    w->matrix_bytes = w->in_c * w->out_c * (int64_t)sizeof(int16_t);
    w->plane_bytes = w->max_tiles * w->in_c * (int64_t)sizeof(int16_t) + OCT_CACHE_LINE;
    w->sum_plane = w->max_tiles * COLUMNS + OCT_CACHE_LINE / (int64_t)sizeof(int32_t);
    w->packed_bytes = w->points * w->matrix_bytes;
    w->lines_at = oct_round_up(w->max_tiles * (int64_t)sizeof(oct_row), OCT_CACHE_LINE);
    w->planes_at = w->lines_at + oct_round_up((w->side + 2) * line_codes(w), OCT_CACHE_LINE);
    w->sums_at = w->planes_at + oct_round_up(w->points * w->plane_bytes, OCT_CACHE_LINE);
    w->scratch_bytes = oct_round_up(
        w->sums_at + w->points * w->sum_plane * (int64_t)sizeof(int32_t), OCT_CACHE_LINE);
}

/* A line of G g, or of its transpose. */
INLINE void transform_taps(const lanes taps[3], int side, lanes *points)
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

OCT_CLONES void oct_winograd_pack(const oct_winograd *w, const int8_t *codes, int64_t first,
                                  int64_t end, void *packed)
{
    /* From one output to the next, one input, one tap. */
    const int64_t inner = w->backward ? w->out_c : w->in_c;
    const int64_t out = w->backward ? 1 : 9 * inner, in = w->backward ? 9 * inner : 1;
    const int64_t words = w->in_c / 2, matrix = w->matrix_bytes;
    const int columns = w->bytes->col_tile, tile = columns * OCT_WORD;
    OCT_ASSERT(2 * columns <= LANES);
    for (int64_t i = first * words; i < end * words; i++) { /* two channels, a panel's columns */
        const int8_t *from = codes + i / words * columns * out + i % words * 2 * in;
        lanes taps[3][3] = {{{0}}}, columns_of_taps[3][6], points[6]; /* [x][y], [x][point] */
        for (int tap = 0; tap < 9; tap++) {
            const int at = w->backward ? 8 - tap : tap;
            for (int lane = 0; lane < 2 * columns; lane++)
                taps[at % 3][at / 3][lane] = from[lane / 2 * out + lane % 2 * in + tap * inner];
        }
        for (int x = 0; x < 3; x++)
            transform_taps(taps[x], w->side, columns_of_taps[x]);
        char *to = (char *)packed + i * tile;
        for (int y = 0; y < w->side + 2; y++) {
            const lanes row[3] = {columns_of_taps[0][y], columns_of_taps[1][y],
                                  columns_of_taps[2][y]};
            transform_taps(row, w->side, points);
            for (int x = 0; x < w->side + 2; x++, to += matrix)
                memcpy(to, &points[x], (size_t)tile);
        }
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

/* A line of B^T d of 6 codes, or of its transpose. */
INLINE void transform_six(const lanes d[6], lanes points[6])
{
    const lanes near = d[3] - d[1], far = d[4] - d[2];
    points[0] = 4 * (d[0] - d[2]) + far;
    points[1] = 4 * (d[1] + d[2]) - (d[3] + d[4]);
    points[2] = 4 * (d[2] - d[1]) + (d[3] - d[4]);
    points[3] = far + 2 * near;
    points[4] = far - 2 * near;
    points[5] = (d[5] - d[3]) - 4 * near;
}

/* Makes B^T d B of 16 channels of a tile of 4 x 4 results, from one point to the next `plane` bytes apart. */
INLINE void transform_tile(const uint8_t *d, int64_t line, int64_t pixel, int64_t plane, char *to)
{
    lanes columns[6][6]; /* [x][point] */
    for (int x = 0; x < 6; x++) {
        lanes c[6];
        for (int y = 0; y < 6; y++)
            OCT_WINOGRAD_WIDEN(d + y * line + x * pixel, c[y]);
        transform_six(c, columns[x]);
    }
    for (int y = 0; y < 6; y++) {
        const lanes row[6] = {columns[0][y], columns[1][y], columns[2][y],
                              columns[3][y], columns[4][y], columns[5][y]};
        lanes points[6];
        transform_six(row, points);
        for (int x = 0; x < 6; x++, to += plane)
            *(lanes *)to = points[x];
    }
}

/* Transforms the codes of a line of tiles of a sample, which read lines of codes from `top` on. The lines are copied
 * with what is outside of the sample; then 16 channels go at a time, and the last group may overlap the one before. */
OCT_CLONES static void transform_codes(const oct_winograd *w, const uint8_t *sample, int64_t top,
                                       uint8_t *copied, char *planes)
{
    const int64_t channels = w->in_c, line = line_codes(w), plane = w->plane_bytes;
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
            if (w->side == 4) {
                transform_tile(copied + at, line, channels, plane, to);
                continue;
            }
            lanes points[OCT_WINOGRAD_POINTS];
            oct_winograd_codes(copied + at, line, channels, 0, points);
            for (int i = 0; i < OCT_WINOGRAD_POINTS; i++, to += plane)
                *(lanes *)to = points[i];
        }
}

/* A line of A^T m, or of its transpose. Of four, the first is 24 times what it should be, the second 12, the others 6. */
INLINE void transform_sums(const sums_of_lanes *m, int side, sums_of_lanes *results)
{
    const sums_of_lanes even = m[1] + m[2], odd = m[1] - m[2];
    if (side == 2) {
        results[0] = m[0] + (sums_of_lanes)((oct_winograd_sums)even >> 1);
        results[1] = (sums_of_lanes)((oct_winograd_sums)odd >> 1) - m[3];
        return;
    }
    const sums_of_lanes far = m[3] + m[4], slope = m[3] - m[4];
    results[0] = 6 * m[0] + 4 * even + far;
    results[1] = 2 * odd + slope;
    results[2] = even + far;
    results[3] = odd + 2 * slope + 6 * m[5];
}

/* The results of a tile of columns [c, c + SUMS): those of `lines` by `columns` are written. */
INLINE void write_tile(const oct_winograd *w, const int32_t *from, int side, int64_t lines,
                       int64_t columns, int32_t *to)
{
    static const int shift[] = {3, 2, 1, 1};
    const sums_of_lanes inverse_of_9 = (sums_of_lanes){0} + 0x38E38E39U;
    sums_of_lanes rows[4][6];
    for (int x = 0; x < side + 2; x++) {
        sums_of_lanes m[6], column[4];
        for (int y = 0; y < side + 2; y++)
            m[y] = *(const sums_of_lanes *)(from + (y * (side + 2) + x) * w->sum_plane);
        transform_sums(m, side, column);
        for (int y = 0; y < side; y++)
            rows[y][x] = column[y];
    }
    for (int y = 0; y < side && y < lines; y++, to += w->out_w * w->out_c) {
        sums_of_lanes results[4];
        transform_sums(rows[y], side, results);
        for (int x = 0; x < side && x < columns; x++) {
            sums_of_lanes *at = (sums_of_lanes *)(to + x * w->out_c), result = results[x];
            if (side == 4)
                result = (sums_of_lanes)((oct_winograd_sums)(result * inverse_of_9) >>
                                         (shift[y] + shift[x]));
            *at = result;
        }
    }
}

/* Writes the results of a line of tiles, of `count` columns and `lines` lines; the last tile may have fewer columns. */
OCT_CLONES static void write_results(const oct_winograd *w, const int32_t *planes, int64_t count,
                                     int64_t lines, int32_t *to)
{
    for (int64_t x = 0; x < w->out_w; x += w->side, planes += COLUMNS, to += w->side * w->out_c)
        for (int64_t c = 0; c < count; c += SUMS)
            if (w->side == 4)
                write_tile(w, planes + c, 4, lines, w->out_w - x, to + c);
            else
                write_tile(w, planes + c, 2, lines, w->out_w - x, to + c);
}

void oct_winograd_multiply(const oct_winograd *w, const oct_winograd_block *b, const uint8_t *x,
                           const void *packed, int32_t *sums, void *scratch)
{
    oct_row *rows = scratch;
    uint8_t *lines = (uint8_t *)scratch + w->lines_at;
    char *planes = (char *)scratch + w->planes_at;
    int32_t *planes_of_sums = (int32_t *)(void *)((char *)scratch + w->sums_at);
    const int64_t tile_bytes = 2 * w->in_c;
    int64_t tiles = 0;
    for (int64_t n = 0; n < b->samples; n++, x += w->in_h * w->in_w * w->in_c)
        for (int64_t y = b->line; y < b->line + b->lines; y += w->side, tiles += w->tile_columns)
            transform_codes(w, x, y - w->pad_top, lines, planes + tiles * tile_bytes);
    OCT_ASSERT(tiles <= w->max_tiles);
    for (int64_t i = 0; i < tiles; i++)
        rows[i] = (oct_row){.x = i * tile_bytes, .acc = i * COLUMNS};
    const oct_run run = {.words = w->in_c / 2};
    oct_product p = {.rows = rows,
                     .m = tiles,
                     .runs = &run,
                     .num_runs = 1,
                     .panel_bytes = run.words * w->bytes->col_tile * OCT_WORD};
    for (int64_t column = 0; column < w->out_c; column += COLUMNS) {
        p.n = oct_min_i64(COLUMNS, w->out_c - column);
        for (int point = 0; point < w->points; point++) {
            p.x = planes + point * w->plane_bytes;
            p.acc = planes_of_sums + point * w->sum_plane;
            p.packed = (const char *)packed + point * w->matrix_bytes +
                       column / w->bytes->col_tile * p.panel_bytes;
            w->bytes->pairs(&p);
        }
        const int32_t *from = planes_of_sums;
        for (int64_t n = 0; n < b->samples; n++)
            for (int64_t y = 0; y < b->lines; y += w->side, from += w->tile_columns * COLUMNS)
                write_results(w, from, p.n, b->lines - y,
                              sums + (n * b->lines + y) * w->out_w * w->out_c + column);
    }
}
