/* Convolution as matrix products over blocks of output rows.
 *
 * A block of output positions is gathered into columns (positions, kh*kw*I), small enough to stay in
 * the second-level cache, and multiplied at once. In NHWC the kw*I values that one kernel row sees
 * are contiguous, so gathering copies spans; a 1x1 kernel with stride 1 needs no copy at all. Small
 * images are put together until a block has enough rows to pay for packing the weights. The size of a
 * block follows from the geometry alone.
 *
 * Backward to data has two ways. With stride 1 and enough positions it is itself a convolution, of
 * grad_y with the kernel turned by 180 degrees: long sums, no scatter. Otherwise columns of gradients
 * are computed and added where they came from. Depthwise layers have direct loops over channels.
 */
#include "core/kernel/conv.h"

#include "core/base/cpu.h"
#include "core/base/whole.h"
#include "core/kernel/blas.h"

#include <string.h>

enum {
    BLOCK_FLOATS = 256 * 1024 / 4, /* columns of one block: half of a common second-level cache */
    BLOCK_ROWS = 128,              /* but at least so many rows where there are that many */
    TURN_POSITIONS = 64,           /* fewer do not pay for turning the weights */
    LANES = 16,                    /* channels that a depthwise loop keeps in registers */
};

/* A window sliding over images (H, W, C) with separate paddings, as turning a kernel needs. */
typedef struct window {
    int64_t in_h, in_w, in_c, out_h, out_w;
    int64_t kernel_h, kernel_w, stride, pad_h, pad_w;
    int64_t channels;      /* of one group */
    int64_t depth;         /* kernel_h * kernel_w * channels: length of a column row */
    int64_t rows, samples; /* a block: so many output rows of so many samples (one is whole or 1) */
    bool in_place;         /* the image itself is the columns */
} window;

/* A block at hand: output rows [row, row + rows) of samples [sample, sample + samples). */
typedef struct block {
    int64_t sample, samples, row, rows;
    int64_t positions; /* in all */
} block;

static size_t floats(int64_t count)
{
    return ((size_t)count * sizeof(float) + 63) / 64 * 64;
}

static void *behind(void *scratch, int64_t count)
{
    return (char *)scratch + floats(count);
}

static void plan_blocks(window *w)
{
    int64_t target = oct_larger(BLOCK_ROWS, BLOCK_FLOATS / oct_larger(w->depth, 1));
    int64_t positions = w->out_h * w->out_w;
    int64_t blocks = (positions + target - 1) / target;

    w->rows = (w->out_h + blocks - 1) / blocks;
    w->samples = oct_larger(1, target / positions);
    w->in_place =
        w->kernel_h == 1 && w->kernel_w == 1 && w->stride == 1 && w->pad_h == 0 && w->pad_w == 0;
}

static window window_of(const oct_conv_shape *s)
{
    window w = {.in_h = s->in_h,
                .in_w = s->in_w,
                .in_c = s->in_c,
                .out_h = s->out_h,
                .out_w = s->out_w,
                .kernel_h = s->kernel_h,
                .kernel_w = s->kernel_w,
                .stride = s->stride,
                .pad_h = s->padding,
                .pad_w = s->padding,
                .channels = s->in_c / s->groups};
    w.depth = w.kernel_h * w.kernel_w * w.channels;
    plan_blocks(&w);
    return w;
}

/* The window of backward to data with the kernel turned: from (OH, OW, O) to (H, W). */
static window turned_window_of(const oct_conv_shape *s)
{
    window w = {.in_h = s->out_h,
                .in_w = s->out_w,
                .in_c = s->out_c,
                .out_h = s->in_h,
                .out_w = s->in_w,
                .kernel_h = s->kernel_h,
                .kernel_w = s->kernel_w,
                .stride = 1,
                .pad_h = s->kernel_h - 1 - s->padding,
                .pad_w = s->kernel_w - 1 - s->padding,
                .channels = s->out_c / s->groups};
    w.depth = w.kernel_h * w.kernel_w * w.channels;
    plan_blocks(&w);
    return w;
}

static bool is_pointwise(const oct_conv_shape *s)
{
    return s->kernel_h == 1 && s->kernel_w == 1 && s->stride == 1 && s->padding == 0;
}

