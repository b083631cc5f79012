/* Depthwise convolutions are worked a vector of channels at a time.
 *
 * The channels of a vector are taken out of the source plane into a strip (lines, columns, LANES) that
 * stays in the second-level cache, with zeros where the window leaves the image; codes become floats on
 * the way. So no loop over positions tests for an edge, and all taps (or, for a weight gradient,
 * all sums) stay in registers. Backward to data is the same product over a strip of the output's
 * gradient, with the kernel rotated by 180 degrees, and zeros between the positions where the stride
 * is not 1. Taps are as far apart in the strip as the dilation says.
 *
 * A tail of channels has lanes to spare: its results go through a dense block of whole vectors.
 */
#include "core/base/cpu.h"
#include "core/base/int_math.h"
#include "core/kernel/conv_impl.h"

#include <string.h>

enum {
    LANES = OCT_DEPTHWISE_LANES,
    BLOCK_BYTES = 128 * 1024, /* of source and results: this block and the next stay in the cache */
};

/* A vector is half of a strip's lanes: the nine taps, or sums, of a 3x3 kernel fit into 16 registers of
 * these. */
typedef float half __attribute__((vector_size(LANES * 2), aligned(4), may_alias));

static int64_t strip_lines(const oct_depthwise_plan *p, int64_t lines)
{
    return (lines - 1) * p->step_h + (p->kernel_h - 1) * p->dilation_h + 1;
}

/* Plans a strip: from_* is its source, the input or (backward) the gradient of the output, whose positions are then a
 * stride (apart_*) apart in the strip; to_* are the results, whose windows step over it. */
static oct_depthwise_plan plan_strip(const oct_conv_shape *s, oct_direction direction)
{
    const bool forward = direction == OCT_FORWARD;
    const int64_t extent_h = oct_conv_extent(s->kernel_h, s->dilation_h);
    const int64_t extent_w = oct_conv_extent(s->kernel_w, s->dilation_w);
    oct_depthwise_plan p = {.from_h = forward ? s->in_h : s->out_h,
                            .from_w = forward ? s->in_w : s->out_w,
                            .channels = s->in_c,
                            .apart_h = forward ? 1 : s->stride_h,
                            .apart_w = forward ? 1 : s->stride_w,
                            .pad_h = forward ? s->pad_top : extent_h - 1 - s->pad_top,
                            .pad_w = forward ? s->pad_left : extent_w - 1 - s->pad_left,
                            .to_h = forward ? s->out_h : s->in_h,
                            .to_w = forward ? s->out_w : s->in_w,
                            .step_h = forward ? s->stride_h : 1,
                            .step_w = forward ? s->stride_w : 1,
                            .kernel_h = s->kernel_h,
                            .kernel_w = s->kernel_w,
                            .dilation_h = s->dilation_h,
                            .dilation_w = s->dilation_w};
    p.width = (p.to_w - 1) * p.step_w + extent_w;

    /* Blocks have equally many lines, and few enough for their source and results. */
    const int64_t plane = (p.from_h * p.from_w + p.to_h * p.to_w) * p.channels;
    const int64_t line_bytes = plane / p.to_h * (int64_t)sizeof(float);
    const int64_t fitting = oct_max_i64(1, BLOCK_BYTES / line_bytes);
    const int64_t blocks = (p.to_h + fitting - 1) / fitting;
    p.max_lines = (p.to_h + blocks - 1) / blocks;
    return p;
}

static int64_t taps_of(const oct_conv_shape *s)
{
    return (int64_t)s->kernel_h * s->kernel_w;
}

/* Returns the floats of packed weights, and of their sums. */
static int64_t packed_floats(const oct_conv_shape *s)
{
    return (s->in_c + LANES - 1) / LANES * taps_of(s) * LANES;
}

/* `count` channels of n positions, x_step values apart, are copied to vectors to_step floats apart. Hardware does not
 * prefetch such an order, so every position asks for a part of the block that begins `prefetch` values further. */
