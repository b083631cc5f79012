/* The gradient to the input, of gradients that are codes: rows of q + 128 times weight codes are
 *
 *     sum of (q + 128) w = sum of q w + 128 * sum of w,
 *
 * and the last term, the offset, is what the same product makes of gradients of zero. It depends on the column and on
 * the taps that are listed: after the packed weights is a row of offsets for each list of runs, and after these a row of
 * zeros as codes. Sums become floats some rows at a time, while they are in the first-level cache. */
#include "core/base/cpu.h"
#include "core/base/int_math.h"
#include "core/kernel/conv_impl.h"

#include <string.h>

/* A chunk has some rows of a class of positions. */
typedef struct chunk {
    const oct_row *rows;  /* acc: elements of grad_x */
    int64_t count, first; /* first: the number of its first row in the class */
    int64_t each;         /* rows of a sample */
    oct_product product;  /* of the rows, whose sums go to scratch */
    const float *scale;   /* of the class's samples */
    const char *x, *low;  /* of the same */
    const int32_t *offsets;
    bool add;
    float *grad_x;
} chunk;

/* Sums of some columns in scratch, from `column` of grad_x on. */
typedef struct sums {
    int64_t column, columns, pitch;
    const int32_t *high, *low;
} sums;

OCT_INLINE void write_sums_as(const chunk *c, const sums *s, const bool wide, const bool add)
{
    const int32_t *offsets = c->offsets + s->column;
    for (int64_t r = 0; r < c->count; r++) {
        const int32_t *high = s->high + r * s->pitch, *low = wide ? s->low + r * s->pitch : NULL;
        const float scale = c->scale[(c->first + r) / c->each];
        float *restrict to = c->grad_x + c->rows[r].acc + s->column;
        for (int64_t i = 0; i < s->columns; i++) {
            /* Two digits are below 2^40 together: exact, and rounded once. */
            const int32_t sum = high[i] - offsets[i];
            const float value = wide ? (float)(256.0 * sum + (low[i] - offsets[i])) : (float)sum;
            to[i] = add ? to[i] + scale * value : scale * value;
        }
    }
}

/* grad_x = or += scale * (sums - offsets). */
OCT_CLONES static void write_sums(const chunk *c, const sums *s)
{
    if (c->low)
        write_sums_as(c, s, true, c->add);
    else if (c->add)
        write_sums_as(c, s, false, true);
    else
        write_sums_as(c, s, false, false);
}

/* The same tile by tile (core/product/winograd.h), where no tap is left out: there is one row of offsets. */
static void multiply_tiles(const oct_conv_plan *p, const oct_conv_pass *pass, void *scratch)
{
    const oct_winograd *w = &p->data.winograd;
    const int64_t line = w->out_w * w->out_c, from = w->in_h * w->in_w * w->in_c;
    const int64_t positions = w->period * w->lines * w->out_w;
    oct_row *rows = (oct_row *)(void *)((char *)scratch + w->scratch_bytes);
    int32_t *high = (int32_t *)(void *)(rows + positions), *low = high + positions * w->out_c;
    for (int64_t i = 0; i < positions; i++)
        rows[i].acc = i * w->out_c;
    chunk c = {.rows = rows,
               .low = pass->low,
               .offsets =
                   (const int32_t *)(const void *)((const char *)pass->packed + p->data.offsets_at),
               .add = pass->add};
    const sums s = {.columns = w->out_c, .pitch = w->out_c, .high = high, .low = low};
    oct_winograd_block b = {0};
    for (int64_t n = 0; n < pass->samples; n += b.samples)
        for (b.line = 0; b.line < w->out_h; b.line += b.lines) {
            b.samples = oct_min_i64(w->period, pass->samples - n);
            b.lines = oct_min_i64(w->lines, w->out_h - b.line);
            oct_winograd_multiply(w, &b, (const uint8_t *)pass->x + n * from, pass->packed, high,
                                  scratch);
            if (pass->low)
                oct_winograd_multiply(w, &b, (const uint8_t *)pass->low + n * from, pass->packed,
                                      low, scratch);
            c.each = b.lines * w->out_w;
            c.count = b.samples * c.each;
            c.scale = pass->scale + n;
            c.grad_x = pass->y + (n * w->out_h + b.line) * line;
            write_sums(&c, &s);
        }
}

/* Multiplies and writes the rows of a chunk, all groups and some columns at a time. */
static void multiply_chunk(const oct_conv_plan *p, chunk *c, const void *packed, int32_t *scratch)
{
    const oct_conv_product *d = &p->data;
    oct_product *product = &c->product;
    const int64_t pitch = oct_min_i64(d->columns, OCT_CHUNK_COLUMNS);
    sums s = {.pitch = pitch, .high = scratch, .low = scratch + OCT_CHUNK_ROWS * pitch};
    for (int64_t g = 0; g < p->config.shape.groups; g++) {
        const int64_t of_group = g * d->window.layout.tap_words * OCT_WORD;
        for (int64_t column = 0; column < d->columns; column += s.columns) {
            s.column = g * d->columns + column;
            s.columns = oct_min_i64(pitch, d->columns - column);
            product->packed = (const char *)packed + g * d->group_bytes +
                              column / p->config.bytes->col_tile * d->panel_bytes;
            product->n = s.columns;
            product->x = c->x + of_group;
            product->acc = scratch;
            p->config.bytes->product(product);
            if (c->low) {
                product->x = c->low + of_group;
                product->acc = scratch + OCT_CHUNK_ROWS * pitch;
                p->config.bytes->product(product);
            }
            write_sums(c, &s);
        }
    }
}