static bool is_turned(const oct_conv_shape *s)
{
    return s->stride == 1 && s->padding < s->kernel_h && s->padding < s->kernel_w &&
           !is_pointwise(s) && s->in_h * s->in_w >= TURN_POSITIONS;
}

/* Largest block of a call with `samples` samples, in floats of columns. */
static int64_t column_floats(const window *w, int64_t samples)
{
    if (w->in_place) return 0;
    return oct_smaller(w->samples, samples) * w->rows * w->out_w * w->depth;
}

static bool next_block(const window *w, int64_t samples, block *b)
{
    if (b->positions > 0) {
        b->row += b->rows;
        if (b->row >= w->out_h) {
            b->row = 0;
            b->sample += b->samples;
        }
    }
    if (b->sample >= samples) return false;
    b->samples = oct_smaller(w->samples, samples - b->sample);
    b->rows = oct_smaller(w->rows, w->out_h - b->row);
    b->positions = b->samples * b->rows * w->out_w;
    return true;
}

/* First output position of the block among all of the call. */
static int64_t first_position(const window *w, const block *b)
{
    return (b->sample * w->out_h + b->row) * w->out_w;
}

/* Kernel columns [*begin, *end) that lie inside the image where the window starts at `start`. */
static void inside(int64_t start, int64_t kernel, int64_t size, int64_t *begin, int64_t *end)
{
    *begin = oct_smaller(oct_larger(-start, 0), kernel);
    *end = oct_larger(oct_smaller(kernel, size - start), *begin);
}

static void gather_span(const window *w, const float *row, int64_t start, float *col)
{
    int64_t begin, end;
    inside(start, w->kernel_w, w->in_w, &begin, &end);
    int64_t c = w->channels;
    const float *src = row + (start + begin) * w->in_c;
    if (begin > 0) memset(col, 0, (size_t)(begin * c) * sizeof(float));
    if (c == w->in_c) {
        memcpy(col + begin * c, src, (size_t)((end - begin) * c) * sizeof(float));
    } else {
        for (int64_t k = begin; k < end; k++, src += w->in_c)
            memcpy(col + k * c, src, (size_t)c * sizeof(float));
    }
    if (end < w->kernel_w)
        memset(col + end * c, 0, (size_t)((w->kernel_w - end) * c) * sizeof(float));
}

/* Columns of a block for the group that starts at `channel`, and the distance between their rows. */
static const float *gather(const window *w, const block *b, const float *x, int64_t channel,
                           float *col, int64_t *stride)
{
    if (w->in_place) {
        *stride = w->in_c;
        return x + first_position(w, b) * w->in_c + channel;
    }
    *stride = w->depth;
    float *row_col = col;
    int64_t span = w->kernel_w * w->channels;
    for (int64_t n = b->sample; n < b->sample + b->samples; n++) {
        const float *image = x + n * w->in_h * w->in_w * w->in_c + channel;
        for (int64_t oy = b->row; oy < b->row + b->rows; oy++, row_col += w->out_w * w->depth) {
            for (int64_t ky = 0; ky < w->kernel_h; ky++) {
                int64_t iy = oy * w->stride - w->pad_h + ky;
                bool blank = iy < 0 || iy >= w->in_h;
                const float *row = image + iy * w->in_w * w->in_c;
                float *to = row_col + ky * span;
                for (int64_t ox = 0; ox < w->out_w; ox++, to += w->depth) {
                    if (blank)
                        memset(to, 0, (size_t)span * sizeof(float));
                    else
                        gather_span(w, row, ox * w->stride - w->pad_w, to);
                }
            }
        }
    }
    return col;
}

OCT_CLONES
static void add_to(float *restrict to, const float *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += from[i];
}

static void scatter_span(const window *w, const float *col, int64_t start, float *row)
{
    int64_t begin, end;
    inside(start, w->kernel_w, w->in_w, &begin, &end);
    int64_t c = w->channels;
    float *to = row + (start + begin) * w->in_c;
    if (c == w->in_c) {
        add_to(to, col + begin * c, (end - begin) * c);
    } else {
        for (int64_t k = begin; k < end; k++, to += w->in_c)
            add_to(to, col + k * c, c);
    }
}

