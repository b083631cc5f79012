/* Tiles of winograd.h: lines of codes are copied with what is around them, transformed, multiplied point by point, and
 * their sums transformed back. */
#include "core/product/winograd.h"

#include "core/base/cpu.h"
#include "core/base/int_math.h"
#include "core/base/mem.h"

#include <string.h>

enum {
    POINTS = OCT_WINOGRAD_POINTS,
    LANES = OCT_WINOGRAD_LANES,
    SUMS = OCT_WINOGRAD_SUMS,
    COLUMNS = 16, /* whose sums are made at once: whole panels */
    /* Tiles of a block: their codes and sums stay in the second-level cache, and weights are read for enough of them. */
    MAX_TILES = 48,
    MIN_TILES = 24,
    TILE_CODES = 8192, /* codes of a point of all tiles */
    LEAST_CHANNELS = 16,
    LEAST_SIDE = 8, /* smaller planes leave many taps out, and have few tiles for their weights */
};

typedef oct_winograd_lanes lanes;
typedef oct_winograd_sums sums_of_lanes;

static int64_t line_codes(const oct_winograd *w)
{
    return (2 * w->tile_columns + 2) * w->in_c;
}

bool oct_winograd_fits(const oct_byte_product *bytes, const oct_conv_shape *s)
{
    const int64_t least = oct_min_i64(s->in_c, s->out_c), most = oct_max_i64(s->in_c, s->out_c);
    const bool window = s->kernel_h == 3 && s->kernel_w == 3 && s->stride_h == 1 &&
                        s->stride_w == 1 && s->dilation_h == 1 && s->dilation_w == 1 &&
                        s->pad_top <= 2 && s->pad_left <= 2;
    const bool channels = s->groups == 1 && s->in_c % SUMS == 0 && s->out_c % SUMS == 0 &&
                          least >= LEAST_CHANNELS && most <= OCT_WINOGRAD_CHANNELS;
    const bool plane = oct_min_i64(s->out_h, s->out_w) >= LEAST_SIDE;
    return bytes && bytes->pairs && window && channels && plane;
}

