/* The gradient of weights as a product over positions: rows are taps and input channels, columns are
 * output channels. Its operands are described in conv_weight_impl.h.
 *
 * They are made for one block of positions after the other; sums go on from block to block in tiles that
 * stay in cache while their product is at work. For the taps of a ky whose lines would be all zeros they
 * are not listed.
 */
#include "core/base/cpu.h"
#include "core/base/whole.h"
#include "core/kernel/conv_weight_impl.h"
#include "core/kernel/depthwise.h"
#include "core/kernel/turn.h"

#include <string.h>

enum {
    BLOCK_WORDS = 1024, /* of a row, about: 64 columns of panels are 256 KiB */
    CHUNK_SUMS = 32768, /* sums that are finished together: they stay in the second-level cache */
    CHUNK_ROWS = 24,    /* a whole number of the microkernel's blocks */
    MOST_CHUNKS = 10,
    MERGED_POSITIONS = 256, /* odd planes with fewer are put in one line where there is one tap */
    FEW_ROWS = 64,          /* fewer of a ky are not worth a product of their own */
};

/* One tap: any shape of the positions will do. Long lines are turned in whole vectors, and pairs want
 * lines of even length. A block is enough for what is put in one line, however many samples there are. */
static oct_conv_shape simplified(const oct_conv_shape *s, int64_t *samples)
{
    oct_conv_shape one = *s;
    if (s->kernel_h != 1 || s->kernel_w != 1 || s->stride != 1 || s->padding != 0) return one;
    const int64_t plane = s->in_h * s->in_w;
    const bool even = plane % 2 == 0;
    if (even ? plane * *samples <= BLOCK_WORDS : plane < MERGED_POSITIONS) {
        one.in_h = 1;
        one.in_w = plane * *samples;
        *samples = *samples > 0;
    } else if (even && plane <= BLOCK_WORDS) {
        one.in_h = 1;
        one.in_w = plane;
    } else if (even && s->in_w % 2 != 0) {
        one.in_h /= 2;
        one.in_w *= 2;
    }
    one.out_h = one.in_h;
    one.out_w = one.in_w;
    return one;
}

static oct_weight_plan plan_of(const oct_float_kernel *k, oct_numerics numerics,
                               const oct_conv_shape *shape, int64_t samples, bool wide)
{
    oct_weight_plan p = {.k = k, .samples = samples, .grad_pairs = numerics == OCT_NUMERICS_BF16};
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
    p.few_rows = s->kernel_w * p.ins < FEW_ROWS;
    const int64_t chunks = CHUNK_SUMS / (p.outs * CHUNK_ROWS);
    p.chunk = oct_larger(oct_smaller(chunks, MOST_CHUNKS), 1) * CHUNK_ROWS;
    return p;
}

static void *carve(size_t *at, void *scratch, size_t bytes)
{
    void *taken = scratch ? (char *)scratch + *at : NULL;
    *at += oct_aligned(bytes);
    return taken;
}

/* scratch NULL: only the size. */
static size_t room_of(const oct_weight_plan *p, void *scratch, oct_weight_room *r)
{
    size_t at = 0;
    const int64_t depth = oct_conv_depth(&p->s); /* fewer samples never need more room */
    const int64_t rows = p->blocks > 1 ? depth : oct_smaller(p->chunk, depth);
    r->planes = carve(&at, scratch, (size_t)(p->ins * p->plane * p->element));
    r->panels = carve(&at, scratch, (size_t)(p->panels * p->panel_bytes));
    r->sums = carve(&at, scratch, (size_t)(rows * p->outs) * sizeof(float));
    r->rows = carve(&at, scratch, (size_t)p->chunk * sizeof(oct_row));
    r->runs = carve(&at, scratch, (size_t)(p->block_samples * p->block_lines) * sizeof(oct_run));
    r->values = carve(&at, scratch, (size_t)OCT_STRIP * OCT_STRIP_CHANNELS * sizeof(float));
    r->codes = carve(&at, scratch, (size_t)OCT_STRIP * OCT_STRIP_CHANNELS);
    return at;
}

/* Kernel rows that are multiplied with the same lines of a block. */
typedef struct kernel_rows {
    int64_t first, end;
    int64_t line, lines; /* of the block: only these are not all zeros */
} kernel_rows;

/* Lines of the block for which kernel row ky lies inside the input. */
static void lines_inside(const oct_weight_plan *p, const oct_weight_block *b, int64_t ky,
                         int64_t *line, int64_t *lines)
{
    const oct_conv_shape *s = &p->s;
    const int64_t above = s->padding - ky, below = s->in_h - 1 + above;
    const int64_t first = oct_larger(above > 0 ? (above + s->stride - 1) / s->stride : 0, b->line);
    const int64_t end = oct_smaller(below < 0 ? 0 : below / s->stride + 1, b->line + b->lines);
    *line = first - b->line;
    *lines = oct_larger(end - first, 0);
}

/* The next kernel rows after those in c; false at the end. */
static bool next_kernel_rows(const oct_weight_plan *p, const oct_weight_block *b, kernel_rows *c)
{
    int64_t line, lines;
    c->first = c->end;
    if (c->first == p->s.kernel_h) return false;
    if (p->few_rows) {
        *c = (kernel_rows){0, p->s.kernel_h, 0, b->lines};
        return true;
    }
    lines_inside(p, b, c->end++, &c->line, &c->lines);
    for (; c->end < p->s.kernel_h; c->end++) {
        lines_inside(p, b, c->end, &line, &lines);
        if (line != c->line || lines != c->lines) break;
    }
    return true;
}