/* Adds columns of gradients to where gather took the columns from. */
static void scatter(const window *w, const block *b, const float *col, int64_t channel, float *x)
{
    int64_t span = w->kernel_w * w->channels;
    for (int64_t n = b->sample; n < b->sample + b->samples; n++) {
        float *image = x + n * w->in_h * w->in_w * w->in_c + channel;
        for (int64_t oy = b->row; oy < b->row + b->rows; oy++, col += w->out_w * w->depth) {
            for (int64_t ky = 0; ky < w->kernel_h; ky++) {
                int64_t iy = oy * w->stride - w->pad_h + ky;
                if (iy < 0 || iy >= w->in_h) continue;
                float *row = image + iy * w->in_w * w->in_c;
                const float *from = col + ky * span;
                for (int64_t ox = 0; ox < w->out_w; ox++, from += w->depth)
                    scatter_span(w, from, ox * w->stride - w->pad_w, row);
            }
        }
    }
}

/* y (positions, out_c) of all groups; weight (groups, outs, depth). */
static void multiply_forward(const window *w, int64_t samples, const float *x, const float *weight,
                             int64_t out_c, int64_t groups, const float *bias, float *y, float *col)
{
    int64_t outs = out_c / groups;
    for (block b = {0}; next_block(w, samples, &b);) {
        float *to = y + first_position(w, &b) * out_c;
        if (bias) {
            for (int64_t p = 0; p < b.positions; p++)
                memcpy(to + p * out_c, bias, (size_t)out_c * sizeof(float));
        }
        for (int64_t g = 0; g < groups; g++) {
            int64_t stride;
            const float *columns = gather(w, &b, x, g * w->channels, col, &stride);
            oct_sgemm(false, true, b.positions, outs, w->depth, 1.0F, columns, stride,
                      weight + g * outs * w->depth, w->depth, bias ? 1.0F : 0.0F, to + g * outs,
                      out_c);
        }
    }
}

/* turned (groups, I/g, kh, kw, O/g) of weight (groups, O/g, kh, kw, I/g), kernel turned by 180 degrees. */
static void turn_weight(const oct_conv_shape *s, const float *weight, float *turned)
{
    int64_t outs = s->out_c / s->groups, ins = s->in_c / s->groups;
    int64_t taps = (int64_t)s->kernel_h * s->kernel_w;
    for (int64_t g = 0; g < s->groups;
         g++, weight += outs * taps * ins, turned += outs * taps * ins) {
        for (int64_t t = 0; t < taps; t++) {
            for (int64_t i = 0; i < ins; i++) {
                const float *from = weight + t * ins + i;
                float *to = turned + (i * taps + taps - 1 - t) * outs;
                for (int64_t o = 0; o < outs; o++)
                    to[o] = from[o * taps * ins];
            }
        }
    }
}

static void scatter_backward(const oct_conv_shape *s, int64_t samples, const float *grad_y,
                             const float *weight, float *grad_x, float *col)
{
    window w = window_of(s);
    int64_t outs = s->out_c / s->groups;
    if (!w.in_place)
        memset(grad_x, 0, (size_t)(samples * s->in_h * s->in_w * s->in_c) * sizeof(float));
    for (block b = {0}; next_block(&w, samples, &b);) {
        const float *from = grad_y + first_position(&w, &b) * s->out_c;
        for (int64_t g = 0; g < s->groups; g++) {
            int64_t channel = g * w.channels;
            float *columns = w.in_place ? grad_x + first_position(&w, &b) * w.in_c + channel : col;
            oct_sgemm(false, false, b.positions, w.depth, outs, 1.0F, from + g * outs, s->out_c,
                      weight + g * outs * w.depth, w.depth, 0.0F, columns,
                      w.in_place ? w.in_c : w.depth);
            if (!w.in_place) scatter(&w, &b, col, channel, grad_x);
        }
    }
}

/* Depthwise layers. Weights are first laid out as (taps, C), so that a tap is a vector. */

static void weights_by_tap(const oct_conv_shape *s, const float *weight, float *by_tap)
{
    int64_t taps = (int64_t)s->kernel_h * s->kernel_w;
    for (int64_t t = 0; t < taps; t++) {
        for (int64_t c = 0; c < s->in_c; c++)
            by_tap[t * s->in_c + c] = weight[c * taps + t];
    }
}