void oct_conv_byte_multiply(const oct_conv_plan *p, const oct_conv_pass *pass, void *scratch)
{
    const oct_conv_product *d = &p->data;
    const oct_conv_window *w = &d->window;
    if (d->winograd.bytes) {
        multiply_tiles(p, pass, scratch);
        return;
    }
    const int64_t pitch = oct_min_i64(d->columns, OCT_CHUNK_COLUMNS);
    oct_row *rows = scratch;
    chunk c = {.add = pass->add};
    for (int64_t n = 0; n < pass->samples; n += w->period) {
        const int64_t samples = oct_min_i64(w->period, pass->samples - n);
        c.scale = pass->scale + n;
        c.x = (const char *)pass->x + n * w->x_bytes;
        c.low = pass->low ? (const char *)pass->low + n * w->x_bytes : NULL;
        for (const oct_conv_window_block *b = w->blocks; b < w->blocks + w->num_blocks; b++) {
            c.grad_x = pass->y + (n * w->positions + b->position) * w->layout.acc_stride;
            for (int64_t i = b->first_class; i < b->first_class + b->classes; i++) {
                const oct_product all =
                    oct_conv_window_product(w, &w->classes[i], samples, NULL, NULL);
                c.each = w->classes[i].rows / w->period;
                c.offsets =
                    (const int32_t *)(const void *)((const char *)pass->packed + d->offsets_at) +
                    w->classes[i].number * w->layout.acc_stride;
                c.product = all;
                c.product.rows = rows;
                c.product.panel_bytes = d->panel_bytes;
                for (c.first = 0; c.first < all.m; c.first += c.count) {
                    c.rows = all.rows + c.first;
                    c.product.m = c.count = oct_min_i64(OCT_CHUNK_ROWS, all.m - c.first);
                    for (int64_t r = 0; r < c.count; r++)
                        rows[r] = (oct_row){c.rows[r].x, r * pitch};
                    multiply_chunk(p, &c, pass->packed, (int32_t *)(void *)(rows + OCT_CHUNK_ROWS));
                }
            }
        }
    }
}

void oct_conv_byte_pack(const oct_conv_plan *p, const int8_t *codes, void *packed)
{
    const oct_conv_shape *s = &p->config.shape;
    const oct_conv_product *d = &p->data;
    const oct_conv_window *w = &d->window;
    if (d->winograd.bytes) {
#pragma omp parallel for schedule(static)
        for (int64_t panel = 0; panel < s->in_c / p->config.bytes->col_tile; panel++)
            oct_winograd_pack(&d->winograd, codes, panel, panel + 1, packed);
        return;
    }
    int32_t *offsets = (int32_t *)(void *)((char *)packed + d->offsets_at);
    const oct_conv_window_block *last = &w->blocks[w->num_blocks - 1];
    const oct_byte_product *k = p->config.bytes;
    const int64_t taps = (int64_t)s->kernel_h * s->kernel_w, outs = s->out_c / s->groups;
    const int64_t blocks = (d->columns + OCT_PACKED_COLUMNS - 1) / OCT_PACKED_COLUMNS;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < s->groups * blocks * taps; i++) { /* a block of columns of a tap */
        const int64_t g = i / (blocks * taps), tap = i % taps;
        const int64_t c = i / taps % blocks * OCT_PACKED_COLUMNS;
        const oct_code_rows outputs = {.codes = codes + (g * outs * taps + tap) * d->columns + c,
                                       .rows = outs,
                                       .columns = oct_min_i64(OCT_PACKED_COLUMNS, d->columns - c),
                                       .pitch = taps * d->columns};
        char *tile = (char *)packed + g * d->group_bytes + c / k->col_tile * d->panel_bytes;
        oct_pack_words(k, &outputs, tile + tap * (d->panel_bytes / taps), d->panel_bytes);
    }
    void *zeros = offsets + oct_conv_window_kinds(w) * s->in_c;
    oct_row row = {0};
    oct_run run;
    oct_product product = {.x = zeros,
                           .rows = &row,
                           .m = 1,
                           .runs = &run,
                           .num_runs = 1,
                           .panel_bytes = d->panel_bytes,
                           .n = d->columns,
                           .acc = offsets};
    memset(zeros, OCT_GRAD_FLIP, (size_t)d->zeros_bytes);
    memset(offsets, 0, (size_t)(oct_conv_window_kinds(w) * s->in_c) * sizeof *offsets);
    for (int64_t i = 0; i < last->first_class + last->classes; i++) {
        const oct_conv_window_class *c = &w->classes[i];
        for (int64_t g = 0; g < s->groups; g++) {
            row.acc = c->number * s->in_c + g * d->columns;
            product.packed = (const char *)packed + g * d->group_bytes;
            for (int64_t at = c->first_run; at < c->first_run + c->runs; at++) {
                run = (oct_run){0, w->runs[at].tile, w->runs[at].words};
                product.add = at > c->first_run;
                k->product(&product);
            }
        }
    }
}
