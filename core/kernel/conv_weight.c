/* The gradient of weights as a product over positions: rows are taps and input channels, columns are
 * output channels.
 *
 * The input is turned into planes, one for each channel, so that a row is a start in a plane and its
 * runs are the lines of the output: tap (ky, kx) begins ky lines lower and kx columns further. With a
 * stride, the columns of a line are sorted by their remainder, so that what a tap sees is contiguous.
 * Planes have zeros around them; for the taps of a ky whose lines would be all zeros they are not listed.
 * Gradients become panels of words of one position (float32) or of two neighbours in a line (bfloat16).
 *
 * Planes and panels are made for one block of positions after the other; sums go on from block to block
 * in tiles that stay in cache while their product is at work.
 */
#include "core/base/cpu.h"
#include "core/base/whole.h"
#include "core/kernel/conv_impl.h"
#include "core/kernel/depthwise.h"
#include "core/kernel/turn.h"

#include <string.h>

enum {
    BLOCK_WORDS = 1024, /* of a row, about: 64 columns of panels are 256 KiB */
    TILE_ROWS = 240,    /* a whole number of the microkernel's blocks */
    TILE_COLUMNS = 64,
    STRIP = 64,             /* positions of a line that are turned at a time */
    STRIP_CHANNELS = 16,    /* of so many channels */
    MERGED_POSITIONS = 256, /* planes with fewer are put in one line where there is one tap */
    FEW_ROWS = 64,          /* fewer of a ky are not worth a product of their own */
};

typedef struct plan {
    const oct_float_kernel *k;
    oct_conv_shape s;
    int64_t samples;
    bool pairs;        /* words of two positions in bfloat16 */
    bool grad_pairs;   /* what rows of the gradient are */
    int64_t ins, outs; /* of a group */
    int64_t block_samples, block_lines, blocks;
    int64_t line_words;            /* of the output */
    int64_t element;               /* bytes of a value in a plane */
    int64_t phases, copies, pitch; /* a line of a plane: (copies, phases, pitch) values */
    int64_t line, sample, plane;   /* values from one to the next */
    bool few_rows;                 /* of one ky */
    int64_t panels, panel_bytes;
    int64_t spans, span; /* groups of columns that are multiplied at once */
    int64_t tiles;       /* of sums, in all */
} plan;

/* One tap: any shape of the positions will do; pairs want lines of even length. */
static oct_conv_shape simplified(const oct_conv_shape *s, int64_t *samples)
{
    oct_conv_shape one = *s;
    if (s->kernel_h != 1 || s->kernel_w != 1 || s->stride != 1 || s->padding != 0) return one;
    if (s->in_w % 2 == 0) return one;
    if (s->in_h % 2 == 0) {
        one.in_h /= 2;
        one.in_w *= 2;
    } else if (s->in_h * s->in_w < MERGED_POSITIONS) {
        one.in_h = 1;
        one.in_w = s->in_h * s->in_w * *samples;
        *samples = *samples > 0;
    }
    one.out_h = one.in_h;
    one.out_w = one.in_w;
    return one;
}

static plan plan_of(const oct_float_kernel *k, oct_numerics numerics, const oct_conv_shape *shape,
                    int64_t samples, bool wide)
{
    plan p = {.k = k, .samples = samples, .grad_pairs = numerics == OCT_NUMERICS_BF16};
    oct_conv_shape *s = &p.s;
    *s = simplified(shape, &p.samples);
    p.pairs = p.grad_pairs && !wide;
    p.ins = s->in_c / s->groups;
    p.outs = s->out_c / s->groups;
    p.line_words = oct_words_of(k, p.pairs, s->out_w);

    const int64_t lines = oct_larger(BLOCK_WORDS / oct_larger(p.line_words, 1), 1);
    p.block_samples = oct_larger(oct_smaller(lines / s->out_h, p.samples), 1);
    p.block_lines = oct_smaller(lines, s->out_h);
    p.blocks = (p.samples + p.block_samples - 1) / p.block_samples *
               ((s->out_h + p.block_lines - 1) / p.block_lines);

    const bool swapped = p.pairs && !k->native_bf16;
    const int64_t shifts = (s->kernel_w - 1) / s->stride;
    const int64_t values = p.line_words * (p.pairs && !swapped ? 2 : 1);
    p.element = p.pairs && !swapped ? 2 : 4;
    p.phases = oct_smaller(s->stride, s->kernel_w);
    p.copies = swapped && shifts > 0 ? 2 : 1;
    p.pitch = values + (swapped ? (shifts + 1) / 2 * 2 : shifts);
    p.line = p.copies * p.phases * p.pitch;
    p.sample = ((p.block_lines - 1) * s->stride + s->kernel_h) * p.line;
    p.plane = p.block_samples * p.sample;

    p.panels = (p.outs + k->col_tile - 1) / k->col_tile;
    p.panel_bytes = p.block_samples * p.block_lines * p.line_words * k->col_tile * 4;
    p.spans = (p.outs + TILE_COLUMNS - 1) / TILE_COLUMNS;
    p.span = (p.panels + p.spans - 1) / p.spans * k->col_tile;
    p.spans = (p.outs + p.span - 1) / p.span;
    const int64_t rows = s->kernel_w * p.ins;
    p.few_rows = rows < FEW_ROWS;
    const int64_t chunks = p.few_rows ? (s->kernel_h * rows + TILE_ROWS - 1) / TILE_ROWS
                                      : s->kernel_h * ((rows + TILE_ROWS - 1) / TILE_ROWS);
    p.tiles = p.blocks > 1 ? p.spans * chunks : 1;
    return p;
}

