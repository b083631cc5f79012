/* Average pooling is the mean over square windows that lie inside the image. */
#include "core/base/cpu.h"
#include "core/op/op_impl.h"
#include "core/op/ops.h"

#include <string.h>

OCT_CLONES
static void add_to(int64_t n, const float *x, float *restrict y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += x[i];
}

OCT_CLONES
static void divide(int64_t n, float count, float *restrict y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] /= count;
}

static void pool_image(const oct_pool_window *p, const float *x, float *y)
{
    for (int64_t at = 0; at < p->oh * p->ow; at++, y += p->c) {
        const float *corner = x + (at / p->ow * p->stride * p->w + at % p->ow * p->stride) * p->c;
        memset(y, 0, (size_t)p->c * sizeof(float));
        for (int64_t t = 0; t < (int64_t)p->kernel * p->kernel; t++)
            add_to(p->c, corner + (t / p->kernel * p->w + t % p->kernel) * p->c, y);
        divide(p->c, (float)(p->kernel * p->kernel), y);
    }
}

static void backward_image(const oct_pool_window *p, float *grad_y, float *grad_x)
{
    memset(grad_x, 0, (size_t)(p->h * p->w * p->c) * sizeof(float));
    for (int64_t at = 0; at < p->oh * p->ow; at++, grad_y += p->c) {
        float *corner = grad_x + (at / p->ow * p->stride * p->w + at % p->ow * p->stride) * p->c;
        divide(p->c, (float)(p->kernel * p->kernel), grad_y);
        for (int64_t t = 0; t < (int64_t)p->kernel * p->kernel; t++)
            add_to(p->c, grad_y, corner + (t / p->kernel * p->w + t % p->kernel) * p->c);
    }
}

static void avg_pool_backward(oct_context *cx, oct_node *node)
{
    oct_tensor *x = node->input[0];
    const oct_pool_window *p = node->saved;
    float *grad_x = oct_grad_new(cx, x);
    if (!grad_x) return;
    float *grad_y = oct_take_grad(node->output);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < oct_dim(x, 0); i++)
        backward_image(p, grad_y + i * p->oh * p->ow * p->c, grad_x + i * p->h * p->w * p->c);
    oct_scratch_end(cx, grad_y);
    oct_give_grad(cx, x, grad_x);
}

oct_tensor *oct_avg_pool(oct_context *cx, oct_tensor *x, int kernel, int stride)
{
    oct_tensor *y;
    if (oct_call_site(cx, "avg_pool", OCT_OP_ARGS(kernel, stride), &x, 1, &y)) return y;
    if (!oct_inputs_ok(cx, &x, 1) || !oct_needs_f32(cx, "avg_pool", x)) return NULL;
    oct_pool_window p = {.kernel = kernel, .stride = stride};
    if (!oct_pool_window_fit(cx, "avg_pool", x, &p)) return NULL;
    y = oct_tensor_new(cx, OCT_F32, OCT_SHAPE(oct_dim(x, 0), p.oh, p.ow, p.c));
    if (!y) return NULL;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < oct_dim(x, 0); i++)
        pool_image(&p, oct_f32(x) + i * p.h * p.w * p.c, oct_f32(y) + i * p.oh * p.ow * p.c);
    oct_node *node = oct_record(cx, "avg_pool", avg_pool_backward, &x, 1, false, y);
    if (node) {
        oct_pool_window *saved = node->saved = oct_save(cx, sizeof *saved);
        if (!saved) return NULL;
        *saved = p;
    }
    return y;
}