/* y[c] = bias[c] + sum over n taps of x[t][c] * w[t][c], in order of t. */
OCT_CLONES
static void dot_taps(int64_t n, const float *const *x, const float *const *w, const float *bias,
                     int64_t channels, float *restrict y)
{
    int64_t c = 0;
    for (; c + LANES <= channels; c += LANES) {
        float sum[LANES];
        for (int i = 0; i < LANES; i++)
            sum[i] = bias ? bias[c + i] : 0.0F;
        for (int64_t t = 0; t < n; t++) {
            const float *xt = x[t] + c, *wt = w[t] + c;
            for (int i = 0; i < LANES; i++)
                sum[i] += xt[i] * wt[i];
        }
        for (int i = 0; i < LANES; i++)
            y[c + i] = sum[i];
    }
    for (; c < channels; c++) {
        float sum = bias ? bias[c] : 0.0F;
        for (int64_t t = 0; t < n; t++)
            sum += x[t][c] * w[t][c];
        y[c] = sum;
    }
}

/* The pairs of vectors to multiply for one position: at most taps of them. */
typedef struct tap_list {
    const float **x, **w;
    int64_t count;
} tap_list;

static size_t tap_list_bytes(const oct_conv_shape *s)
{
    return 2 * sizeof(float *) * (size_t)s->kernel_h * (size_t)s->kernel_w;
}

static tap_list tap_list_in(const oct_conv_shape *s, void *memory)
{
    const float **pointers = memory;
    return (tap_list){.x = pointers, .w = pointers + (int64_t)s->kernel_h * s->kernel_w};
}

/* Inputs that output position (oy, ox) sees. */
static void taps_of_output(const oct_conv_shape *s, const float *image, const float *by_tap,
                           int64_t oy, int64_t ox, tap_list *list)
{
    list->count = 0;
    for (int64_t ky = 0; ky < s->kernel_h; ky++) {
        int64_t iy = oy * s->stride - s->padding + ky;
        if (iy < 0 || iy >= s->in_h) continue;
        for (int64_t kx = 0; kx < s->kernel_w; kx++) {
            int64_t ix = ox * s->stride - s->padding + kx;
            if (ix < 0 || ix >= s->in_w) continue;
            list->x[list->count] = image + (iy * s->in_w + ix) * s->in_c;
            list->w[list->count++] = by_tap + (ky * s->kernel_w + kx) * s->in_c;
        }
    }
}

/* Outputs that see input position (iy, ix). */
static void taps_of_input(const oct_conv_shape *s, const float *grad_y, const float *by_tap,
                          int64_t iy, int64_t ix, tap_list *list)
{
    list->count = 0;
    for (int64_t ky = 0; ky < s->kernel_h; ky++) {
        int64_t sy = iy + s->padding - ky;
        if (sy < 0 || sy % s->stride != 0 || sy / s->stride >= s->out_h) continue;
        for (int64_t kx = 0; kx < s->kernel_w; kx++) {
            int64_t sx = ix + s->padding - kx;
            if (sx < 0 || sx % s->stride != 0 || sx / s->stride >= s->out_w) continue;
            list->x[list->count] = grad_y + (sy / s->stride * s->out_w + sx / s->stride) * s->out_c;
            list->w[list->count++] = by_tap + (ky * s->kernel_w + kx) * s->in_c;
        }
    }
}

static int64_t tap_floats(const oct_conv_shape *s)
{
    return (int64_t)s->kernel_h * s->kernel_w * s->in_c;
}

static void depthwise_forward(const oct_conv_shape *s, int64_t samples, const float *x,
                              const float *weight, const float *bias, float *y, void *scratch)
{
    float *by_tap = scratch;
    tap_list list = tap_list_in(s, behind(scratch, tap_floats(s)));
    weights_by_tap(s, weight, by_tap);
    for (int64_t n = 0; n < samples; n++, x += s->in_h * s->in_w * s->in_c) {
        for (int64_t oy = 0; oy < s->out_h; oy++) {
            for (int64_t ox = 0; ox < s->out_w; ox++, y += s->out_c) {
                taps_of_output(s, x, by_tap, oy, ox, &list);
                dot_taps(list.count, list.x, list.w, bias, s->out_c, y);
            }
        }
    }
}