typedef struct float_copy {
    int64_t n, x_step, count, prefetch, to_step;
} float_copy;

/* Copies the channels of n positions. A whole vector has a size that the compiler knows: it is copied in registers. */
OCT_CLONES static void copy_floats(float_copy t, const float *x, float *to)
{
    const float *next = x + t.prefetch;
    for (int64_t i = 0; i < t.n; i++, x += t.x_step, to += t.to_step) {
        __builtin_prefetch(next + i * LANES);
        if (t.count == LANES)
            memcpy(to, x, LANES * sizeof(float));
        else
            memcpy(to, x, (size_t)t.count * sizeof(float));
    }
}

#define COPY_CODES(name, code_t)                                                                   \
    OCT_CLONES                                                                                     \
    static void name(float_copy t, const code_t *restrict x, int32_t zero_point,                   \
                     float *restrict to)                                                           \
    {                                                                                              \
        const code_t *next = x + t.prefetch;                                                       \
        if (t.count == LANES) {                                                                    \
            for (int64_t i = 0; i < t.n; i++, x += t.x_step, to += t.to_step) {                    \
                __builtin_prefetch(next + i * LANES);                                              \
                for (int c = 0; c < LANES; c++)                                                    \
                    to[c] = (float)(x[c] - zero_point);                                            \
            }                                                                                      \
        } else {                                                                                   \
            for (int64_t i = 0; i < t.n; i++, x += t.x_step, to += t.to_step) {                    \
                for (int64_t c = 0; c < t.count; c++)                                              \
                    to[c] = (float)(x[c] - zero_point);                                            \
            }                                                                                      \
        }                                                                                          \
    }
COPY_CODES(copy_u8, uint8_t)
COPY_CODES(copy_u16, uint16_t)

/* Copies the channels of some positions, from element `at` of the source on, as floats: codes as code - zero_point. */
static void copy_channels(float_copy t, const oct_conv_input *x, int64_t at, float *to)
{
    if (x->values)
        copy_floats(t, x->values + at, to);
    else if (x->codes)
        copy_u8(t, x->codes + at, x->zero_point, to);
    else
        copy_u16(t, x->codes16 + at, x->zero_point, to);
}

/* Finds positions [*begin, *end) of the source that are in a strip of `size`. */
static void positions_inside(int64_t size, int64_t pad, int64_t apart, int64_t from, int64_t *begin,
                             int64_t *end)
{
    *begin = pad < 0 ? (-pad + apart - 1) / apart : 0;
    *end = oct_max_i64(*begin, oct_min_i64(from, (size - 1 - pad + apart) / apart));
}

/* A block of a sample is worked at a time: the results' lines [line, line + lines) of up to LANES
 * channels from c on. */
typedef struct block {
    int64_t line, lines, c, count;
} block;

/* Fills the strip of a block; the sample begins at element `at` of x. Columns without a source position were cleared
 * before. Each line also prefetches as much of the source of the next block. */
static void fill_strip(const oct_depthwise_plan *p, const oct_conv_input *x, int64_t at,
                       const block *b, float *to)
{
    int64_t begin, end;
    positions_inside(p->width, p->pad_w, p->apart_w, p->from_w, &begin, &end);
    const int64_t first_line = b->line * p->step_h / p->apart_h;
    const int64_t next_line = (b->line + b->lines) * p->step_h / p->apart_h;
    const int64_t first = at + begin * p->channels + b->c;
    const int64_t next =
        at + next_line * p->from_w * p->channels + (next_line - first_line) * p->from_w * b->c;
    float_copy t = {
        .n = end - begin, .x_step = p->channels, .count = b->count, .to_step = p->apart_w * LANES};
    for (int64_t u = 0; u < strip_lines(p, b->lines); u++, to += p->width * LANES) {
        const int64_t v = b->line * p->step_h + u - p->pad_h, from = v / p->apart_h;
        if (v < 0 || v % p->apart_h != 0 || from >= p->from_h) {
            memset(to, 0, (size_t)(p->width * LANES) * sizeof(float));
            continue;
        }
        const int64_t source = first + from * p->from_w * p->channels;
        t.prefetch = next + (from - first_line) * p->from_w * LANES - source;
        copy_channels(t, x, source, to + (begin * p->apart_w + p->pad_w) * LANES);
    }
}