static int64_t list_runs(const oct_weight_plan *p, const oct_weight_block *b, const kernel_rows *c,
                         oct_run *runs)
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
static int64_t row_start(const oct_weight_plan *p, int64_t at)
{
    const int64_t tap = at / p->ins, ky = tap / p->s.kernel_w, kx = tap % p->s.kernel_w;
    const int64_t shift = kx / p->s.stride, copy = p->copies == 2 ? shift % 2 : 0;
    return (at % p->ins * p->plane + ky * p->line +
            (copy * p->phases + kx % p->s.stride) * p->pitch + shift - copy) *
           p->element;
}

/* Where a group's sums go. */
typedef struct result {
    const float *factor; /* NULL: 1 */
    float *turned;
    bool add;
} result;

static inline __attribute__((always_inline)) void
write_scaled(int64_t n, const bool add, const float *from, const float *factor, float *restrict to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = (add ? to[i] : 0.0F) + (factor ? factor[i] * from[i] : from[i]);
}

OCT_CLONES
static void write_sums(int64_t rows, int64_t n, const float *from, const result *y,
                       float *restrict to)
{
    for (int64_t r = 0; r < rows; r++, from += n, to += n) {
        if (y->factor && y->add)
            write_scaled(n, true, from, y->factor, to);
        else if (y->factor)
            write_scaled(n, false, from, y->factor, to);
        else
            write_scaled(n, y->add, from, NULL, to);
    }
}

/* Rows [first, first + m) of the product; after the last block they are done. */
static void multiply_rows(const oct_weight_plan *p, oct_product *product, const oct_weight_block *b,
                          int64_t first, const oct_weight_room *r, const result *y)
{
    float *sums = p->blocks > 1 ? r->sums + first * p->outs : r->sums;
    for (int64_t i = 0; i < product->m; i++)
        r->rows[i] = (oct_row){row_start(p, first + i), i * p->outs};
    product->acc = sums;
    if (p->pairs)
        p->k->bf16(product);
    else
        p->k->f32(product);
    if (b->last) write_sums(product->m, p->outs, sums, y, y->turned + first * p->outs);
}

static void multiply_block(const oct_weight_plan *p, const oct_weight_block *b,
                           const oct_weight_room *r, const result *y)
{
    const int64_t rows = p->s.kernel_w * p->ins;
    oct_product product = {.x = r->planes,
                           .rows = r->rows,
                           .runs = r->runs,
                           .packed = r->panels,
                           .panel_bytes = p->panel_bytes,
                           .n = p->outs,
                           .add = !b->first};
    for (kernel_rows c = {0}; next_kernel_rows(p, b, &c);) {
        product.num_runs = list_runs(p, b, &c, r->runs);
        for (int64_t at = c.first * rows; at < c.end * rows; at += product.m) {
            product.m = oct_smaller(p->chunk, c.end * rows - at);
            multiply_rows(p, &product, b, at, r, y);
        }
    }
}

static void backward_group(const oct_weight_plan *p, int64_t group, const void *grad,
                           const oct_conv_input *x, const result *y, const oct_weight_room *r)
{
    oct_weight_block b = {.first = true};
    for (; b.sample < p->samples; b.sample += b.samples) {
        b.samples = oct_smaller(p->block_samples, p->samples - b.sample);
        for (b.line = 0; b.line < p->s.out_h; b.line += b.lines) {
            b.lines = oct_smaller(p->block_lines, p->s.out_h - b.line);
            b.last = b.sample + b.samples == p->samples && b.line + b.lines == p->s.out_h;
            oct_weight_planes(p, x, group, &b, r);
            oct_weight_panels(p, grad, group, &b, r);
            multiply_block(p, &b, r, y);
            b.first = false;
        }
    }
}

size_t oct_conv_backward_weight_scratch_bytes(const oct_float_kernel *k, oct_numerics numerics,
                                              const oct_conv_shape *s, int64_t samples)
{
    if (oct_conv_is_depthwise(s)) return oct_depthwise_backward_weight_scratch_bytes(s);
    oct_weight_room r;
    const oct_weight_plan narrow = plan_of(k, numerics, s, samples, false);
    const oct_weight_plan wide = plan_of(k, numerics, s, samples, true);
    const size_t a = room_of(&narrow, NULL, &r), b = room_of(&wide, NULL, &r);
    return a > b ? a : b;
}

void oct_conv_backward_weight(const oct_float_kernel *k, oct_numerics numerics,
                              const oct_conv_shape *s, int64_t samples, const void *grad,
                              const oct_conv_input *x, const float *factor, float *turned, bool add,
                              void *scratch)
{
    if (oct_conv_is_depthwise(s)) {
        oct_depthwise_backward_weight(s, samples, grad, x, factor, turned, add, scratch);
        return;
    }
    const int64_t group = oct_conv_depth(s) * (s->out_c / s->groups);
    if (samples == 0 && !add) memset(turned, 0, (size_t)(s->groups * group) * sizeof *turned);
    const oct_weight_plan p = plan_of(k, numerics, s, samples, x->codes16 != NULL);
    oct_weight_room r;
    room_of(&p, scratch, &r);
    for (int64_t g = 0; g < s->groups; g++) {
        const result y = {factor ? factor + g * p.outs : NULL, turned + g * group, add};
        backward_group(&p, g, grad, x, &y, &r);
    }
}

void oct_conv_turn(int64_t groups, int64_t depth, int64_t outs, const float *turned, float *weight)
{
    for (int64_t g = 0; g < groups; g++)
        oct_turn_f32(depth, outs, turned + g * depth * outs, outs, weight + g * depth * outs,
                     depth);
}