static void depthwise_backward_data(const oct_conv_shape *s, int64_t samples, const float *grad_y,
                                    const float *weight, float *grad_x, void *scratch)
{
    float *by_tap = scratch;
    tap_list list = tap_list_in(s, behind(scratch, tap_floats(s)));
    weights_by_tap(s, weight, by_tap);
    for (int64_t n = 0; n < samples; n++, grad_y += s->out_h * s->out_w * s->out_c) {
        for (int64_t iy = 0; iy < s->in_h; iy++) {
            for (int64_t ix = 0; ix < s->in_w; ix++, grad_x += s->in_c) {
                taps_of_input(s, grad_y, by_tap, iy, ix, &list);
                dot_taps(list.count, list.x, list.w, NULL, s->in_c, grad_x);
            }
        }
    }
}

/* sum[c] += a[c] * b[c] over `count` vectors; a and b advance by their strides. */
OCT_CLONES
static void add_products(int64_t count, const float *a, int64_t stride_a, const float *b,
                         int64_t stride_b, int64_t channels, float *restrict sum)
{
    int64_t c = 0;
    for (; c + LANES <= channels; c += LANES) {
        float local[LANES];
        for (int i = 0; i < LANES; i++)
            local[i] = sum[c + i];
        const float *va = a + c, *vb = b + c;
        for (int64_t n = 0; n < count; n++, va += stride_a, vb += stride_b) {
            for (int i = 0; i < LANES; i++)
                local[i] += va[i] * vb[i];
        }
        for (int i = 0; i < LANES; i++)
            sum[c + i] = local[i];
    }
    for (; c < channels; c++) {
        for (int64_t n = 0; n < count; n++)
            sum[c] += a[n * stride_a + c] * b[n * stride_b + c];
    }
}

/* Output columns [*begin, *end) whose tap kx lies inside the image. */
static void outputs_inside(const oct_conv_shape *s, int64_t kx, int64_t *begin, int64_t *end)
{
    int64_t left = s->padding - kx, right = s->in_w - 1 + s->padding - kx;
    *begin = left > 0 ? (left + s->stride - 1) / s->stride : 0;
    *end = right < 0 ? 0 : oct_smaller(s->out_w, right / s->stride + 1);
}

static void depthwise_backward_weight(const oct_conv_shape *s, int64_t samples, const float *grad_y,
                                      const float *x, float *grad_weight, void *scratch)
{
    float *by_tap = scratch;
    int64_t taps = (int64_t)s->kernel_h * s->kernel_w;
    weights_by_tap(s, grad_weight, by_tap);
    for (int64_t row = 0; row < samples * s->out_h; row++, grad_y += s->out_w * s->out_c) {
        const float *image = x + row / s->out_h * s->in_h * s->in_w * s->in_c;
        for (int64_t t = 0; t < taps; t++) {
            int64_t iy = row % s->out_h * s->stride - s->padding + t / s->kernel_w, begin, end;
            if (iy < 0 || iy >= s->in_h) continue;
            outputs_inside(s, t % s->kernel_w, &begin, &end);
            if (begin >= end) continue;
            int64_t ix = begin * s->stride - s->padding + t % s->kernel_w;
            add_products(end - begin, image + (iy * s->in_w + ix) * s->in_c, s->stride * s->in_c,
                         grad_y + begin * s->out_c, s->out_c, s->in_c, by_tap + t * s->in_c);
        }
    }
    for (int64_t c = 0; c < s->in_c; c++) {
        for (int64_t t = 0; t < taps; t++)
            grad_weight[c * taps + t] = by_tap[t * s->in_c + c];
    }
}

static size_t depthwise_scratch_bytes(const oct_conv_shape *s)
{
    return floats(tap_floats(s)) + tap_list_bytes(s);
}

size_t oct_conv_forward_scratch_bytes(const oct_conv_shape *s, int64_t samples)
{
    if (oct_conv_is_depthwise(s)) return depthwise_scratch_bytes(s);
    window w = window_of(s);
    return floats(column_floats(&w, samples));
}