/* Windows go over a strip, and rows of results (or of their gradients) go with them. */
typedef struct windows {
    const float *strip;
    int64_t tap_across, tap_down; /* floats from one tap to the next */
    int64_t across, down;         /* floats from one window to the next */
    int64_t lines, columns;
    int64_t kernel_h, kernel_w;
    const float *prefetch; /* part of the next block of rows: half a vector for each position */
} windows;

/* y = start + sum over taps in order; start and y advance by their steps at every position. */
OCT_INLINE void multiply_small(int kernel_h, int kernel_w, const windows *v, const float *weight,
                               const float *start, int64_t start_step, float *y, int64_t y_step)
{
    half w[25];
    for (int t = 0; t < kernel_h * kernel_w; t++)
        w[t] = *(const half *)(weight + t * LANES);
    for (int64_t l = 0; l < v->lines; l++) {
        const float *x = v->strip + l * v->down, *next = v->prefetch + l * v->columns * (LANES / 2);
        for (int64_t c = 0; c < v->columns; c++, x += v->across, start += start_step, y += y_step) {
            __builtin_prefetch(next + c * (LANES / 2));
            half sum = *(const half *)start;
#pragma GCC unroll 5
            for (int ky = 0; ky < kernel_h; ky++) {
#pragma GCC unroll 5
                for (int kx = 0; kx < kernel_w; kx++)
                    sum +=
                        *(const half *)(x + ky * v->tap_down + kx * LANES) * w[ky * kernel_w + kx];
            }
            *(half *)y = sum;
        }
    }
}

OCT_CLONES static void multiply_3x3(const windows *v, const float *weight, const float *start,
                                    int64_t start_step, float *y, int64_t y_step)
{
    multiply_small(3, 3, v, weight, start, start_step, y, y_step);
}

OCT_CLONES static void multiply_5x5(const windows *v, const float *weight, const float *start,
                                    int64_t start_step, float *y, int64_t y_step)
{
    multiply_small(5, 5, v, weight, start, start_step, y, y_step);
}

/* y = start + sum over taps in order, for any size and dilation; the weights are read again for each window. */
OCT_CLONES static void multiply_any(const windows *v, const float *weight, const float *start,
                                    int64_t start_step, float *y, int64_t y_step)
{
    for (int64_t l = 0; l < v->lines; l++) {
        const float *x = v->strip + l * v->down, *next = v->prefetch + l * v->columns * (LANES / 2);
        for (int64_t c = 0; c < v->columns; c++, x += v->across, start += start_step, y += y_step) {
            __builtin_prefetch(next + c * (LANES / 2));
            half sum = *(const half *)start;
            const float *w = weight;
            for (int64_t ky = 0; ky < v->kernel_h; ky++) {
                for (int64_t kx = 0; kx < v->kernel_w; kx++, w += LANES)
                    sum += *(const half *)(x + ky * v->tap_down + kx * v->tap_across) *
                           *(const half *)w;
            }
            *(half *)y = sum;
        }
    }
}

/* sums (taps, LANES) += over positions in order: what a tap sees * grad. */
OCT_INLINE void add_products_small(int kernel_h, int kernel_w, const windows *v, const float *grad,
                                   int64_t grad_step, float *sums)
{
    half sum[25];
    for (int t = 0; t < kernel_h * kernel_w; t++)
        sum[t] = *(const half *)(sums + t * LANES);
    for (int64_t l = 0; l < v->lines; l++) {
        const float *x = v->strip + l * v->down, *next = v->prefetch + l * v->columns * (LANES / 2);
        for (int64_t c = 0; c < v->columns; c++, x += v->across, grad += grad_step) {
            __builtin_prefetch(next + c * (LANES / 2));
            half g = *(const half *)grad;
#pragma GCC unroll 5
            for (int ky = 0; ky < kernel_h; ky++) {
#pragma GCC unroll 5
                for (int kx = 0; kx < kernel_w; kx++)
                    sum[ky * kernel_w + kx] +=
                        *(const half *)(x + ky * v->tap_down + kx * LANES) * g;
            }
        }
    }
    for (int t = 0; t < kernel_h * kernel_w; t++)
        *(half *)(sums + t * LANES) = sum[t];
}

