/* Pools over windows, and over the whole plane.
 *
 * Max pooling takes values or codes, whose order is the same. Nothing but its shape is saved: backward looks for the
 * first maximum again by comparing the input with the output. A NaN in the window is the maximum, so that a broken run
 * is seen. Average pooling is the mean over the part of a window that lies inside the image, or over its padding too.
 */
#include "core/base/cpu.h"
#include "core/op/op_impl.h"

#include <string.h>

/* y = the larger one of x and y. */
OCT_CLONES
static void take_max_f32(int64_t n, const float *x, float *restrict y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] > y[i] || x[i] != x[i] ? x[i] : y[i];
}

/* Codes have the same loop. */
#define TAKE_MAX(name, type)                                                                       \
    OCT_CLONES                                                                                     \
    static void take_max_##name(int64_t n, const type *x, type *restrict y)                        \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++)                                                            \
            y[i] = x[i] > y[i] ? x[i] : y[i];                                                      \
    }
TAKE_MAX(u8, uint8_t)
TAKE_MAX(u16, uint16_t)

/* Moves the window's gradient to where x is the maximum y, and leaves 0: later equal values get nothing. Bits are
 * chosen by masks, so that the loop becomes vectors on every instruction set. */
#define GIVE_GRAD(name, type, is_max)                                                              \
    OCT_CLONES                                                                                     \
    static void give_grad_##name(int64_t n, const type *x, const type *y, float *restrict grad,    \
                                 float *restrict grad_x)                                           \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const int32_t first = -(int32_t)(is_max);                                              \
            int32_t bits;                                                                          \
            memcpy(&bits, grad + i, sizeof bits);                                                  \
            const int32_t given_bits = bits & first, left = bits & ~first;                         \
            float given;                                                                           \
            memcpy(&given, &given_bits, sizeof given);                                             \
            grad_x[i] += given;                                                                    \
            memcpy(grad + i, &left, sizeof left);                                                  \
        }                                                                                          \
    }
GIVE_GRAD(f32, float, !(x[i] < y[i])) /* of NaN, too */
GIVE_GRAD(u8, uint8_t, x[i] == y[i])
GIVE_GRAD(u16, uint16_t, x[i] == y[i])

static void take_max_any(oct_dtype dtype, int64_t n, const void *x, void *y)
{
    if (dtype == OCT_F32)
        take_max_f32(n, x, y);
    else if (dtype == OCT_U8)
        take_max_u8(n, x, y);
    else
        take_max_u16(n, x, y);
}

static void give_grad_any(oct_dtype dtype, int64_t n, const void *x, const void *y, float *grad,
                          float *grad_x)
{
    if (dtype == OCT_F32)
        give_grad_f32(n, x, y, grad, grad_x);
    else if (dtype == OCT_U8)
        give_grad_u8(n, x, y, grad, grad_x);
    else
        give_grad_u16(n, x, y, grad, grad_x);
}

/* Takes the maximum of each window, channel by channel, beginning with its first pixel. */
static void max_pool_image(const oct_conv_shape *s, oct_dtype dtype, const char *x, char *y)
{
    const int64_t bytes = s->in_c * (int64_t)oct_dtype_bytes(dtype);
    for (int64_t at = 0; at < s->out_h * s->out_w; at++, y += bytes) {
        const oct_window_span rows = oct_pool_rows(s, at / s->out_w);
        const oct_window_span columns = oct_pool_columns(s, at % s->out_w);
        memcpy(y, x + (rows.first * s->in_w + columns.first) * bytes, (size_t)bytes);
        for (int64_t row = rows.first; row < rows.end; row++)
            for (int64_t column = columns.first; column < columns.end; column++)
                take_max_any(dtype, s->in_c, x + (row * s->in_w + column) * bytes, y);
    }
}

/* Adds each window's gradient to the first pixel that equals its maximum; grad_y is used up. */
static void max_pool_image_backward(const oct_conv_shape *s, oct_dtype dtype, const char *x,
                                    const char *y, float *grad_y, float *grad_x)
{
    const int64_t c = s->in_c, bytes = c * (int64_t)oct_dtype_bytes(dtype);
    memset(grad_x, 0, (size_t)oct_conv_in_numel(s) * sizeof(float));
    for (int64_t at = 0; at < s->out_h * s->out_w; at++, y += bytes, grad_y += c) {
        const oct_window_span rows = oct_pool_rows(s, at / s->out_w);
        const oct_window_span columns = oct_pool_columns(s, at % s->out_w);
        for (int64_t row = rows.first; row < rows.end; row++) {
            for (int64_t column = columns.first; column < columns.end; column++) {
                const int64_t at_x = row * s->in_w + column;
                give_grad_any(dtype, c, x + at_x * bytes, y, grad_y, grad_x + at_x * c);
            }
        }
    }
}

