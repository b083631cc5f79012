/* Average pools on codes: the input's qparams serve the output too, so no fake-quant of its own. */
#include "quant/module/quant_modules.h"

#include <stdio.h>

typedef struct window {
    int64_t h, w, c, out_h, out_w;
    int kernel_h, kernel_w, stride;
} window;

static window window_of(const oct_qat_avg_pool *m, const oct_tensor *x)
{
    window p = {.h = oct_dim(x, 1), .w = oct_dim(x, 2), .c = oct_dim(x, 3)};
    p.kernel_h = m->kernel ? m->kernel : (int)p.h;
    p.kernel_w = m->kernel ? m->kernel : (int)p.w;
    p.stride = m->kernel ? m->stride : 1;
    p.out_h = (p.h - p.kernel_h) / p.stride + 1;
    p.out_w = (p.w - p.kernel_w) / p.stride + 1;
    return p;
}

/* Each position of a window gets its share. */
static void backward(oct_context *cx, oct_node *node)
{
    oct_tensor *x = node->input[0];
    window p = window_of((const oct_qat_avg_pool *)node->module, x);
    int64_t n = oct_numel(x);
    const float *grad = node->output->grad;
    float *grad_x = oct_scratch(cx, (size_t)n * 4 + 64);
    if (!grad_x) return;
    float share = 1.0f / (float)(p.kernel_h * p.kernel_w);
    for (int64_t i = 0; i < n; i++)
        grad_x[i] = 0.0f;
    int64_t samples = oct_dim(x, 0);
    for (int64_t s = 0; s < samples; s++)
        for (int64_t oy = 0; oy < p.out_h; oy++)
            for (int64_t ox = 0; ox < p.out_w; ox++) {
                const float *g = grad + ((s * p.out_h + oy) * p.out_w + ox) * p.c;
                for (int64_t ky = 0; ky < p.kernel_h; ky++)
                    for (int64_t kx = 0; kx < p.kernel_w; kx++) {
                        int64_t iy = oy * p.stride + ky, ix = ox * p.stride + kx;
                        float *to = grad_x + ((s * p.h + iy) * p.w + ix) * p.c;
                        for (int64_t c = 0; c < p.c; c++)
                            to[c] += g[c] * share;
                    }
            }
    oct_give_grad(cx, x, grad_x);
}

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    const oct_qat_avg_pool *m = (const oct_qat_avg_pool *)self;
    if (!oct_ready(cx, x, n)) return NULL;
    if (x[0]->dtype == OCT_F32)
        return m->kernel ? oct_avg_pool(cx, x[0], m->kernel, m->stride)
                         : oct_global_avg_pool(cx, x[0]);
    char text[96];
    if (x[0]->shape.ndim != 4)
        return oct_context_fail(cx, OCT_PREPARE, "input %s is not (N, H, W, C)",
                                oct_shape_text(&x[0]->shape, text));
    window p = window_of(m, x[0]);
    int64_t samples = oct_dim(x[0], 0);
    if (p.kernel_h > p.h || p.kernel_w > p.w)
        return oct_context_fail(cx, OCT_PREPARE, "a window of %dx%d does not fit %s", p.kernel_h,
                                p.kernel_w, oct_shape_text(&x[0]->shape, text));
    oct_shape out = m->kernel ? OCT_SHAPE(samples, p.out_h, p.out_w, p.c) : OCT_SHAPE(samples, p.c);
    oct_tensor *y = oct_tensor_new(cx, OCT_U8, out);
    if (!y) return NULL;
    y->q = x[0]->q;
    oct_record(cx, "qat_avg_pool", backward, x, 1, false, y);
    oct_qavg_pool(samples, p.h, p.w, p.c, p.kernel_h, p.kernel_w, p.stride, y->q, oct_u8(x[0]),
                  oct_u8(y));
    return y;
}

static void describe(const oct_module *self, char *text, size_t size)
{
    const oct_qat_avg_pool *m = (const oct_qat_avg_pool *)self;
    if (m->kernel)
        snprintf(text, size, "%dx%d, stride %d, input's qparams", m->kernel, m->kernel, m->stride);
    else
        snprintf(text, size, "global, input's qparams");
}

const oct_module_type oct_qat_avg_pool_type = {
    .name = "qat_avg_pool",
    .forward = forward,
    .describe = describe,
    .leaf = true,
};

oct_status oct_qat_avg_pool_create(oct_module **m, int kernel, int stride)
{
    OCT_TRY(oct_module_create(m, &oct_qat_avg_pool_type, sizeof(oct_qat_avg_pool)));
    oct_qat_avg_pool *made = (oct_qat_avg_pool *)*m;
    made->kernel = kernel;
    made->stride = stride;
    return OCT_OK;
}