OCT_CLONES static void add_products_3x3(const windows *v, const float *grad, int64_t grad_step,
                                        float *sums)
{
    add_products_small(3, 3, v, grad, grad_step, sums);
}

OCT_CLONES static void add_products_5x5(const windows *v, const float *grad, int64_t grad_step,
                                        float *sums)
{
    add_products_small(5, 5, v, grad, grad_step, sums);
}

/* sums += what a tap sees * grad over positions in order, for any size and dilation, one tap after the other. */
OCT_CLONES static void add_products_any(const windows *v, const float *grad, int64_t grad_step,
                                        float *sums)
{
    for (int64_t t = 0; t < v->kernel_h * v->kernel_w; t++, sums += LANES) {
        const float *tap =
            v->strip + t / v->kernel_w * v->tap_down + t % v->kernel_w * v->tap_across;
        const float *g = grad;
        half sum = *(const half *)sums;
        for (int64_t l = 0; l < v->lines; l++) {
            const float *x = tap + l * v->down;
            for (int64_t c = 0; c < v->columns; c++, x += v->across, g += grad_step)
                sum += *(const half *)x * *(const half *)g;
        }
        *(half *)sums = sum;
    }
}

/* Gives the windows of a block. rows: of results, (positions, C), at the block's first position. */
static windows windows_of(const oct_depthwise_plan *p, const float *filled, const block *b,
                          const float *rows)
{
    return (windows){.strip = filled,
                     .tap_across = p->dilation_w * LANES,
                     .tap_down = p->dilation_h * p->width * LANES,
                     .across = p->step_w * LANES,
                     .down = p->step_h * p->width * LANES,
                     .lines = b->lines,
                     .columns = p->to_w,
                     .kernel_h = p->kernel_h,
                     .kernel_w = p->kernel_w,
                     .prefetch = rows + b->lines * p->to_w * (p->channels + b->c)};
}

/* Goes from the first half of a vector of channels to the second. */
static void go_to_second_half(windows *v)
{
    v->strip += LANES / 2;
    v->prefetch += v->lines * v->columns * (LANES / 2);
}

typedef void multiply_fn(const windows *v, const float *weight, const float *start,
                         int64_t start_step, float *y, int64_t y_step);
typedef void add_products_fn(const windows *v, const float *grad, int64_t grad_step, float *sums);

/* True when the kernel is size x size taps that are neighbours in their lines. */
static bool is_square(const windows *v, int64_t size)
{
    return v->kernel_h == size && v->kernel_w == size && v->tap_across == LANES;
}

/* Multiplies both halves of a vector of channels by the loop for this kernel. */
static void multiply_windows(windows v, const float *weight, const float *start, int64_t start_step,
                             float *y, int64_t y_step)
{
    multiply_fn *f = is_square(&v, 3)   ? multiply_3x3
                     : is_square(&v, 5) ? multiply_5x5
                                        : multiply_any;
    for (int i = 0; i < LANES; i += LANES / 2, go_to_second_half(&v))
        f(&v, weight + i, start + i, start_step, y + i, y_step);
}

/* sums += window * grad over all windows, for both halves of a vector of channels, by the loop for this kernel. */
static void add_window_products(windows v, const float *grad, int64_t grad_step, float *sums)
{
    add_products_fn *f = is_square(&v, 3)   ? add_products_3x3
                         : is_square(&v, 5) ? add_products_5x5
                                            : add_products_any;
    for (int i = 0; i < LANES; i += LANES / 2, go_to_second_half(&v))
        f(&v, grad + i, grad_step, sums + i);
}

