/* Depthwise convolutions, a vector of channels at a time.
 *
 * The channels of a vector are taken out of the source plane into a strip (lines, columns, LANES) that
 * stays in the second-level cache, with zeros where the window leaves the image; codes become floats on
 * the way. So no loop over positions asks where an edge is, and all taps (or, for a weight gradient,
 * all sums) stay in registers. Backward to data is the same product over a strip of the output's
 * gradient, with the kernel turned by 180 degrees, and zeros between the positions where the stride
 * is not 1.
 *
 * A tail of channels has lanes to spare: its results go through a dense block of whole vectors.
 */
#include "core/kernel/depthwise.h"

#include "core/base/cpu.h"
#include "core/base/whole.h"

#include <string.h>

enum {
    LANES = 16,
    BLOCK_BYTES = 128 * 1024, /* of source and results: this block and the next stay in the cache */
};

/* Half of a strip's lanes: the nine taps, or sums, of a 3x3 kernel fit into 16 registers of these. */
typedef float half __attribute__((vector_size(LANES * 2), aligned(4), may_alias));

/* Where a source plane lies in its strip, and the results that windows over the strip have. */
typedef struct strip {
    int64_t from_h, from_w, channels; /* the source */
    int64_t spread;                   /* from one source position to the next in the strip */
    int64_t pad_h, pad_w;             /* of source position 0 in the strip */
    int64_t to_h, to_w;               /* the results */
    int64_t step;                     /* from one result's window to the next */
    int64_t kernel_h, kernel_w;
    int64_t width;     /* columns of the strip */
    int64_t max_lines; /* results' lines that one strip serves */
} strip;

static int64_t strip_lines(const strip *p, int64_t lines)
{
    return (lines - 1) * p->step + p->kernel_h;
}

/* Lines of a block: as many in each, and few enough for their source and results. */
static void plan_lines(strip *p)
{
    int64_t plane = (p->from_h * p->from_w + p->to_h * p->to_w) * p->channels;
    int64_t line_bytes = plane / p->to_h * (int64_t)sizeof(float);
    int64_t fitting = oct_max_i64(1, BLOCK_BYTES / line_bytes);
    int64_t blocks = (p->to_h + fitting - 1) / fitting;
    p->max_lines = (p->to_h + blocks - 1) / blocks;
}

static strip forward_strip(const oct_conv_shape *s)
{
    strip p = {.from_h = s->in_h,
               .from_w = s->in_w,
               .channels = s->in_c,
               .spread = 1,
               .pad_h = s->padding,
               .pad_w = s->padding,
               .to_h = s->out_h,
               .to_w = s->out_w,
               .step = s->stride,
               .kernel_h = s->kernel_h,
               .kernel_w = s->kernel_w,
               .width = (s->out_w - 1) * s->stride + s->kernel_w};
    plan_lines(&p);
    return p;
}

static strip backward_strip(const oct_conv_shape *s)
{
    strip p = {.from_h = s->out_h,
               .from_w = s->out_w,
               .channels = s->in_c,
               .spread = s->stride,
               .pad_h = s->kernel_h - 1 - s->padding,
               .pad_w = s->kernel_w - 1 - s->padding,
               .to_h = s->in_h,
               .to_w = s->in_w,
               .step = 1,
               .kernel_h = s->kernel_h,
               .kernel_w = s->kernel_w,
               .width = s->in_w - 1 + s->kernel_w};
    plan_lines(&p);
    return p;
}

static int64_t taps_of(const oct_conv_shape *s)
{
    return (int64_t)s->kernel_h * s->kernel_w;
}

static int64_t vectors_of(int64_t channels)
{
    return (channels + LANES - 1) / LANES;
}

/* Taking channels out: `n` positions of `count` channels, x_step apart, to vectors to_step apart. That is
 * no order that a processor foresees, so every position asks for a part of the block at `next`. */

OCT_CLONES
static void take_floats(int64_t n, const float *x, int64_t x_step, int64_t count, const float *next,
                        float *to, int64_t to_step)
{
    for (int64_t i = 0; i < n; i++, x += x_step, to += to_step) {
        __builtin_prefetch(next + i * LANES);
        if (count == LANES)
            memcpy(to, x, LANES * sizeof(float));
        else
            memcpy(to, x, (size_t)count * sizeof(float));
    }
}