/* What scratch holds. */
typedef struct room {
    char *planes, *panels;
    float *sums;
    oct_row *rows;
    oct_run *runs;
    float *values, *turned; /* (STRIP, STRIP_CHANNELS) and turned */
} room;

static void *carve(size_t *at, void *scratch, size_t bytes)
{
    void *taken = scratch ? (char *)scratch + *at : NULL;
    *at += oct_aligned(bytes);
    return taken;
}

/* scratch NULL: only the size. */
static size_t room_of(const plan *p, void *scratch, room *r)
{
    size_t at = 0;
    const size_t strip = (size_t)STRIP * STRIP_CHANNELS * sizeof(float);
    r->planes = carve(&at, scratch, (size_t)(p->ins * p->plane * p->element));
    r->panels = carve(&at, scratch, (size_t)(p->panels * p->panel_bytes));
    r->sums = carve(&at, scratch, (size_t)(p->tiles * TILE_ROWS * TILE_COLUMNS) * sizeof(float));
    r->rows = carve(&at, scratch, TILE_ROWS * sizeof(oct_row));
    r->runs = carve(&at, scratch, (size_t)(p->block_samples * p->block_lines) * sizeof(oct_run));
    r->values = carve(&at, scratch, strip);
    r->turned = carve(&at, scratch, strip);
    return at;
}

/* A block of positions: lines [line, line + lines) of samples [sample, sample + samples). */
typedef struct block {
    int64_t sample, samples, line, lines;
    bool first, last;
} block;

/* A piece of a line of the input: what the columns of one phase, from the `column`-th on, hold. */
typedef struct strip {
    int64_t channel, channels; /* of the group */
    int64_t column, columns;
} strip;

OCT_CLONES
static void read_codes(int64_t rows, int64_t columns, const uint8_t *from, int64_t pitch,
                       int32_t zero_point, float *to)
{
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < columns; c++)
            to[r * STRIP_CHANNELS + c] = (float)(from[r * pitch + c] - zero_point);
    }
}

OCT_CLONES
static void read_codes16(int64_t rows, int64_t columns, const uint16_t *from, int64_t pitch,
                         int32_t zero_point, float *to)
{
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < columns; c++)
            to[r * STRIP_CHANNELS + c] = (float)(from[r * pitch + c] - zero_point);
    }
}

OCT_CLONES
static void round_strip(int64_t n, const float *from, uint16_t *to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = oct_bf16_of(from[i]);
}

/* Values of a strip into a plane's line, from column `at` of it on. */
static void write_strip(const plan *p, const float *from, int64_t at, int64_t n, char *line)
{
    if (p->element == 2) {
        round_strip(n, from, (uint16_t *)(void *)line + at);
        return;
    }
    float *to = (float *)(void *)line;
    if (!p->pairs) {
        memcpy(to + at, from, (size_t)n * sizeof *to);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const float value = oct_bf16_value(oct_bf16_of(from[i]));
        to[(at + i) ^ 1] = value;
        /* the second copy, of pairs that begin at odd columns */
        if (p->copies == 2 && at + i > 0) to[p->phases * p->pitch + ((at + i - 1) ^ 1)] = value;
    }
}

