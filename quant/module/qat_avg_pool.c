/* Average pools on codes: the input's qparams serve the output too, so no fake-quant of its own. */
#include "core/base/cpu.h"
#include "quant/module/quantized_impl.h"
#include "quant/module/rule.h"
#include "quant/module/emit.h"

#include <stdio.h>
#include <string.h>

typedef struct window {
    int64_t h, w, c, out_h, out_w;
    int kernel_h, kernel_w, stride;
} window;

static window window_of(const oct_qat_avg_pool *m, int64_t h, int64_t w, int64_t c)
{
    window p = {.h = h, .w = w, .c = c};
    p.kernel_h = m->kernel ? m->kernel : (int)h;
    p.kernel_w = m->kernel ? m->kernel : (int)w;
    p.stride = m->kernel ? m->stride : 1;
    p.out_h = (h - p.kernel_h) / p.stride + 1;
    p.out_w = (w - p.kernel_w) / p.stride + 1;
    return p;
}

static window window_in(const oct_qat_avg_pool *m, const oct_tensor *x)
{
    return window_of(m, oct_dim(x, 1), oct_dim(x, 2), oct_dim(x, 3));
}

/* Each position of a window gets its share. */
OCT_CLONES
static void add_shares(int64_t n, const float *grad_y, float share, float *restrict grad_x)
{
    for (int64_t i = 0; i < n; i++)
        grad_x[i] += grad_y[i] * share;
}

static void backward_plane(const window *p, const float *grad_y, float *grad_x)
{
    const float share = 1.0f / (float)(p->kernel_h * p->kernel_w);
    memset(grad_x, 0, (size_t)(p->h * p->w * p->c) * sizeof(float));
    for (int64_t at = 0; at < p->out_h * p->out_w; at++, grad_y += p->c) {
        const int64_t y = at / p->out_w * p->stride, x = at % p->out_w * p->stride;
        for (int64_t ky = 0; ky < p->kernel_h; ky++)
            for (int64_t kx = 0; kx < p->kernel_w; kx++)
                add_shares(p->c, grad_y, share, grad_x + ((y + ky) * p->w + x + kx) * p->c);
    }
}

static void backward(oct_context *cx, oct_node *node)
{
    oct_tensor *x = node->input[0];
    const window p = window_in((const oct_qat_avg_pool *)node->module, x);
    float *grad = oct_grad_new(cx, x);
    if (!grad) return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < oct_dim(x, 0); i++)
        backward_plane(&p, node->output->grad + i * p.out_h * p.out_w * p.c,
                       grad + i * p.h * p.w * p.c);
    oct_give_grad(cx, x, grad);
}

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    const oct_qat_avg_pool *m = (const oct_qat_avg_pool *)self;
    const oct_domain wiring = oct_inputs_domain(cx, x, n, 1);
    if (wiring == OCT_DOMAIN_INVALID) return NULL;
    if (wiring == OCT_DOMAIN_FLOAT)
        return m->kernel ? oct_avg_pool(cx, x[0], m->kernel, m->stride)
                         : oct_global_avg_pool(cx, x[0]);
    char text[96];
    if (x[0]->shape.ndim != 4 || oct_dim(x[0], 1) < 1 || oct_dim(x[0], 2) < 1)
        return oct_context_fail(cx, OCT_PREPARE, "input %s is not (N, H, W, C)",
                                oct_shape_text(&x[0]->shape, text));
    const window p = window_in(m, x[0]);
    const int64_t samples = oct_dim(x[0], 0);
    if (p.kernel_h > p.h || p.kernel_w > p.w)
        return oct_context_fail(cx, OCT_PREPARE, "a window of %dx%d does not fit %s", p.kernel_h,
                                p.kernel_w, oct_shape_text(&x[0]->shape, text));
    const oct_shape out =
        m->kernel ? OCT_SHAPE(samples, p.out_h, p.out_w, p.c) : OCT_SHAPE(samples, p.c);
    oct_tensor *y = oct_tensor_new(cx, x[0]->dtype, out);
    if (!y) return NULL;
    y->q = x[0]->q;
    oct_record(cx, "qat_avg_pool", backward, x, 1, false, y);
    const oct_qcodes codes = oct_qcodes_of(x[0]);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < samples; i++)
        oct_qavg_pool(1, p.h, p.w, p.c, p.kernel_h, p.kernel_w, p.stride,
                      oct_qcodes_from(codes, i * p.h * p.w * p.c),
                      oct_qcodes_place(y->data, y->q, i * p.out_h * p.out_w * p.c));
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

static oct_status emit(oct_module *self, oct_emitter *e)
{
    const oct_value in = *oct_emit_input(e, 0);
    const window p = window_of((const oct_qat_avg_pool *)self, in.h, in.w, in.c);
    oct_step *step;
    OCT_TRY(oct_emit_step(e, OCT_STEP_AVG_POOL, &step));
    step->conv = (oct_conv_shape){.in_h = p.h,
                                  .in_w = p.w,
                                  .in_c = p.c,
                                  .out_h = p.out_h,
                                  .out_w = p.out_w,
                                  .out_c = p.c,
                                  .kernel_h = p.kernel_h,
                                  .kernel_w = p.kernel_w,
                                  .stride = p.stride,
                                  .groups = 1};
    return oct_emit_output(e, step, in.dtype, in.q);
}

const oct_module_type oct_qat_avg_pool_type = {
    .name = "qat_avg_pool",
    .forward = forward,
    .describe = describe,
    .leaf = true,
    .emit = emit,
};

oct_status oct_qat_avg_pool_create(oct_module **m, int kernel, int stride)
{
    OCT_TRY(oct_module_create(m, &oct_qat_avg_pool_type, sizeof(oct_qat_avg_pool)));
    oct_qat_avg_pool *made = (oct_qat_avg_pool *)*m;
    made->kernel = kernel;
    made->stride = stride;
    return OCT_OK;
}

static oct_status create(oct_module **made, oct_module **old)
{
    const oct_pool_module *m = (const oct_pool_module *)*old;
    const bool global = (*old)->type == &oct_global_avg_pool_type;
    const oct_status status =
        oct_qat_avg_pool_create(made, global ? 0 : m->kernel, global ? 1 : m->stride);
    oct_module_destroy(old);
    return status;
}

const oct_quant_rule oct_quant_rule_avg_pool = {
    .type = &oct_avg_pool_type, .scale = OCT_SCALE_INPUT, .create = create};
const oct_quant_rule oct_quant_rule_global_avg_pool = {
    .type = &oct_global_avg_pool_type, .scale = OCT_SCALE_INPUT, .create = create};