#define TAKE_CODES(name, code_t)                                                                   \
    OCT_CLONES                                                                                     \
    static void name(int64_t n, const code_t *restrict x, int64_t x_step, int64_t count,           \
                     const code_t *next, int32_t zero_point, float *restrict to, int64_t to_step)  \
    {                                                                                              \
        if (count == LANES) {                                                                      \
            for (int64_t i = 0; i < n; i++, x += x_step, to += to_step) {                          \
                __builtin_prefetch(next + i * LANES);                                              \
                for (int c = 0; c < LANES; c++)                                                    \
                    to[c] = (float)(x[c] - zero_point);                                            \
            }                                                                                      \
        } else {                                                                                   \
            for (int64_t i = 0; i < n; i++, x += x_step, to += to_step) {                          \
                for (int64_t c = 0; c < count; c++)                                                \
                    to[c] = (float)(x[c] - zero_point);                                            \
            }                                                                                      \
        }                                                                                          \
    }
TAKE_CODES(take_u8, uint8_t)
TAKE_CODES(take_u16, uint16_t)

/* n positions of the source, from element `at` on. */
static void take(const oct_conv_input *x, int64_t at, int64_t n, int64_t x_step, int64_t count,
                 int64_t next, float *to, int64_t to_step)
{
    if (x->values)
        take_floats(n, x->values + at, x_step, count, x->values + next, to, to_step);
    else if (x->codes)
        take_u8(n, x->codes + at, x_step, count, x->codes + next, x->zero_point, to, to_step);
    else
        take_u16(n, x->codes16 + at, x_step, count, x->codes16 + next, x->zero_point, to, to_step);
}

/* Positions [*begin, *end) of the source that lie in a strip of `size`. */
static void inside(int64_t size, int64_t pad, int64_t spread, int64_t from, int64_t *begin,
                   int64_t *end)
{
    *begin = pad < 0 ? (-pad + spread - 1) / spread : 0;
    *end = oct_max_i64(*begin, oct_min_i64(from, (size - 1 - pad + spread) / spread));
}

/* The strip of up to LANES channels from c on, for the results' lines from `line` on; the sample begins
 * at element `at` of x. Columns that no source position meets were cleared before. */
static void fill(const strip *p, const oct_conv_input *x, int64_t at, int64_t c, int64_t line,
                 int64_t lines, float *to)
{
    int64_t count = oct_min_i64(LANES, p->channels - c), begin, end;
    inside(p->width, p->pad_w, p->spread, p->from_w, &begin, &end);
    int64_t here = line * p->step / p->spread, behind = (line + lines) * p->step / p->spread;
    int64_t next = at + behind * p->from_w * p->channels + (behind - here) * p->from_w * c;
    for (int64_t u = 0; u < strip_lines(p, lines); u++, to += p->width * LANES) {
        int64_t v = line * p->step + u - p->pad_h, from = v / p->spread;
        if (v < 0 || v % p->spread != 0 || from >= p->from_h)
            memset(to, 0, (size_t)(p->width * LANES) * sizeof(float));
        else
            take(x, at + (from * p->from_w + begin) * p->channels + c, end - begin, p->channels,
                 count, next + (from - here) * p->from_w * LANES,
                 to + (begin * p->spread + p->pad_w) * LANES, p->spread * LANES);
    }
}

/* Windows over a strip, and rows of results (or of their gradients) that go with them. */
typedef struct windows {
    const float *strip;
    int64_t width;        /* floats of a line of the strip */
    int64_t across, down; /* floats from one window to the next */
    int64_t lines, columns;
    int64_t kernel_h, kernel_w;
    const float *next; /* part of the next block of rows: half a vector for each position */
} windows;

/* y = start + sum over taps in order; start and y advance by their steps at every position. */
static inline __attribute__((always_inline)) void
multiply_small(int kernel_h, int kernel_w, const windows *v, const float *weight,
               const float *start, int64_t start_step, float *y, int64_t y_step)
{
    half w[25];
    for (int t = 0; t < kernel_h * kernel_w; t++)
        w[t] = *(const half *)(weight + t * LANES);
    for (int64_t l = 0; l < v->lines; l++) {
        const float *x = v->strip + l * v->down, *next = v->next + l * v->columns * (LANES / 2);
        for (int64_t c = 0; c < v->columns; c++, x += v->across, start += start_step, y += y_step) {
            __builtin_prefetch(next + c * (LANES / 2));
            half sum = *(const half *)start;
#pragma GCC unroll 5
            for (int ky = 0; ky < kernel_h; ky++) {
#pragma GCC unroll 5
                for (int kx = 0; kx < kernel_w; kx++)
                    sum += *(const half *)(x + ky * v->width + kx * LANES) * w[ky * kernel_w + kx];
            }
            *(half *)y = sum;
        }
    }
}