static void max_pool_backward(oct_context *cx, oct_node *node)
{
    oct_tensor *x = node->input[0], *y = node->output;
    const oct_conv_shape *s = node->saved;
    float *grad_y = y->grad, *grad_x = oct_grad_new(cx, x);
    if (!grad_x) return;
    const int64_t in = oct_conv_in_numel(s), out = oct_conv_out_numel(s),
                  size = (int64_t)oct_dtype_bytes(x->dtype);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < oct_dim(x, 0); i++)
        max_pool_image_backward(s, x->dtype, (const char *)x->data + i * in * size,
                                (const char *)y->data + i * out * size, grad_y + i * out,
                                grad_x + i * in);
    oct_add_grad(cx, x, grad_x);
}

oct_tensor *oct_max_pool(oct_context *cx, oct_tensor *x, oct_pool_geometry g)
{
    oct_tensor *y;
    oct_conv_shape s;
    oct_op_args args;
    oct_args_write(&oct_max_pool_arg_list, &g, &args);
    if (oct_op_intercepted(cx, "max_pool", &args, &x, 1, &y)) return y;
    if (!oct_inputs_ok(cx, &x, 1)) return NULL;
    if (!oct_needs_values_or_codes(cx, "max_pool", x)) return NULL;
    if (!oct_pool_fits(cx, "max_pool", x, &g, &s)) return NULL;
    y = oct_tensor_new(cx, x->dtype, OCT_SHAPE(oct_dim(x, 0), s.out_h, s.out_w, s.out_c));
    if (!y) return NULL;
    y->q = x->q;
    const int64_t size = (int64_t)oct_dtype_bytes(x->dtype);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < oct_dim(x, 0); i++)
        max_pool_image(&s, x->dtype, (const char *)x->data + i * oct_conv_in_numel(&s) * size,
                       (char *)y->data + i * oct_conv_out_numel(&s) * size);
    oct_node *node = oct_record(cx, "max_pool", max_pool_backward, &x, 1, false, y);
    return oct_node_save(cx, node, &s, sizeof s) ? y : NULL;
}

OCT_CLONES
static void divide_values(int64_t n, float count, float *restrict y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] /= count;
}

/* What the backward needs. */
typedef struct avg_pool {
    oct_conv_shape s;
    bool include_pad;
} avg_pool;

/* The part of a window inside the image, and what its sum is divided by. */
typedef struct window {
    oct_window_span rows, columns;
    float count;
} window;

/* at: the number of the output position, row by row. */
static window window_of(const avg_pool *a, int64_t at)
{
    const int64_t y = at / a->s.out_w, x = at % a->s.out_w;
    return (window){oct_pool_rows(&a->s, y), oct_pool_columns(&a->s, x),
                    (float)oct_pool_count(&a->s, a->include_pad, y, x)};
}

static void avg_pool_image(const avg_pool *a, const float *x, float *y)
{
    const int64_t c = a->s.in_c;
    for (int64_t at = 0; at < a->s.out_h * a->s.out_w; at++, y += c) {
        const window w = window_of(a, at);
        memset(y, 0, (size_t)c * sizeof(float));
        for (int64_t row = w.rows.first; row < w.rows.end; row++)
            for (int64_t column = w.columns.first; column < w.columns.end; column++)
                oct_accumulate(c, x + (row * a->s.in_w + column) * c, y);
        divide_values(c, w.count, y);
    }
}

/* The gradient of one image; grad_y is overwritten. */
static void avg_pool_image_backward(const avg_pool *a, float *grad_y, float *grad_x)
{
    const int64_t c = a->s.in_c;
    memset(grad_x, 0, (size_t)oct_conv_in_numel(&a->s) * sizeof(float));
    for (int64_t at = 0; at < a->s.out_h * a->s.out_w; at++, grad_y += c) {
        const window w = window_of(a, at);
        divide_values(c, w.count, grad_y);
        for (int64_t row = w.rows.first; row < w.rows.end; row++)
            for (int64_t column = w.columns.first; column < w.columns.end; column++)
                oct_accumulate(c, grad_y, grad_x + (row * a->s.in_w + column) * c);
    }
}

