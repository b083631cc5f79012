/* Convolution forward, and backward to data as a convolution of its own: products of rows that lie in x
 * (or in the rows of the gradient) with packed weights, by the classes of positions that
 * core/product/conv_window.h finds. */
#include "core/kernel/conv.h"

#include "core/base/cpu.h"
#include "core/base/whole.h"
#include "core/kernel/conv_impl.h"
#include "core/kernel/depthwise.h"
#include "core/kernel/transpose.h"

#include <string.h>

/* Positions of a block, about: its rows of x and its results are to stay in the second-level cache while
 * the panels of weights go by. */
enum { WANTED_POSITIONS = 512 };

size_t oct_aligned(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

int64_t oct_row_words(const oct_float_kernel *k, bool pairs, int64_t values)
{
    if (!pairs) return values;
    const int64_t count = (values + 1) / 2;
    return k->native_bf16 ? count : 2 * count;
}

/* Begins every ready operand; its tables and panels lie behind it. */
typedef struct conv_ready {
    oct_conv_window window;
    int64_t panel_bytes, group_bytes;
    const char *packed;
} conv_ready;

/* What forward and backward to data differ in. */
typedef struct side {
    oct_direction direction;
    oct_conv_window_layout layout;
    int64_t columns, taps; /* of a group */
} side;

static side forward_side(const oct_conv_shape *s)
{
    return (side){.direction = OCT_FORWARD,
                  .layout = {.pixel_bytes = s->in_c * 4,
                             .tap_words = s->in_c / s->groups,
                             .acc_stride = s->out_c,
                             .wanted = WANTED_POSITIONS},
                  .columns = s->out_c / s->groups,
                  .taps = (int64_t)s->kernel_h * s->kernel_w};
}

static side backward_side(const oct_float_kernel *k, oct_numerics numerics, const oct_conv_shape *s)
{
    const int64_t words = oct_row_words(k, numerics == OCT_NUMERICS_BF16, s->out_c / s->groups);
    return (side){.direction = OCT_BACKWARD,
                  .layout = {.pixel_bytes = words * s->groups * 4,
                             .tap_words = words,
                             .acc_stride = s->in_c,
                             .wanted = WANTED_POSITIONS},
                  .columns = s->in_c / s->groups,
                  .taps = (int64_t)s->kernel_h * s->kernel_w};
}

static int64_t panels_of(const oct_float_kernel *k, const side *d)
{
    return (d->columns + k->col_tile - 1) / k->col_tile;
}

static int64_t panel_bytes_of(const oct_float_kernel *k, const side *d)
{
    return d->taps * d->layout.tap_words * k->col_tile * 4;
}

static size_t ready_bytes(const oct_float_kernel *k, const oct_conv_shape *s, const side *d)
{
    return oct_aligned(sizeof(conv_ready)) +
           oct_aligned(oct_window_bytes(s, d->direction, &d->layout)) +
           (size_t)(s->groups * panels_of(k, d) * panel_bytes_of(k, d));
}

/* Everything but the panels, which it returns. */
static char *ready_begin(const oct_float_kernel *k, const oct_conv_shape *s, const side *d,
                         void *ready)
{
    conv_ready *r = ready;
    char *tables = (char *)ready + oct_aligned(sizeof *r);
    char *packed = tables + oct_aligned(oct_window_bytes(s, d->direction, &d->layout));
    oct_window_init(&r->window, s, d->direction, &d->layout, tables);
    r->panel_bytes = panel_bytes_of(k, d);
    r->group_bytes = r->panel_bytes * panels_of(k, d);
    r->packed = packed;
    return packed;
}

/* acc (samples, positions, all channels); start: a row of values that every sum begins with, or NULL. */
static void multiply(oct_product_fn *product, const oct_conv_shape *s, const side *d,
                     const void *ready, int64_t samples, const void *x, const float *start,
                     bool add, float *acc)
{
    const conv_ready *r = ready;
    const oct_conv_window *w = &r->window;
    const int64_t stride = d->layout.acc_stride;
    for (int64_t n = 0; n < samples; n += w->period) {
        const int64_t now = oct_min_i64(w->period, samples - n);
        for (const oct_conv_window_block *b = w->blocks; b < w->blocks + w->num_blocks; b++) {
            float *to = acc + (n * w->positions + b->position) * stride;
            const int64_t positions = b->positions / w->period * now;
            for (int64_t i = 0; start && i < positions; i++)
                memcpy(to + i * stride, start, (size_t)stride * sizeof *start);
            for (int64_t c = b->first_class; c < b->first_class + b->classes; c++) {
                oct_product p = oct_conv_window_product(w, &w->classes[c], now,
                                                        (const char *)x + n * w->x_bytes, to);
                p.panel_bytes = r->panel_bytes;
                p.n = d->columns;
                p.add = add || start;
                for (int64_t g = 0; g < s->groups; g++) {
                    p.packed = r->packed + g * r->group_bytes;
                    product(&p);
                    p.x = (const char *)p.x + d->layout.tap_words * 4;
                    p.acc = (float *)p.acc + d->columns;
                }
            }
        }
    }
}

size_t oct_conv_forward_ready_bytes(const oct_float_kernel *k, const oct_conv_shape *s)
{
    if (oct_conv_is_depthwise(s)) return oct_depthwise_ready_bytes(s);
    const side d = forward_side(s);
    return ready_bytes(k, s, &d);
}

void oct_conv_forward_ready(const oct_float_kernel *k, const oct_conv_shape *s, const float *weight,
                            void *ready)
{
    if (oct_conv_is_depthwise(s)) {
        oct_depthwise_forward_ready(s, weight, ready);
        return;
    }
    const side d = forward_side(s);
    const int64_t depth = oct_conv_depth(s), tile = k->col_tile;
    float *panel = (float *)(void *)ready_begin(k, s, &d, ready);
    for (int64_t g = 0; g < s->groups; g++, weight += d.columns * depth) {
        for (int64_t c = 0; c < d.columns; c += tile, panel += depth * tile) {
            const int64_t columns = oct_min_i64(tile, d.columns - c);
            if (columns < tile) memset(panel, 0, (size_t)(depth * tile) * sizeof *panel);
            oct_transpose_f32(columns, depth, weight + c * depth, depth, panel, tile);
        }
    }
}

size_t oct_conv_forward_scratch_bytes(const oct_float_kernel *k, const oct_conv_shape *s)
{
    (void)k;
    return oct_conv_is_depthwise(s) ? oct_depthwise_forward_scratch_bytes(s) : 0;
}

void oct_conv_forward(const oct_float_kernel *k, const oct_conv_shape *s, int64_t samples,
                      const float *x, const void *ready, const float *bias, float *y, void *scratch)
{
    if (oct_conv_is_depthwise(s)) {
        oct_depthwise_forward(s, samples, x, ready, bias, y, scratch);
        return;
    }
    const side d = forward_side(s);
    multiply(k->f32, s, &d, ready, samples, x, bias, false, y);
}

size_t oct_conv_grad_row_bytes(const oct_float_kernel *k, oct_numerics numerics,
                               const oct_conv_shape *s)
{
    if (oct_conv_is_depthwise(s)) return (size_t)s->out_c * 4;
    return (size_t)backward_side(k, numerics, s).layout.pixel_bytes;
}

bool oct_conv_grad_rows_are_floats(oct_numerics numerics, const oct_conv_shape *s)
{
    return numerics == OCT_NUMERICS_F32 || oct_conv_is_depthwise(s);
}

OCT_CLONES
static void scale_rows(int64_t rows, int64_t channels, const float *from, const float *factor,
                       float *restrict to)
{
    for (int64_t r = 0; r < rows; r++, from += channels, to += channels) {
        for (int64_t c = 0; c < channels; c++)
            to[c] = from[c] * factor[c];
    }
}

/* Rows of an even number of channels, or of groups that have one. */
OCT_CLONES
static void round_rows(int64_t rows, int64_t channels, const float *from, const float *factor,
                       uint16_t *restrict to)
{
    if (!factor) {
        for (int64_t i = 0; i < rows * channels; i++)
            to[i] = oct_bf16_of(from[i]);
        return;
    }
    for (int64_t r = 0; r < rows; r++, from += channels, to += channels) {
        for (int64_t c = 0; c < channels; c++)
            to[c] = oct_bf16_of(from[c] * factor[c]);
    }
}

/* One row of one group: channels in pairs, filled up with 0. */
static void round_row(const oct_float_kernel *k, int64_t n, const float *from, const float *factor,
                      void *to)
{
    for (int64_t i = 0; i < n; i++) {
        const uint16_t half = oct_bf16_of(factor ? from[i] * factor[i] : from[i]);
        if (k->native_bf16)
            ((uint16_t *)to)[i] = half;
        else
            ((float *)to)[i ^ 1] = oct_bf16_value(half);
    }
    if (n % 2 && k->native_bf16) ((uint16_t *)to)[n] = 0;
    if (n % 2 && !k->native_bf16) ((float *)to)[n - 1] = 0;
}

void oct_conv_grad_rows(const oct_float_kernel *k, oct_numerics numerics, const oct_conv_shape *s,
                        int64_t rows, const float *grad_y, const float *factor, void *out)
{
    const int64_t outs = s->out_c / s->groups;
    if (oct_conv_grad_rows_are_floats(numerics, s)) {
        if (factor)
            scale_rows(rows, s->out_c, grad_y, factor, out);
        else
            memcpy(out, grad_y, (size_t)(rows * s->out_c) * sizeof *grad_y);
        return;
    }
    if (k->native_bf16 && outs % 2 == 0) {
        round_rows(rows, s->out_c, grad_y, factor, out);
        return;
    }
    const int64_t bytes = oct_row_words(k, true, outs) * 4;
    char *to = out;
    for (int64_t r = 0; r < rows; r++, grad_y += s->out_c) {
        for (int64_t g = 0; g < s->groups; g++, to += bytes)
            round_row(k, outs, grad_y + g * outs, factor ? factor + g * outs : NULL, to);
    }
}

/* Weights of a layer, or codes instead. */
typedef struct weights {
    const float *values;
    const int8_t *codes;
} weights;

/* So many columns as bfloat16, and zeros behind. */
static inline __attribute__((always_inline)) void
read_halves(const weights *w, int64_t at, int64_t columns, uint32_t *restrict half)
{
    if (w->values) {
        for (int64_t c = 0; c < columns; c++)
            half[c] = oct_bf16_word(w->values[at + c]);
    } else {
        for (int64_t c = 0; c < columns; c++)
            half[c] = oct_bf16_word((float)w->codes[at + c]);
    }
    for (int64_t c = columns; c < OCT_PACKED_COLUMNS; c++)
        half[c] = 0;
}

/* So many columns of one tap of a group, from weight `at` on: weights are `depth` apart from one output
 * to the next. */
OCT_CLONES
static void pack_pairs(const oct_float_kernel *k, const weights *w, int64_t at, int64_t outs,
                       int64_t depth, int64_t columns, char *tile, int64_t panel_bytes)
{
    for (int64_t o = 0; o < outs; o += 2, at += 2 * depth) {
        uint32_t first[OCT_PACKED_COLUMNS], second[OCT_PACKED_COLUMNS];
        read_halves(w, at, columns, first);
        read_halves(w, at + depth, o + 1 < outs ? columns : 0, second);
        char *to = tile;
        tile = oct_store_pair_tile(k, first, second, to);
        for (int64_t c = k->col_tile; c < columns; c += k->col_tile) {
            to += panel_bytes;
            oct_store_pair_tile(k, first + c, second + c, to);
        }
    }
}

static void pack_floats(const oct_float_kernel *k, const weights *w, int64_t at, int64_t outs,
                        int64_t depth, int64_t columns, char *tile, int64_t panel_bytes)
{
    for (int64_t o = 0; o < outs; o++, at += depth, tile += k->col_tile * 4) {
        char *to = tile;
        for (int64_t c = 0; c < columns; c += k->col_tile, to += panel_bytes) {
            float *values = (float *)(void *)to;
            for (int64_t i = 0; i < k->col_tile; i++) {
                const int64_t from = at + c + i;
                values[i] = c + i >= columns ? 0
                            : w->values      ? w->values[from]
                                             : (float)w->codes[from];
            }
        }
    }
}

size_t oct_conv_backward_data_ready_bytes(const oct_float_kernel *k, oct_numerics numerics,
                                          const oct_conv_shape *s)
{
    if (oct_conv_is_depthwise(s)) return oct_depthwise_ready_bytes(s);
    const side d = backward_side(k, numerics, s);
    return ready_bytes(k, s, &d);
}

void oct_conv_backward_data_ready(const oct_float_kernel *k, oct_numerics numerics,
                                  const oct_conv_shape *s, const float *weight, const int8_t *codes,
                                  void *ready)
{
    if (oct_conv_is_depthwise(s)) {
        oct_depthwise_backward_data_ready(s, weight, codes, ready);
        return;
    }
    const side d = backward_side(k, numerics, s);
    const weights w = {weight, codes};
    const int64_t outs = s->out_c / s->groups, depth = oct_conv_depth(s);
    const int64_t tap_bytes = d.layout.tap_words * k->col_tile * 4, bytes = panel_bytes_of(k, &d);
    char *panel = ready_begin(k, s, &d, ready);
    for (int64_t g = 0; g < s->groups; g++) {
        for (int64_t c = 0; c < d.columns; c += OCT_PACKED_COLUMNS) {
            const int64_t columns = oct_min_i64(OCT_PACKED_COLUMNS, d.columns - c);
            for (int64_t t = 0; t < d.taps; t++) {
                const int64_t at = g * outs * depth + t * d.columns + c;
                if (numerics == OCT_NUMERICS_BF16)
                    pack_pairs(k, &w, at, outs, depth, columns, panel + t * tap_bytes, bytes);
                else
                    pack_floats(k, &w, at, outs, depth, columns, panel + t * tap_bytes, bytes);
            }
            panel += (columns + k->col_tile - 1) / k->col_tile * bytes;
        }
    }
}

size_t oct_conv_backward_data_scratch_bytes(const oct_float_kernel *k, oct_numerics numerics,
                                            const oct_conv_shape *s)
{
    (void)k;
    (void)numerics;
    return oct_conv_is_depthwise(s) ? oct_depthwise_backward_data_scratch_bytes(s) : 0;
}

void oct_conv_backward_data(const oct_float_kernel *k, oct_numerics numerics,
                            const oct_conv_shape *s, int64_t samples, const void *grad,
                            const void *ready, float *grad_x, bool add, void *scratch)
{
    if (oct_conv_is_depthwise(s)) {
        oct_depthwise_backward_data(s, samples, grad, ready, grad_x, add, scratch);
        return;
    }
    const side d = backward_side(k, numerics, s);
    multiply(numerics == OCT_NUMERICS_BF16 ? k->bf16 : k->f32, s, &d, ready, samples, grad, NULL,
             add, grad_x);
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