OCT_CLONES
static void multiply_3x3(const windows *v, const float *weight, const float *start,
                         int64_t start_step, float *y, int64_t y_step)
{
    multiply_small(3, 3, v, weight, start, start_step, y, y_step);
}

OCT_CLONES
static void multiply_5x5(const windows *v, const float *weight, const float *start,
                         int64_t start_step, float *y, int64_t y_step)
{
    multiply_small(5, 5, v, weight, start, start_step, y, y_step);
}

OCT_CLONES
static void multiply_any(const windows *v, const float *weight, const float *start,
                         int64_t start_step, float *y, int64_t y_step)
{
    for (int64_t l = 0; l < v->lines; l++) {
        const float *x = v->strip + l * v->down, *next = v->next + l * v->columns * (LANES / 2);
        for (int64_t c = 0; c < v->columns; c++, x += v->across, start += start_step, y += y_step) {
            __builtin_prefetch(next + c * (LANES / 2));
            half sum = *(const half *)start;
            const float *w = weight;
            for (int64_t ky = 0; ky < v->kernel_h; ky++) {
                for (int64_t kx = 0; kx < v->kernel_w; kx++, w += LANES)
                    sum += *(const half *)(x + ky * v->width + kx * LANES) * *(const half *)w;
            }
            *(half *)y = sum;
        }
    }
}

/* sums (taps, LANES) += over positions in order: what a tap sees * grad. */
static inline __attribute__((always_inline)) void add_products_small(int kernel_h, int kernel_w,
                                                                     const windows *v,
                                                                     const float *grad,
                                                                     int64_t grad_step, float *sums)
{
    half sum[25];
    for (int t = 0; t < kernel_h * kernel_w; t++)
        sum[t] = *(const half *)(sums + t * LANES);
    for (int64_t l = 0; l < v->lines; l++) {
        const float *x = v->strip + l * v->down, *next = v->next + l * v->columns * (LANES / 2);
        for (int64_t c = 0; c < v->columns; c++, x += v->across, grad += grad_step) {
            __builtin_prefetch(next + c * (LANES / 2));
            half g = *(const half *)grad;
#pragma GCC unroll 5
            for (int ky = 0; ky < kernel_h; ky++) {
#pragma GCC unroll 5
                for (int kx = 0; kx < kernel_w; kx++)
                    sum[ky * kernel_w + kx] += *(const half *)(x + ky * v->width + kx * LANES) * g;
            }
        }
    }
    for (int t = 0; t < kernel_h * kernel_w; t++)
        *(half *)(sums + t * LANES) = sum[t];
}

OCT_CLONES
static void add_products_3x3(const windows *v, const float *grad, int64_t grad_step, float *sums)
{
    add_products_small(3, 3, v, grad, grad_step, sums);
}

OCT_CLONES
static void add_products_5x5(const windows *v, const float *grad, int64_t grad_step, float *sums)
{
    add_products_small(5, 5, v, grad, grad_step, sums);
}