/* Scratch holds a strip, then a block of whole vectors for a tail of channels, then what a caller adds. */

static int64_t strip_floats(const oct_depthwise_plan *p)
{
    return strip_lines(p, p->max_lines) * p->width * LANES;
}

static int64_t dense_floats(const oct_depthwise_plan *p)
{
    return p->channels % LANES == 0 ? 0 : p->max_lines * p->to_w * LANES;
}

static size_t scratch_bytes(const oct_depthwise_plan *p, int64_t more_floats)
{
    return (size_t)(strip_floats(p) + dense_floats(p) + more_floats) * sizeof(float);
}

/* Clears what will not be written: columns without a source position, and lanes of a tail. */
static void clear_strip(const oct_depthwise_plan *p, float *scratch)
{
    int64_t begin, end, lines = strip_lines(p, p->max_lines);
    positions_inside(p->width, p->pad_w, p->apart_w, p->from_w, &begin, &end);
    if (p->apart_w > 1 || begin == end || p->channels % LANES != 0) {
        memset(scratch, 0, scratch_bytes(p, 0));
        return;
    }
    const int64_t left = p->pad_w + begin, right = p->pad_w + end;
    for (int64_t l = 0; l < lines; l++, scratch += p->width * LANES) {
        memset(scratch, 0, (size_t)(left * LANES) * sizeof(float));
        memset(scratch + right * LANES, 0, (size_t)((p->width - right) * LANES) * sizeof(float));
    }
}

/* Some channels of all. */
typedef struct channels {
    int64_t first, end;
} channels;

/* Moves to the next block of a sample, false at the end: LANES channels of some lines, then the next channels of these
 * lines, and after all channels of the range the next lines. */
static bool next_block(const oct_depthwise_plan *p, channels range, block *b)
{
    b->c = b->count > 0 ? b->c + b->count : range.first;
    if (b->c >= range.end) {
        b->c = range.first;
        b->line += b->lines;
    }
    b->lines = oct_min_i64(p->max_lines, p->to_h - b->line);
    b->count = oct_min_i64(LANES, range.end - b->c);
    return b->lines > 0;
}

/* Says how a tail's rows of results go into whole vectors. */
static float_copy tail_rows(const oct_depthwise_plan *p, const block *b)
{
    return (float_copy){
        .n = b->lines * p->to_w, .x_step = p->channels, .count = b->count, .to_step = LANES};
}

/* y = or += sum over taps, plus bias (NULL: none), for all windows of the samples. Results of a tail, the last channels
 * where they are no whole vector, go through `dense`. */
void oct_depthwise_multiply(const oct_depthwise_plan *p, const oct_conv_pass *pass, void *scratch)
{
    const oct_conv_input x = {.values = pass->x};
    const int64_t taps = p->kernel_h * p->kernel_w, from = p->from_h * p->from_w * p->channels;
    const int64_t line = p->to_w * p->channels;
    float *filled = scratch, *dense = filled + strip_floats(p), *y = pass->y;
    clear_strip(p, filled);
    for (int64_t n = 0; n < pass->samples; n++, y += p->to_h * line) {
        for (block b = {0}; next_block(p, (channels){0, p->channels}, &b);) {
            const bool tail = b.count < LANES;
            const int64_t step = tail ? LANES : p->channels;
            const float *weight = (const float *)pass->packed + b.c * taps;
            float *rows = y + b.line * line + b.c, *to = tail ? dense : rows, first[LANES] = {0};
            if (pass->bias) memcpy(first, pass->bias + b.c, (size_t)b.count * sizeof *first);
            fill_strip(p, &x, n * from, &b, filled);
            if (tail && pass->add) copy_floats(tail_rows(p, &b), rows, dense);
            multiply_windows(windows_of(p, filled, &b, y + b.line * line), weight,
                             pass->add ? to : first, pass->add ? step : 0, to, step);
            for (int64_t i = 0; tail && i < b.lines * p->to_w; i++)
                memcpy(rows + i * p->channels, dense + i * LANES, (size_t)b.count * sizeof *rows);
        }
    }
}