void oct_conv_forward(const oct_conv_shape *s, int64_t samples, const float *x, const float *weight,
                      const float *bias, float *y, void *scratch)
{
    if (oct_conv_is_depthwise(s)) {
        depthwise_forward(s, samples, x, weight, bias, y, scratch);
        return;
    }
    window w = window_of(s);
    multiply_forward(&w, samples, x, weight, s->out_c, s->groups, bias, y, scratch);
}

static int64_t weight_floats(const oct_conv_shape *s)
{
    return s->out_c * s->kernel_h * s->kernel_w * (s->in_c / s->groups);
}

size_t oct_conv_backward_data_scratch_bytes(const oct_conv_shape *s, int64_t samples)
{
    if (oct_conv_is_depthwise(s)) return depthwise_scratch_bytes(s);
    window w = is_turned(s) ? turned_window_of(s) : window_of(s);
    return floats(column_floats(&w, samples)) + (is_turned(s) ? floats(weight_floats(s)) : 0);
}

void oct_conv_backward_data(const oct_conv_shape *s, int64_t samples, const float *grad_y,
                            const float *weight, float *grad_x, void *scratch)
{
    if (oct_conv_is_depthwise(s)) {
        depthwise_backward_data(s, samples, grad_y, weight, grad_x, scratch);
    } else if (is_turned(s)) {
        window w = turned_window_of(s);
        turn_weight(s, weight, scratch);
        multiply_forward(&w, samples, grad_y, scratch, s->in_c, s->groups, NULL, grad_x,
                         behind(scratch, weight_floats(s)));
    } else {
        scatter_backward(s, samples, grad_y, weight, grad_x, scratch);
    }
}

size_t oct_conv_backward_weight_scratch_bytes(const oct_conv_shape *s, int64_t samples)
{
    return oct_conv_forward_scratch_bytes(s, samples);
}

void oct_conv_backward_weight(const oct_conv_shape *s, int64_t samples, const float *grad_y,
                              const float *x, float *grad_weight, void *scratch)
{
    if (oct_conv_is_depthwise(s)) {
        depthwise_backward_weight(s, samples, grad_y, x, grad_weight, scratch);
        return;
    }
    window w = window_of(s);
    int64_t outs = s->out_c / s->groups;
    for (block b = {0}; next_block(&w, samples, &b);) {
        const float *from = grad_y + first_position(&w, &b) * s->out_c;
        for (int64_t g = 0; g < s->groups; g++) {
            int64_t stride;
            const float *columns = gather(&w, &b, x, g * w.channels, scratch, &stride);
            oct_sgemm(true, false, outs, w.depth, b.positions, 1.0F, from + g * outs, s->out_c,
                      columns, stride, 1.0F, grad_weight + g * outs * w.depth, w.depth);
        }
    }
}

OCT_CLONES
static void decode(int64_t n, const uint8_t *codes, int32_t zero_point, float *restrict x)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)((int32_t)codes[i] - zero_point);
}

/* Samples whose codes are decoded together: those of one block. */
static int64_t decoded_samples(const oct_conv_shape *s, int64_t samples)
{
    return oct_smaller(oct_conv_is_depthwise(s) ? 1 : window_of(s).samples, samples);
}

size_t oct_conv_backward_weight_codes_scratch_bytes(const oct_conv_shape *s, int64_t samples)
{
    int64_t group = decoded_samples(s, samples);
    return floats(group * s->in_h * s->in_w * s->in_c) +
           oct_conv_backward_weight_scratch_bytes(s, group);
}

void oct_conv_backward_weight_codes(const oct_conv_shape *s, int64_t samples, const float *grad_y,
                                    const uint8_t *codes, int32_t zero_point, float *grad_weight,
                                    void *scratch)
{
    int64_t group = decoded_samples(s, samples), numel = s->in_h * s->in_w * s->in_c;
    for (int64_t n = 0; n < samples; n += group) {
        int64_t now = oct_smaller(group, samples - n);
        decode(now * numel, codes + n * numel, zero_point, scratch);
        oct_conv_backward_weight(s, now, grad_y + n * s->out_h * s->out_w * s->out_c, scratch,
                                 grad_weight, behind(scratch, group * numel));
    }
}

OCT_CLONES
void oct_bias_backward(int64_t rows, int64_t channels, const float *grad_y,
                       float *restrict grad_bias)
{
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < channels; c++)
            grad_bias[c] += grad_y[r * channels + c];
    }
}