OCT_CLONES
static void add_products_any(const windows *v, const float *grad, int64_t grad_step, float *sums)
{
    for (int64_t t = 0; t < v->kernel_h * v->kernel_w; t++, sums += LANES) {
        const float *tap = v->strip + t / v->kernel_w * v->width + t % v->kernel_w * LANES;
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

/* rows: of results, (positions, C), at the block's first position; c: the channels' first. */
static windows windows_of(const strip *p, const float *filled, int64_t lines, const float *rows,
                          int64_t c)
{
    return (windows){.strip = filled,
                     .width = p->width * LANES,
                     .across = p->step * LANES,
                     .down = p->step * p->width * LANES,
                     .lines = lines,
                     .columns = p->to_w,
                     .kernel_h = p->kernel_h,
                     .kernel_w = p->kernel_w,
                     .next = rows + lines * p->to_w * (p->channels + c)};
}

/* From the first half of a vector of channels to the second. */
static void take_second_half(windows *v)
{
    v->strip += LANES / 2;
    v->next += v->lines * v->columns * (LANES / 2);
}

typedef void multiply_fn(const windows *v, const float *weight, const float *start,
                         int64_t start_step, float *y, int64_t y_step);
typedef void add_products_fn(const windows *v, const float *grad, int64_t grad_step, float *sums);

static bool is_square(const windows *v, int64_t size)
{
    return v->kernel_h == size && v->kernel_w == size;
}

static void multiply(windows v, const float *weight, const float *start, int64_t start_step,
                     float *y, int64_t y_step)
{
    multiply_fn *f = is_square(&v, 3)   ? multiply_3x3
                     : is_square(&v, 5) ? multiply_5x5
                                        : multiply_any;
    for (int i = 0; i < LANES; i += LANES / 2, take_second_half(&v))
        f(&v, weight + i, start + i, start_step, y + i, y_step);
}

static void add_products(windows v, const float *grad, int64_t grad_step, float *sums)
{
    add_products_fn *f = is_square(&v, 3)   ? add_products_3x3
                         : is_square(&v, 5) ? add_products_5x5
                                            : add_products_any;
    for (int i = 0; i < LANES; i += LANES / 2, take_second_half(&v))
        f(&v, grad + i, grad_step, sums + i);
}

/* Scratch: a strip, then a block of whole vectors for a tail of channels, then what a caller adds. */

static int64_t strip_floats(const strip *p)
{
    return strip_lines(p, p->max_lines) * p->width * LANES;
}

static int64_t dense_floats(const strip *p)
{
    return p->channels % LANES == 0 ? 0 : p->max_lines * p->to_w * LANES;
}

static size_t scratch_bytes(const strip *p, int64_t more_floats)
{
    return (size_t)(strip_floats(p) + dense_floats(p) + more_floats) * sizeof(float);
}

/* `n` rows of results of a tail. */
static void multiply_tail(const windows *v, const float *weight, const float *bias, int64_t count,
                          bool add, float *dense, float *y, int64_t y_step)
{
    int64_t n = v->lines * v->columns;
    if (add) take_floats(n, y, y_step, count, y, dense, LANES);
    multiply(*v, weight, add ? dense : bias, add ? LANES : 0, dense, LANES);
    for (int64_t i = 0; i < n; i++)
        memcpy(y + i * y_step, dense + i * LANES, (size_t)count * sizeof(float));
}

/* Zeros where nothing will be written: columns that no source position meets, and lanes of a tail. */
static void clear(const strip *p, float *scratch)
{
    int64_t begin, end, lines = strip_lines(p, p->max_lines);
    inside(p->width, p->pad_w, p->spread, p->from_w, &begin, &end);
    if (p->spread > 1 || begin == end || p->channels % LANES != 0) {
        memset(scratch, 0, scratch_bytes(p, 0));
        return;
    }
    const int64_t left = p->pad_w + begin, right = p->pad_w + end;
    for (int64_t l = 0; l < lines; l++, scratch += p->width * LANES) {
        memset(scratch, 0, (size_t)(left * LANES) * sizeof(float));
        memset(scratch + right * LANES, 0, (size_t)((p->width - right) * LANES) * sizeof(float));
    }
}

/* All windows of `samples` samples: y = or += sum over taps, plus bias (NULL: none). */
static void slide(const strip *p, int64_t samples, const oct_conv_input *x, const float *weight,
                  const float *bias, bool add, float *y, float *scratch)
{
    float *dense = scratch + strip_floats(p);
    int64_t taps = p->kernel_h * p->kernel_w, from = p->from_h * p->from_w * p->channels;
    clear(p, scratch);
    for (int64_t n = 0; n < samples; n++, y += p->to_h * p->to_w * p->channels) {
        for (int64_t line = 0; line < p->to_h; line += p->max_lines) {
            int64_t lines = oct_min_i64(p->max_lines, p->to_h - line);
            float *rows = y + line * p->to_w * p->channels;
            for (int64_t c = 0; c < p->channels; c += LANES) {
                windows v = windows_of(p, scratch, lines, rows, c);
                int64_t count = oct_min_i64(LANES, p->channels - c);
                float *to = rows + c, first[LANES] = {0};
                const float *w = weight + c * taps;
                if (bias) memcpy(first, bias + c, (size_t)count * sizeof(float));
                fill(p, x, n * from, c, line, lines, scratch);
                if (count < LANES)
                    multiply_tail(&v, w, first, count, add, dense, to, p->channels);
                else
                    multiply(v, w, add ? to : first, add ? p->channels : 0, to, p->channels);
            }
        }
    }
}

size_t oct_depthwise_ready_bytes(const oct_conv_shape *s)
{
    return (size_t)(vectors_of(s->in_c) * taps_of(s) * LANES) * sizeof(float);
}

/* ready (vectors, taps, LANES), filled up with zeros. */
void oct_depthwise_forward_ready(const oct_conv_shape *s, const float *weight, void *ready)
{
    float *to = ready;
    int64_t taps = taps_of(s);
    memset(ready, 0, oct_depthwise_ready_bytes(s));
    for (int64_t c = 0; c < s->in_c; c++) {
        for (int64_t t = 0; t < taps; t++)
            to[(c / LANES * taps + t) * LANES + c % LANES] = weight[c * taps + t];
    }
}

void oct_depthwise_backward_data_ready(const oct_conv_shape *s, const float *weight,
                                       const int8_t *codes, void *ready)
{
    float *to = ready;
    int64_t taps = taps_of(s);
    memset(ready, 0, oct_depthwise_ready_bytes(s));
    for (int64_t c = 0; c < s->in_c; c++) {
        for (int64_t t = 0; t < taps; t++) {
            int64_t at = c * taps + taps - 1 - t;
            to[(c / LANES * taps + t) * LANES + c % LANES] = weight ? weight[at] : (float)codes[at];
        }
    }
}

size_t oct_depthwise_forward_scratch_bytes(const oct_conv_shape *s)
{
    strip p = forward_strip(s);
    return scratch_bytes(&p, 0);
}

void oct_depthwise_forward(const oct_conv_shape *s, int64_t samples, const float *x,
                           const void *ready, const float *bias, float *y, void *scratch)
{
    strip p = forward_strip(s);
    slide(&p, samples, &(oct_conv_input){.values = x}, ready, bias, false, y, scratch);
}

size_t oct_depthwise_backward_data_scratch_bytes(const oct_conv_shape *s)
{
    strip p = backward_strip(s);
    return scratch_bytes(&p, 0);
}

void oct_depthwise_backward_data(const oct_conv_shape *s, int64_t samples, const float *grad,
                                 const void *ready, float *grad_x, bool add, void *scratch)
{
    strip p = backward_strip(s);
    slide(&p, samples, &(oct_conv_input){.values = grad}, ready, NULL, add, grad_x, scratch);
}

static int64_t sums_floats(const oct_conv_shape *s)
{
    return vectors_of(s->in_c) * taps_of(s) * LANES;
}

size_t oct_depthwise_backward_weight_scratch_bytes(const oct_conv_shape *s)
{
    strip p = forward_strip(s);
    return scratch_bytes(&p, sums_floats(s));
}

void oct_depthwise_backward_weight(const oct_conv_shape *s, int64_t samples, const float *grad,
                                   const oct_conv_input *x, const float *factor, float *grad_weight,
                                   bool add, void *scratch)
{
    strip p = forward_strip(s);
    float *filled = scratch, *dense = filled + strip_floats(&p), *sums = dense + dense_floats(&p);
    int64_t taps = taps_of(s), in = s->in_h * s->in_w * s->in_c;
    clear(&p, filled);
    memset(sums, 0, (size_t)sums_floats(s) * sizeof *sums);
    for (int64_t n = 0; n < samples; n++, grad += s->out_h * s->out_w * s->out_c) {
        for (int64_t line = 0; line < s->out_h; line += p.max_lines) {
            int64_t lines = oct_min_i64(p.max_lines, s->out_h - line);
            const float *rows = grad + line * s->out_w * s->out_c;
            for (int64_t c = 0; c < s->in_c; c += LANES) {
                windows v = windows_of(&p, filled, lines, rows, c);
                int64_t count = oct_min_i64(LANES, s->in_c - c);
                fill(&p, x, n * in, c, line, lines, filled);
                if (count < LANES)
                    take_floats(lines * v.columns, rows + c, s->out_c, count, rows + c, dense,
                                LANES);
                add_products(v, count < LANES ? dense : rows + c, count < LANES ? LANES : s->out_c,
                             sums + c * taps);
            }
        }
    }
    for (int64_t c = 0; c < s->in_c; c++) {
        for (int64_t t = 0; t < taps; t++)
            grad_weight[c * taps + t] =
                (add ? grad_weight[c * taps + t] : 0.0F) +
                (factor ? factor[c] : 1.0F) * sums[(c / LANES * taps + t) * LANES + c % LANES];
    }
}