static void init_product(oct_conv_product *d, const oct_conv_shape *s, oct_direction direction)
{
    d->strip = plan_strip(s, direction);
    d->packed_bytes = (size_t)packed_floats(s) * sizeof(float);
    d->scratch_bytes = scratch_bytes(&d->strip, 0);
}

void oct_depthwise_plan_init(oct_conv_plan *p)
{
    const oct_conv_shape *s = &p->config.shape;
    if (p->config.products & OCT_CONV_FORWARD) init_product(&p->forward, s, OCT_FORWARD);
    if (p->config.products & OCT_CONV_BACKWARD_DATA) init_product(&p->data, s, OCT_BACKWARD);
    if (!(p->config.products & OCT_CONV_BACKWARD_WEIGHT)) return;
    p->weight.leaves = 1;
    p->weight.strip = plan_strip(s, OCT_FORWARD);
    p->weight.scratch_bytes = scratch_bytes(&p->weight.strip, packed_floats(s));
}

/* packed (vectors, taps, LANES) = weight (C, taps), filled up with zeros; backward with the kernel rotated. */
void oct_depthwise_pack(const oct_conv_shape *s, const float *weight, const int8_t *codes,
                        oct_direction direction, void *packed)
{
    float *to = packed;
    const int64_t taps = taps_of(s);
    memset(to, 0, (size_t)packed_floats(s) * sizeof *to);
    for (int64_t c = 0; c < s->in_c; c++) {
        for (int64_t t = 0; t < taps; t++) {
            const int64_t at = c * taps + (direction == OCT_FORWARD ? t : taps - 1 - t);
            to[(c / LANES * taps + t) * LANES + c % LANES] = weight ? weight[at] : (float)codes[at];
        }
    }
}

/* sums (C, taps) of the pass = or += factor * sums (vectors, taps, LANES). */
static void write_sums(const oct_conv_shape *s, channels range, const float *sums,
                       const oct_conv_weight_pass *pass)
{
    const int64_t taps = taps_of(s);
    for (int64_t c = range.first; c < range.end; c++) {
        const float factor = pass->factor ? pass->factor[c] : 1.0F;
        for (int64_t t = 0; t < taps; t++)
            pass->sums[c * taps + t] = (pass->add ? pass->sums[c * taps + t] : 0.0F) +
                                       factor * sums[(c / LANES * taps + t) * LANES + c % LANES];
    }
}

void oct_depthwise_backward_weight(const oct_conv_plan *plan, const oct_conv_weight_pass *pass,
                                   void *scratch)
{
    const oct_conv_shape *s = &plan->config.shape;
    const oct_depthwise_plan *p = &plan->weight.strip;
    const channels range = {pass->channel,
                            pass->channels > 0 ? pass->channel + pass->channels : s->in_c};
    const float *grad = pass->grad;
    OCT_ASSERT(range.first % LANES == 0 && (range.end % LANES == 0 || range.end == s->in_c));
    float *filled = scratch, *dense = filled + strip_floats(p), *sums = dense + dense_floats(p);
    clear_strip(p, filled);
    memset(sums, 0, (size_t)packed_floats(s) * sizeof *sums);
    for (int64_t n = 0; n < pass->samples; n++, grad += oct_conv_out_numel(s)) {
        for (block b = {0}; next_block(p, range, &b);) {
            const bool tail = b.count < LANES;
            const float *rows = grad + b.line * s->out_w * s->out_c;
            fill_strip(p, &pass->x, n * oct_conv_in_numel(s), &b, filled);
            if (tail) copy_floats(tail_rows(p, &b), rows + b.c, dense);
            add_window_products(windows_of(p, filled, &b, rows), tail ? dense : rows + b.c,
                                tail ? LANES : s->out_c, sums + b.c * taps_of(s));
        }
    }
    write_sums(s, range, sums, pass);
}
