/* The rows of a weight gradient's product and their runs: places in the planes (conv_impl.h); and how the sums become
 * a gradient. */
#include "core/base/cpu.h"
#include "core/base/int_math.h"
#include "core/kernel/conv_impl.h"
#include "core/tensor/move.h"

enum {
    TRANSPOSED_ROWS = 64, /* of the depth that a thread puts into the layout of weights at a time */
    TRANSPOSED_ALONE = 1 << 14, /* fewer sums are not worth several threads */
};

/* Finds the lines y of the block with 0 <= y * stride_h - pad_top + ky * dilation_h < in_h; *line: within the block. */
static void find_lines_inside(const oct_weight_plan *p, const oct_weight_block *b, int64_t ky,
                              int64_t *line, int64_t *lines)
{
    const oct_conv_shape *s = &p->s;
    const int64_t above = s->pad_top - ky * s->dilation_h, below = s->in_h - 1 + above;
    const int64_t begin = above > 0 ? (above + s->stride_h - 1) / s->stride_h : 0;
    const int64_t first = oct_max_i64(begin, b->line);
    const int64_t end = oct_min_i64(below < 0 ? 0 : below / s->stride_h + 1, b->line + b->lines);
    *line = first - b->line;
    *lines = oct_max_i64(end - first, 0);
}

bool oct_weight_next_rows(const oct_weight_plan *p, const oct_weight_block *b, oct_kernel_rows *c)
{
    int64_t line, lines;
    c->first = c->end;
    if (c->first == p->s.kernel_h) return false;
    if (p->few_rows) {
        *c = (oct_kernel_rows){0, p->s.kernel_h, 0, b->lines};
        return true;
    }
    find_lines_inside(p, b, c->end++, &c->line, &c->lines);
    for (; c->end < p->s.kernel_h; c->end++) {
        find_lines_inside(p, b, c->end, &line, &lines);
        if (line != c->line || lines != c->lines) break;
    }
    return true;
}

int64_t oct_weight_list_runs(const oct_weight_plan *p, const oct_weight_block *b,
                             const oct_kernel_rows *c, oct_run *runs)
{
    int64_t count = 0;
    for (int64_t n = 0; n < b->samples; n++) {
        for (int64_t l = c->line; l < c->line + c->lines; l++)
            oct_runs_add(runs, &count,
                         (oct_run){.x = (n * p->sample + l * p->s.stride_h * p->line) * p->element,
                                   .tile = (n * b->lines + l) * p->line_words,
                                   .words = p->line_words});
    }
    return count;
}

/* Returns the byte of a plane where tap (ky, kx) is: column kx * dilation_w is value column / stride_w of a phase. */
static int64_t tap_start(const oct_weight_plan *p, int64_t tap)
{
    const int64_t row = tap / p->s.kernel_w * p->s.dilation_h;
    const int64_t column = tap % p->s.kernel_w * p->s.dilation_w;
    const int64_t shift = column / p->s.stride_w, copy = p->quads ? shift % 4 : 0;
    const int64_t phase = column % p->s.stride_w;
    return (copy * p->copy + row * p->line + phase * p->pitch + shift - copy) * p->element;
}

void oct_weight_list_rows(const oct_weight_plan *p, int64_t first, int64_t m, oct_row *rows)
{
    int64_t tap = first / p->ins, channel = first % p->ins;
    for (int64_t i = 0; i < m; tap++, channel = 0) {
        const int64_t start = tap_start(p, tap);
        for (; channel < p->ins && i < m; channel++, i++)
            rows[i] = (oct_row){start + channel * p->plane * p->element, i * p->outs};
    }
}

OCT_INLINE void add_scaled_as(const oct_weight_plan *p, const oct_weight_block *b,
                              const oct_weight_scratch *r, const oct_product *product, int64_t at,
                              const float *scale, float *restrict sums, const bool wide)
{
    const int64_t n = p->outs, of_ky = p->s.kernel_w * p->ins;
    const int32_t *high = product->acc, *low = high + r->acc_sums;
    for (int64_t i = 0; i < product->m; i++, high += n, low += n, sums += n) {
        const int32_t *offset = r->offsets + (at + i) / of_ky * n,
                      *low_offset = offset + r->num_offsets;
        for (int64_t o = 0; o < n; o++) {
            const int32_t sum = high[o] - offset[o];
            /* Two digits are below 2^40 together: exact, and rounded once. */
            const float value =
                scale[o] * (wide ? (float)(256.0 * sum + (low[o] - low_offset[o])) : (float)sum);
            sums[o] = b->fresh ? value : sums[o] + value;
        }
    }
}

/* sums = or += scale * (the sums of codes - their offsets). */
OCT_CLONES static void add_scaled(const oct_weight_plan *p, const oct_weight_block *b,
                                  const oct_weight_scratch *r, const oct_product *product,
                                  int64_t at, const float *scale, float *sums)
{
    if (p->digits == 2)
        add_scaled_as(p, b, r, product, at, scale, sums, true);
    else
        add_scaled_as(p, b, r, product, at, scale, sums, false);
}

/* Multiplies codes with all digits of the gradient, whose sums are `apart` elements from each other. */
static void multiply_digits(const oct_weight_plan *p, const oct_product *product, int64_t apart)
{
    oct_product digit = *product;
    for (int i = 0; i < p->digits; i++) {
        p->bytes->product(&digit);
        digit.packed = (const char *)digit.packed + p->panels * p->panel_bytes;
        digit.acc = (int32_t *)digit.acc + apart;
    }
}

void oct_weight_compute_offsets(const oct_weight_plan *p, const oct_kernel_rows *c,
                                const oct_weight_scratch *r, const oct_product *product)
{
    oct_product zeros = *product;
    if (!p->bytes) return;
    zeros.m = c->end - c->first;
    zeros.acc = r->offsets;
    for (int64_t i = 0; i < zeros.m; i++)
        r->rows[i] = (oct_row){p->ins * p->plane, (c->first + i) * p->outs};
    multiply_digits(p, &zeros, r->num_offsets);
}

void oct_weight_multiply_rows(const oct_weight_plan *p, const oct_weight_block *b,
                              const oct_weight_scratch *r, oct_product *product, int64_t at,
                              const float *scale, float *sums)
{
    product->acc = p->bytes ? (void *)(r->acc + (p->blocks > 1 ? at * p->outs : 0)) : (void *)sums;
    if (p->bytes) {
        multiply_digits(p, product, r->acc_sums);
        if (b->ends) add_scaled(p, b, r, product, at, scale, sums);
    } else if (p->bf16) {
        p->kernel->bf16(product);
    } else {
        p->kernel->f32(product);
    }
}

/* Threads share blocks of TRANSPOSED_ROWS rows of a group. */
void oct_conv_weight_transpose(int64_t groups, int64_t depth, int64_t outs, const float *sums,
                               float *weight)
{
    const int64_t blocks = (depth + TRANSPOSED_ROWS - 1) / TRANSPOSED_ROWS;
#pragma omp parallel for schedule(static) if (groups * depth * outs > TRANSPOSED_ALONE)
    for (int64_t i = 0; i < groups * blocks; i++) {
        const int64_t all = i / blocks * depth * outs, first = i % blocks * TRANSPOSED_ROWS;
        const int64_t rows = oct_min_i64(TRANSPOSED_ROWS, depth - first);
        oct_transpose_f32(rows, outs, sums + all + first * outs, outs, weight + all + first, depth);
    }
}