static void avg_pool_backward(oct_context *cx, oct_node *node)
{
    oct_tensor *x = node->input[0];
    const avg_pool *a = node->saved;
    float *grad_y = node->output->grad, *grad_x = oct_grad_new(cx, x);
    if (!grad_x) return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < oct_dim(x, 0); i++)
        avg_pool_image_backward(a, grad_y + i * oct_conv_out_numel(&a->s),
                                grad_x + i * oct_conv_in_numel(&a->s));
    oct_add_grad(cx, x, grad_x);
}

oct_tensor *oct_avg_pool(oct_context *cx, oct_tensor *x, oct_pool_geometry g)
{
    oct_tensor *y;
    oct_op_args args;
    oct_args_write(&oct_avg_pool_arg_list, &g, &args);
    if (oct_op_intercepted(cx, "avg_pool", &args, &x, 1, &y)) return y;
    if (!oct_inputs_ok(cx, &x, 1) || !oct_needs_f32(cx, "avg_pool", x)) return NULL;
    avg_pool a = {.include_pad = g.count_include_pad};
    if (!oct_pool_fits(cx, "avg_pool", x, &g, &a.s)) return NULL;
    y = oct_tensor_new(cx, OCT_F32, OCT_SHAPE(oct_dim(x, 0), a.s.out_h, a.s.out_w, a.s.out_c));
    if (!y) return NULL;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < oct_dim(x, 0); i++)
        avg_pool_image(&a, oct_f32(x) + i * oct_conv_in_numel(&a.s),
                       oct_f32(y) + i * oct_conv_out_numel(&a.s));
    oct_node *node = oct_record(cx, "avg_pool", avg_pool_backward, &x, 1, false, y);
    return oct_node_save(cx, node, &a, sizeof a) ? y : NULL;
}

OCT_CLONES
static void average_image(int64_t positions, int64_t channels, const float *x, float *restrict y)
{
    memset(y, 0, (size_t)channels * sizeof(float));
    for (int64_t p = 0; p < positions; p++) {
        for (int64_t c = 0; c < channels; c++)
            y[c] += x[p * channels + c];
    }
    for (int64_t c = 0; c < channels; c++)
        y[c] /= (float)positions;
}

OCT_CLONES
static void spread_grad(int64_t positions, int64_t channels, const float *grad_y,
                        float *restrict grad_x)
{
    for (int64_t c = 0; c < channels; c++)
        grad_x[c] = grad_y[c] / (float)positions;
    for (int64_t p = 1; p < positions; p++)
        memcpy(grad_x + p * channels, grad_x, (size_t)channels * sizeof(float));
}

static void global_avg_pool_backward(oct_context *cx, oct_node *node)
{
    oct_tensor *x = node->input[0];
    const float *grad_y = node->output->grad;
    int64_t positions = oct_dim(x, 1) * oct_dim(x, 2), c = oct_dim(x, 3);
    float *grad_x = oct_grad_new(cx, x);
    if (!grad_x) return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < oct_dim(x, 0); i++)
        spread_grad(positions, c, grad_y + i * c, grad_x + i * positions * c);
    oct_add_grad(cx, x, grad_x);
}

oct_tensor *oct_global_avg_pool(oct_context *cx, oct_tensor *x)
{
    oct_tensor *y;
    if (oct_op_intercepted(cx, "global_avg_pool", OCT_NO_ARGS, &x, 1, &y)) return y;
    if (!oct_inputs_ok(cx, &x, 1) || !oct_needs_f32(cx, "global_avg_pool", x)) return NULL;
    if (!oct_needs_images(cx, "global_avg_pool", x)) return NULL;
    int64_t positions = oct_dim(x, 1) * oct_dim(x, 2), c = oct_dim(x, 3);
    y = oct_tensor_new(cx, OCT_F32, OCT_SHAPE(oct_dim(x, 0), c));
    if (!y) return NULL;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < oct_dim(x, 0); i++)
        average_image(positions, c, oct_f32(x) + i * positions * c, oct_f32(y) + i * c);
    oct_record(cx, "global_avg_pool", global_avg_pool_backward, &x, 1, false, y);
    return y;
}