static void turn_strip(const plan *p, const oct_conv_input *x, int64_t from, const strip *t,
                       char *line, const room *r)
{
    const int64_t pitch = p->s.stride * p->s.in_c;
    const float *values = r->values;
    int64_t values_pitch = STRIP_CHANNELS;
    if (x->codes) {
        read_codes(t->columns, t->channels, x->codes + from, pitch, x->zero_point, r->values);
    } else if (x->codes16) {
        read_codes16(t->columns, t->channels, x->codes16 + from, pitch, x->zero_point, r->values);
    } else {
        values = x->values + from;
        values_pitch = pitch;
    }
    oct_turn_f32(t->columns, t->channels, values, values_pitch, r->turned, STRIP);
    for (int64_t c = 0; c < t->channels; c++)
        write_strip(p, r->turned + c * STRIP, t->column, t->columns,
                    line + (t->channel + c) * p->plane * p->element);
}

static void clear_line(const plan *p, char *line)
{
    for (int64_t c = 0; c < p->ins; c++)
        memset(line + c * p->plane * p->element, 0, (size_t)(p->line * p->element));
}

/* One line of all planes of a group; from: offset of the input's line and of the group. */
static void turn_line(const plan *p, const oct_conv_input *x, int64_t from, char *line,
                      const room *r)
{
    const oct_conv_shape *s = &p->s;
    clear_line(p, line);
    for (int64_t phase = 0; phase < p->phases; phase++) {
        const int64_t left = s->padding - phase, right = s->in_w - 1 + left;
        const int64_t begin = left > 0 ? (left + s->stride - 1) / s->stride : 0;
        const int64_t end = right < 0 ? 0 : oct_smaller(p->pitch, right / s->stride + 1);
        for (int64_t at = begin; at < end; at += STRIP) {
            const int64_t pixel = at * s->stride - left;
            for (int64_t c = 0; c < p->ins; c += STRIP_CHANNELS) {
                const strip t = {c, oct_smaller(STRIP_CHANNELS, p->ins - c), at,
                                 oct_smaller(STRIP, end - at)};
                turn_strip(p, x, from + pixel * s->in_c + c, &t,
                           line + phase * p->pitch * p->element, r);
            }
        }
    }
}

static void make_planes(const plan *p, const oct_conv_input *x, int64_t group, const block *b,
                        const room *r)
{
    const oct_conv_shape *s = &p->s;
    const int64_t lines = (b->lines - 1) * s->stride + s->kernel_h;
    for (int64_t n = 0; n < b->samples; n++) {
        for (int64_t l = 0; l < lines; l++) {
            if (l % s->stride >= s->kernel_h) continue; /* no tap looks at it */
            const int64_t y = b->line * s->stride + l - s->padding;
            char *line = r->planes + (n * p->sample + l * p->line) * p->element;
            if (y < 0 || y >= s->in_h)
                clear_line(p, line);
            else
                turn_line(p, x,
                          ((b->sample + n) * s->in_h + y) * s->in_w * s->in_c + group * p->ins,
                          line, r);
        }
    }
}

/* Columns [column, column + count) of a row of a group's gradient as bfloat16; zeros behind. */
static void read_halves(const plan *p, const char *row, int64_t column, int64_t count,
                        uint16_t half[OCT_MAX_COL_TILE])
{
    if (p->k->native_bf16) {
        memcpy(half, (const uint16_t *)(const void *)row + column, (size_t)count * sizeof *half);
    } else {
        for (int64_t c = 0; c < count; c++)
            half[c] = oct_bf16_of(((const float *)(const void *)row)[(column + c) ^ 1]);
    }
    memset(half + count, 0, (size_t)(OCT_MAX_COL_TILE - count) * sizeof *half);
}

static void store_floats(const plan *p, const char *row, int64_t column, int64_t count, float *tile)
{
    uint16_t half[OCT_MAX_COL_TILE];
    memset(tile, 0, (size_t)p->k->col_tile * sizeof *tile);
    if (!p->grad_pairs) {
        memcpy(tile, (const float *)(const void *)row + column, (size_t)count * sizeof *tile);
        return;
    }
    read_halves(p, row, column, count, half);
    for (int64_t c = 0; c < count; c++)
        tile[c] = oct_bf16_value(half[c]);
}

