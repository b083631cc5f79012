/* Average pooling is the mean over the part of a window that lies inside the image, or over its padding
 * too. */
#include "core/base/cpu.h"
#include "core/op/op_impl.h"
#include "core/op/ops.h"

#include <string.h>

OCT_CLONES
static void add_values(int64_t n, const float *x, float *restrict y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += x[i];
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

static void pool_image(const avg_pool *a, const float *x, float *y)
{
    const int64_t c = a->s.in_c;
    for (int64_t at = 0; at < a->s.out_h * a->s.out_w; at++, y += c) {
        const window w = window_of(a, at);
        memset(y, 0, (size_t)c * sizeof(float));
        for (int64_t row = w.rows.first; row < w.rows.end; row++)
            for (int64_t column = w.columns.first; column < w.columns.end; column++)
                add_values(c, x + (row * a->s.in_w + column) * c, y);
        divide_values(c, w.count, y);
    }
}

/* The gradient of one image; grad_y is overwritten. */
static void pool_image_backward(const avg_pool *a, float *grad_y, float *grad_x)
{
    const int64_t c = a->s.in_c;
    memset(grad_x, 0, (size_t)oct_conv_in_numel(&a->s) * sizeof(float));
    for (int64_t at = 0; at < a->s.out_h * a->s.out_w; at++, grad_y += c) {
        const window w = window_of(a, at);
        divide_values(c, w.count, grad_y);
        for (int64_t row = w.rows.first; row < w.rows.end; row++)
            for (int64_t column = w.columns.first; column < w.columns.end; column++)
                add_values(c, grad_y, grad_x + (row * a->s.in_w + column) * c);
    }
}

static void avg_pool_backward(oct_context *cx, oct_node *node)
{
    oct_tensor *x = node->input[0];
    const avg_pool *a = node->saved;
    float *grad_x = oct_grad_new(cx, x);
    if (!grad_x) return;
    float *grad_y = oct_detach_grad(node->output);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < oct_dim(x, 0); i++)
        pool_image_backward(a, grad_y + i * oct_conv_out_numel(&a->s),
                            grad_x + i * oct_conv_in_numel(&a->s));
    oct_scratch_end(cx, grad_y);
    oct_add_grad(cx, x, grad_x);
}

oct_tensor *oct_avg_pool(oct_context *cx, oct_tensor *x, oct_pool_geometry g)
{
    oct_tensor *y;
    oct_op_args args;
    oct_args_write(&oct_avg_pool_arg_list, &g, &args);
    if (oct_call_site(cx, "avg_pool", &args, &x, 1, &y)) return y;
    if (!oct_inputs_ok(cx, &x, 1) || !oct_needs_f32(cx, "avg_pool", x)) return NULL;
    avg_pool a = {.include_pad = g.count_include_pad};
    if (!oct_pool_fits(cx, "avg_pool", x, &g, &a.s)) return NULL;
    y = oct_tensor_new(cx, OCT_F32, OCT_SHAPE(oct_dim(x, 0), a.s.out_h, a.s.out_w, a.s.out_c));
    if (!y) return NULL;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < oct_dim(x, 0); i++)
        pool_image(&a, oct_f32(x) + i * oct_conv_in_numel(&a.s),
                   oct_f32(y) + i * oct_conv_out_numel(&a.s));
    oct_node *node = oct_record(cx, "avg_pool", avg_pool_backward, &x, 1, false, y);
    return oct_node_save(cx, node, &a, sizeof a) ? y : NULL;
}
