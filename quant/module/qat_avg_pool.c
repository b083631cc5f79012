/* Average pools on codes: the input's qparams serve the output too, so no fake-quant of its own. */
#include "core/base/cpu.h"
#include "quant/module/quantized_impl.h"
#include "quant/module/rule.h"

#include <stdio.h>
#include <string.h>

typedef struct avg_pool {
    oct_quantized q;
    oct_pool_geometry geometry; /* of kernel 0: the whole plane */
} avg_pool;

static bool is_global(const avg_pool *m)
{
    return m->geometry.kernel_h == 0;
}

/* The windows over a plane; sizes that do not fit it give an output of no positions. */
static oct_conv_shape pool_windows(const oct_module *self, int64_t h, int64_t w, int64_t c)
{
    oct_pool_geometry g = ((const avg_pool *)self)->geometry;
    if (is_global((const avg_pool *)self)) {
        g = oct_pool_geometry_of((int)h, 1, 0);
        g.kernel_w = (int)w;
    }
    return oct_pool_shape_of(h, w, c, g);
}

static oct_conv_shape windows_over(const oct_module *self, const oct_tensor *x)
{
    return pool_windows(self, oct_dim(x, 1), oct_dim(x, 2), oct_dim(x, 3));
}

/* Adds to the gradient of one position of a window its share. */
OCT_CLONES
static void add_shares(int64_t n, const float *grad_y, float share, float *restrict grad_x)
{
    for (int64_t i = 0; i < n; i++)
        grad_x[i] += grad_y[i] * share;
}

/* Each position of the output adds its gradient to the positions of its window, in equal shares. */
static void spread_plane_grad(const oct_conv_shape *s, bool include_pad, const float *grad_y,
                              float *grad_x)
{
    memset(grad_x, 0, (size_t)oct_conv_in_numel(s) * sizeof(float));
    for (int64_t at = 0; at < s->out_h * s->out_w; at++, grad_y += s->out_c) {
        const int64_t y = at / s->out_w, x = at % s->out_w;
        const oct_window_span rows = oct_pool_rows(s, y), columns = oct_pool_columns(s, x);
        const float share = 1.0f / (float)oct_pool_count(s, include_pad, y, x);
        for (int64_t row = rows.first; row < rows.end; row++)
            for (int64_t column = columns.first; column < columns.end; column++)
                add_shares(s->in_c, grad_y, share, grad_x + (row * s->in_w + column) * s->in_c);
    }
}

static void backward(oct_context *cx, oct_node *node)
{
    oct_tensor *x = node->input[0];
    const oct_conv_shape s = windows_over(node->module, x);
    const bool include_pad = ((const avg_pool *)node->module)->geometry.count_include_pad;
    float *grad = oct_grad_new(cx, x);
    if (!grad) return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < oct_dim(x, 0); i++)
        spread_plane_grad(&s, include_pad, node->output->grad + i * oct_conv_out_numel(&s),
                          grad + i * oct_conv_in_numel(&s));
    oct_add_grad(cx, x, grad);
}

static oct_tensor *compute_in_float(oct_context *cx, oct_module *self, oct_tensor *const *x)
{
    const avg_pool *m = (const avg_pool *)self;
    return is_global(m) ? oct_global_avg_pool(cx, x[0]) : oct_avg_pool(cx, x[0], m->geometry);
}

static bool check_input(oct_context *cx, const oct_module *self, const oct_tensor *x)
{
    if (!oct_is_plane(cx, x)) return false;
    const oct_conv_shape s = windows_over(self, x);
    if (s.out_h < 1 || s.out_w < 1)
        oct_context_fail(cx, OCT_PREPARE, "a window of %dx%d does not fit %s", s.kernel_h,
                         s.kernel_w, oct_text_shape(&x->shape).text);
    return cx->status == OCT_OK;
}

static oct_shape output_shape(const oct_module *self, const oct_tensor *x)
{
    const oct_conv_shape s = windows_over(self, x);
    const int64_t samples = oct_dim(x, 0);
    return is_global((const avg_pool *)self) ? OCT_SHAPE(samples, s.out_c)
                                             : OCT_SHAPE(samples, s.out_h, s.out_w, s.out_c);
}

/* Fills in the step: the windows, and how the target rounds averages (factor: as a convolution's outputs). */
static oct_status set_constants(oct_module *self, const oct_program *program, oct_step *step)
{
    const oct_value *in = oct_step_input(program, step, 0);
    step->pool.shape = pool_windows(self, in->h, in->w, in->c);
    const avg_pool *m = (const avg_pool *)self;
    const oct_target *target = m->q.target;
    if (target->pools_convolve)
        step->pool.factor = oct_qavg_factor(in->q.scale, (int64_t)step->pool.shape.kernel_h *
                                                             step->pool.shape.kernel_w);
    step->pool.of_codes = target->pools_codes;
    step->pool.half_up = target->pools_half_up;
    step->pool.fixed = oct_rounding_of(target->requantizer)->averages;
    step->pool.ceil = m->geometry.ceil;
    step->pool.count_include_pad = m->geometry.count_include_pad;
    return OCT_OK;
}

static const oct_quantized_op step = {.kind = OCT_STEP_AVG_POOL,
                                      .inputs = 1,
                                      .unit = OCT_UNIT_SAMPLE,
                                      .keeps_qparams = true,
                                      .in_float = compute_in_float,
                                      .fits = check_input,
                                      .shape = output_shape,
                                      .constants = set_constants,
                                      .backward = backward};

static void describe(const oct_module *self, char *text, size_t size)
{
    const avg_pool *m = (const avg_pool *)self;
    snprintf(text, size, "%s, input's qparams",
             is_global(m) ? "global" : oct_text_pool_geometry(&m->geometry).text);
}

static const oct_module_type type = {
    .name = "qat_avg_pool",
    .describe = describe,
    OCT_QUANTIZED_OP(&step, avg_pool),
    .args_at = offsetof(avg_pool, geometry),
};

const oct_quant_rule oct_quant_rule_avg_pool = {
    .type = &oct_avg_pool_type, .scale = OCT_SCALE_INPUT, .made = &type};
const oct_quant_rule oct_quant_rule_global_avg_pool = {
    .type = &oct_global_avg_pool_type, .scale = OCT_SCALE_INPUT, .made = &type};