/* The words of one line of the output into each panel, from the rows of its positions. */
static void pack_line(const plan *p, const char *rows, int64_t row_bytes, char *panel)
{
    const int64_t positions = p->pairs ? 2 : 1, tile = p->k->col_tile;
    const int64_t words = p->line_words / ((p->s.out_w + positions - 1) / positions);
    for (int64_t at = 0; at < p->s.out_w; at += positions, rows += positions * row_bytes) {
        for (int64_t i = 0; i < p->panels; i++) {
            char *to = panel + i * p->panel_bytes;
            const int64_t count = oct_smaller(tile, p->outs - i * tile);
            uint16_t pair[2][OCT_MAX_COL_TILE] = {{0}};
            if (!p->pairs) {
                store_floats(p, rows, i * tile, count, (float *)(void *)to);
                continue;
            }
            read_halves(p, rows, i * tile, count, pair[0]);
            if (at + 1 < p->s.out_w) read_halves(p, rows + row_bytes, i * tile, count, pair[1]);
            oct_store_pairs(p->k, pair[0], pair[1], to);
        }
        panel += words * tile * 4;
    }
}

static void make_panels(const plan *p, const void *grad, int64_t group, const block *b,
                        const room *r)
{
    const oct_conv_shape *s = &p->s;
    const int64_t group_bytes = oct_words_of(p->k, p->grad_pairs, p->outs) * 4;
    const int64_t row_bytes = s->groups * group_bytes;
    char *to = r->panels;
    for (int64_t n = b->sample; n < b->sample + b->samples; n++) {
        for (int64_t l = b->line; l < b->line + b->lines; l++) {
            pack_line(p,
                      (const char *)grad + (n * s->out_h + l) * s->out_w * row_bytes +
                          group * group_bytes,
                      row_bytes, to);
            to += p->line_words * p->k->col_tile * 4;
        }
    }
}

/* Kernel rows that are multiplied with the same lines of a block. */
typedef struct kernel_rows {
    int64_t first, end;
    int64_t line, lines; /* of the block: only these are not all zeros */
} kernel_rows;

/* Lines of the block for which kernel row ky lies inside the input. */
static void lines_inside(const plan *p, const block *b, int64_t ky, int64_t *line, int64_t *lines)
{
    const oct_conv_shape *s = &p->s;
    const int64_t above = s->padding - ky, below = s->in_h - 1 + above;
    const int64_t first = oct_larger(above > 0 ? (above + s->stride - 1) / s->stride : 0, b->line);
    const int64_t end = oct_smaller(below < 0 ? 0 : below / s->stride + 1, b->line + b->lines);
    *line = first - b->line;
    *lines = oct_larger(end - first, 0);
}

/* The next kernel rows after those in c; false at the end. The same ones for every block, because sums
 * go on from block to block. */
static bool next_kernel_rows(const plan *p, const block *b, kernel_rows *c)
{
    c->first = c->end;
    if (c->first == p->s.kernel_h) return false;
    if (p->few_rows) {
        *c = (kernel_rows){0, p->s.kernel_h, 0, b->lines};
    } else {
        lines_inside(p, b, c->first, &c->line, &c->lines);
        c->end++;
    }
    return true;
}

static int64_t list_runs(const plan *p, const block *b, const kernel_rows *c, oct_run *runs)
{
    int64_t count = 0;
    for (int64_t n = 0; n < b->samples; n++) {
        for (int64_t l = c->line; l < c->line + c->lines; l++) {
            const oct_run run = {.x = (n * p->sample + l * p->s.stride * p->line) * p->element,
                                 .tile = (n * b->lines + l) * p->line_words,
                                 .words = p->line_words};
            oct_run *last = count > 0 ? &runs[count - 1] : NULL;
            if (last && last->x + 4 * last->words == run.x && last->tile + last->words == run.tile)
                last->words += run.words;
            else
                runs[count++] = run;
        }
    }
    return count;
}

/* Where row `at` = (ky, kx, channel) begins in the planes. */
static int64_t row_start(const plan *p, int64_t at)
{
    const int64_t tap = at / p->ins, ky = tap / p->s.kernel_w, kx = tap % p->s.kernel_w;
    const int64_t shift = kx / p->s.stride, copy = p->copies == 2 ? shift % 2 : 0;
    return (at % p->ins * p->plane + ky * p->line +
            (copy * p->phases + kx % p->s.stride) * p->pitch + shift - copy) *
           p->element;
}