void oct_winograd_init(oct_winograd *w, const oct_byte_product *bytes, const oct_conv_shape *s,
                       oct_direction direction, uint8_t fill)
{
    *w = (oct_winograd){0};
    if (!oct_winograd_fits(bytes, s)) return;
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
    const int64_t wanted = oct_min_i64(oct_max_i64(TILE_CODES / w->in_c, MIN_TILES), MAX_TILES);
    const int64_t tile_lines = (w->out_h + 1) / 2;
    w->tile_columns = (w->out_w + 1) / 2;
    w->period = oct_max_i64(wanted / (tile_lines * w->tile_columns), 1);
    const int64_t fit = oct_max_i64(wanted / w->tile_columns, 1);
    const int64_t blocks = w->period > 1 ? 1 : (tile_lines + fit - 1) / fit;
    const int64_t block_lines = (tile_lines + blocks - 1) / blocks;
    w->lines = oct_min_i64(2 * block_lines, w->out_h);
    w->max_tiles = w->period * block_lines * w->tile_columns;
    /* A line more between points: those of one tile would share a set of the first-level cache. */
    w->matrix_bytes = w->in_c * w->out_c * (int64_t)sizeof(int16_t);
    w->plane_bytes = w->max_tiles * w->in_c * (int64_t)sizeof(int16_t) + OCT_CACHE_LINE;
    w->sum_plane = w->max_tiles * COLUMNS + OCT_CACHE_LINE / (int64_t)sizeof(int32_t);
    w->packed_bytes = POINTS * w->matrix_bytes;
    w->lines_at = oct_round_up(w->max_tiles * (int64_t)sizeof(oct_row), OCT_CACHE_LINE);
    w->planes_at = w->lines_at + oct_round_up(4 * line_codes(w), OCT_CACHE_LINE);
    w->sums_at = w->planes_at + oct_round_up(POINTS * w->plane_bytes, OCT_CACHE_LINE);
    w->scratch_bytes =
        oct_round_up(w->sums_at + POINTS * w->sum_plane * (int64_t)sizeof(int32_t), OCT_CACHE_LINE);
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
        lanes taps[9] = {{0}}, rows[4][3], points[4];
        for (int tap = 0; tap < 9; tap++)
            for (int lane = 0; lane < 2 * columns; lane++)
                taps[w->backward ? 8 - tap : tap][lane] =
                    from[lane / 2 * out + lane % 2 * in + tap * inner];
        for (int x = 0; x < 3; x++) {
            const lanes ends = taps[x] + taps[6 + x];
            rows[0][x] = taps[x];
            rows[1][x] = ends + taps[3 + x];
            rows[2][x] = ends - taps[3 + x];
            rows[3][x] = taps[6 + x];
        }
        char *to = (char *)packed + i * tile;
        for (int y = 0; y < 4; y++) {
            const lanes ends = rows[y][0] + rows[y][2];
            points[0] = rows[y][0];
            points[1] = ends + rows[y][1];
            points[2] = ends - rows[y][1];
            points[3] = rows[y][2];
            for (int x = 0; x < 4; x++, to += matrix)
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

/* Transforms the codes of a line of tiles of a sample, which read lines of codes from `top` on. The four lines are copied
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
    oct_winograd_copy(&lines, sample, top, 4, copied);
    for (int64_t tile = 0; tile < w->tile_columns; tile++, copied += 2 * channels)
        for (int64_t c = 0; c < channels; c += LANES) {
            const int64_t at = oct_min_i64(c, channels - LANES);
            const uint8_t *from = copied + at;
            char *to = planes + 2 * (tile * channels + at);
            lanes points[POINTS];
            oct_winograd_codes(from, line, channels, 0, points);
            for (int i = 0; i < POINTS; i++, to += plane)
                *(lanes *)to = points[i];
        }
}

/* Writes the results of a line of tiles, of `count` columns; tiles at odd ends have fewer than 2 x 2. */
OCT_CLONES static void write_results(const oct_winograd *w, const int32_t *planes, int64_t count,
                                     bool high, int32_t *to)
{
    const int64_t plane = w->sum_plane, right = w->out_c, below = w->out_w * w->out_c;
    for (int64_t column = 0; column < w->out_w; column += 2, planes += COLUMNS, to += 2 * right)
        for (int64_t c = 0; c < count; c += SUMS) {
            const bool wide = column + 1 < w->out_w;
            const int32_t *from = planes + c;
            sums_of_lanes rows[2][4], results[2][2];
            for (int x = 0; x < 4; x++, from += plane) {
                sums_of_lanes m[4];
                for (int y = 0; y < 4; y++)
                    m[y] = *(const sums_of_lanes *)(from + 4 * y * plane);
                rows[0][x] = m[0] + ((m[1] + m[2]) >> 1);
                rows[1][x] = ((m[1] - m[2]) >> 1) - m[3];
            }
            for (int y = 0; y < 2; y++) {
                const sums_of_lanes *m = rows[y];
                results[y][0] = m[0] + ((m[1] + m[2]) >> 1);
                results[y][1] = ((m[1] - m[2]) >> 1) - m[3];
            }
            *(sums_of_lanes *)(to + c) = results[0][0];
            if (wide) *(sums_of_lanes *)(to + right + c) = results[0][1];
            if (high) *(sums_of_lanes *)(to + below + c) = results[1][0];
            if (wide && high) *(sums_of_lanes *)(to + below + right + c) = results[1][1];
        }
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
        for (int64_t y = b->line; y < b->line + b->lines; y += 2, tiles += w->tile_columns)
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
        for (int point = 0; point < POINTS; point++) {
            p.x = planes + point * w->plane_bytes;
            p.acc = planes_of_sums + point * w->sum_plane;
            p.packed = (const char *)packed + point * w->matrix_bytes +
                       column / w->bytes->col_tile * p.panel_bytes;
            w->bytes->pairs(&p);
        }
        const int32_t *from = planes_of_sums;
        for (int64_t n = 0; n < b->samples; n++)
            for (int64_t y = 0; y < b->lines; y += 2, from += w->tile_columns * COLUMNS)
                write_results(w, from, p.n, y + 1 < b->lines,
                              sums + (n * b->lines + y) * w->out_w * w->out_c + column);
    }
}
