/* Average pools on codes: the input's qparams serve the output too, so no fake-quant of its own. */
#include "core/base/cpu.h"
#include "quant/module/quantized_impl.h"
#include "quant/module/rule.h"

#include <stdio.h>
#include <string.h>

typedef struct avg_pool {
    oct_module base;
    int kernel, stride; /* kernel 0: the whole plane */
} avg_pool;

/* The window over a plane; sizes that do not fit it give an output of no positions. */
static oct_conv_shape window_of(const oct_module *self, int64_t h, int64_t w, int64_t c)
{
    const avg_pool *m = (const avg_pool *)self;
    oct_conv_shape s = {.in_h = h, .in_w = w, .in_c = c, .out_c = c, .groups = 1};
    s.kernel_h = m->kernel ? m->kernel : (int)h;
    s.kernel_w = m->kernel ? m->kernel : (int)w;
    s.stride = m->kernel ? m->stride : 1;
    s.out_h = h < s.kernel_h ? 0 : (h - s.kernel_h) / s.stride + 1;
    s.out_w = w < s.kernel_w ? 0 : (w - s.kernel_w) / s.stride + 1;
    return s;
}

static oct_conv_shape window_in(const oct_module *self, const oct_tensor *x)
{
    return window_of(self, oct_dim(x, 1), oct_dim(x, 2), oct_dim(x, 3));
}

/* Each position of a window gets its share. */
OCT_CLONES
static void add_shares(int64_t n, const float *grad_y, float share, float *restrict grad_x)
{
    for (int64_t i = 0; i < n; i++)
        grad_x[i] += grad_y[i] * share;
}

static void backward_plane(const oct_conv_shape *s, const float *grad_y, float *grad_x)
{
    const float share = 1.0f / (float)(s->kernel_h * s->kernel_w);
    memset(grad_x, 0, (size_t)oct_conv_in_numel(s) * sizeof(float));
    for (int64_t at = 0; at < s->out_h * s->out_w; at++, grad_y += s->out_c) {
        const int64_t y = at / s->out_w * s->stride, x = at % s->out_w * s->stride;
        for (int64_t ky = 0; ky < s->kernel_h; ky++)
            for (int64_t kx = 0; kx < s->kernel_w; kx++)
                add_shares(s->in_c, grad_y, share,
                           grad_x + ((y + ky) * s->in_w + x + kx) * s->in_c);
    }
}

static void backward(oct_context *cx, oct_node *node)
{
    oct_tensor *x = node->input[0];
    const oct_conv_shape s = window_in(node->module, x);
    float *grad = oct_grad_new(cx, x);
    if (!grad) return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < oct_dim(x, 0); i++)
        backward_plane(&s, node->output->grad + i * oct_conv_out_numel(&s),
                       grad + i * oct_conv_in_numel(&s));
    oct_give_grad(cx, x, grad);
}

static oct_tensor *in_float(oct_context *cx, oct_module *self, oct_tensor *const *x)
{
    const avg_pool *m = (const avg_pool *)self;
    return m->kernel ? oct_avg_pool(cx, x[0], m->kernel, m->stride) : oct_global_avg_pool(cx, x[0]);
}

static bool fits(oct_context *cx, const oct_module *self, const oct_tensor *x)
{
    char text[96];
    if (!oct_is_plane(cx, x)) return false;
    const oct_conv_shape s = window_in(self, x);
    if (s.out_h < 1 || s.out_w < 1)
        oct_context_fail(cx, OCT_PREPARE, "a window of %dx%d does not fit %s", s.kernel_h,
                         s.kernel_w, oct_shape_text(&x->shape, text));
    return cx->status == OCT_OK;
}

static oct_shape shape(const oct_module *self, const oct_tensor *x)
{
    const oct_conv_shape s = window_in(self, x);
    const int64_t samples = oct_dim(x, 0);
    return ((const avg_pool *)self)->kernel ? OCT_SHAPE(samples, s.out_h, s.out_w, s.out_c)
                                            : OCT_SHAPE(samples, s.out_c);
}

static oct_status constants(oct_module *self, const oct_program *program, oct_step *step)
{
    const oct_value *in = oct_step_input(program, step, 0);
    step->conv = window_of(self, in->h, in->w, in->c);
    return OCT_OK;
}

static const oct_quantized_op step = {.kind = OCT_STEP_AVG_POOL,
                                      .inputs = 1,
                                      .unit = OCT_UNIT_SAMPLE,
                                      .keeps_qparams = true,
                                      .in_float = in_float,
                                      .fits = fits,
                                      .shape = shape,
                                      .constants = constants,
                                      .backward = backward};

static void describe(const oct_module *self, char *text, size_t size)
{
    const avg_pool *m = (const avg_pool *)self;
    if (m->kernel)
        snprintf(text, size, "%dx%d, stride %d, input's qparams", m->kernel, m->kernel, m->stride);
    else
        snprintf(text, size, "global, input's qparams");
}

static const oct_module_type type = {
    .name = "qat_avg_pool",
    .forward = oct_quantized_forward,
    .describe = describe,
    .atomic = true,
    .emit = oct_quantized_emit,
    .step = &step,
};

static oct_status create(oct_module **made, oct_module **old)
{
    const oct_pool_module pool = *(const oct_pool_module *)*old;
    OCT_TRY(oct_quantized_replace(made, &type, sizeof(avg_pool), old));
    ((avg_pool *)*made)->kernel = pool.kernel;
    ((avg_pool *)*made)->stride = pool.stride;
    return OCT_OK;
}

static oct_status create_global(oct_module **made, oct_module **old)
{
    return oct_quantized_replace(made, &type, sizeof(avg_pool), old);
}

const oct_quant_rule oct_quant_rule_avg_pool = {
    .type = &oct_avg_pool_type, .scale = OCT_SCALE_INPUT, .create = create};
const oct_quant_rule oct_quant_rule_global_avg_pool = {
    .type = &oct_global_avg_pool_type, .scale = OCT_SCALE_INPUT, .create = create_global};