OCT_CLONES
static void add_scaled(int64_t n, const float *from, const float *factor, float *restrict to)
{
    if (factor) {
        for (int64_t i = 0; i < n; i++)
            to[i] += factor[i] * from[i];
    } else {
        for (int64_t i = 0; i < n; i++)
            to[i] += from[i];
    }
}

/* The products of rows [first, first + count) with all columns; after the last block they are done. */
static float *multiply_rows(const plan *p, oct_product *product, const block *b, int64_t first,
                            const room *r, float *sums, const float *factor, float *turned)
{
    oct_product_fn *multiply = p->pairs ? p->k->bf16 : p->k->f32;
    for (int64_t i = 0; i < product->m; i++)
        r->rows[i] = (oct_row){row_start(p, first + i), i * TILE_COLUMNS};
    for (int64_t c = 0; c < p->outs; c += p->span) {
        product->n = oct_smaller(p->span, p->outs - c);
        product->packed = r->panels + c / p->k->col_tile * p->panel_bytes;
        product->acc = sums;
        multiply(product);
        for (int64_t i = 0; b->last && i < product->m; i++)
            add_scaled(product->n, sums + i * TILE_COLUMNS, factor ? factor + c : NULL,
                       turned + (first + i) * p->outs + c);
        if (p->tiles > 1) sums += TILE_ROWS * TILE_COLUMNS;
    }
    return sums;
}

static void multiply_block(const plan *p, const block *b, const room *r, const float *factor,
                           float *turned)
{
    const int64_t rows = p->s.kernel_w * p->ins;
    float *sums = r->sums;
    oct_product product = {.x = r->planes,
                           .rows = r->rows,
                           .runs = r->runs,
                           .panel_bytes = p->panel_bytes,
                           .add = !b->first};
    for (kernel_rows c = {0}; next_kernel_rows(p, b, &c);) {
        product.num_runs = list_runs(p, b, &c, r->runs);
        for (int64_t at = c.first * rows; at < c.end * rows; at += product.m) {
            product.m = oct_smaller(TILE_ROWS, c.end * rows - at);
            sums = multiply_rows(p, &product, b, at, r, sums, factor, turned);
        }
    }
}

static void backward_group(const plan *p, int64_t group, const void *grad, const oct_conv_input *x,
                           const float *factor, float *turned, const room *r)
{
    block b = {.first = true};
    for (; b.sample < p->samples; b.sample += b.samples) {
        b.samples = oct_smaller(p->block_samples, p->samples - b.sample);
        for (b.line = 0; b.line < p->s.out_h; b.line += b.lines) {
            b.lines = oct_smaller(p->block_lines, p->s.out_h - b.line);
            b.last = b.sample + b.samples == p->samples && b.line + b.lines == p->s.out_h;
            make_planes(p, x, group, &b, r);
            make_panels(p, grad, group, &b, r);
            multiply_block(p, &b, r, factor, turned);
            b.first = false;
        }
    }
}

size_t oct_conv_backward_weight_scratch_bytes(const oct_float_kernel *k, oct_numerics numerics,
                                              const oct_conv_shape *s, int64_t samples)
{
    if (oct_conv_is_depthwise(s)) return oct_depthwise_backward_weight_scratch_bytes(s);
    room r;
    const plan narrow = plan_of(k, numerics, s, samples, false);
    const plan wide = plan_of(k, numerics, s, samples, true);
    const size_t a = room_of(&narrow, NULL, &r), b = room_of(&wide, NULL, &r);
    return a > b ? a : b;
}

void oct_conv_backward_weight(const oct_float_kernel *k, oct_numerics numerics,
                              const oct_conv_shape *s, int64_t samples, const void *grad,
                              const oct_conv_input *x, const float *factor, float *turned,
                              void *scratch)
{
    if (oct_conv_is_depthwise(s)) {
        oct_depthwise_backward_weight(s, samples, grad, x, factor, turned, scratch);
        return;
    }
    const plan p = plan_of(k, numerics, s, samples, x->codes16 != NULL);
    room r;
    room_of(&p, scratch, &r);
    for (int64_t g = 0; g < s->groups; g++)
        backward_group(&p, g, grad, x, factor ? factor + g * p.outs : NULL,
                       turned + g * oct_conv_depth(s) * p.outs, &r);
}

void oct_conv_turn(int64_t groups, int64_t depth, int64_t outs, const float *turned, float *weight)
{
    for (int64_t g = 0; g < groups; g++)
        oct_turn_f32(depth, outs, turned + g * depth * outs, outs, weight + g * depth * outs,
                     depth);
}
