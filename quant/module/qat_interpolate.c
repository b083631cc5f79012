/* Planes of codes in another size: the input's qparams serve the output too. */
#include "quant/module/quantized_impl.h"
#include "quant/module/rule.h"
#include "quant/module/emit.h"

#include <stdio.h>
#include <string.h>

typedef struct resize {
    bool bilinear;
    int64_t h, w, c, out_h, out_w;
} resize;

static resize resize_of(const oct_qat_interpolate *m, const oct_tensor *x)
{
    return (resize){.bilinear = m->mode == OCT_BILINEAR,
                    .h = oct_dim(x, 1),
                    .w = oct_dim(x, 2),
                    .c = oct_dim(x, 3),
                    .out_h = m->out_h,
                    .out_w = m->out_w};
}

static void add_to(int64_t n, float weight, const float *grad_y, float *grad_x)
{
    for (int64_t i = 0; i < n; i++)
        grad_x[i] += weight * grad_y[i];
}

/* Each pixel hands its gradient to the four that it is mixed of, by their weights. */
static void backward_plane(const resize *r, const float *grad_y, float *grad_x)
{
    memset(grad_x, 0, (size_t)(r->h * r->w * r->c) * sizeof(float));
    for (int64_t at = 0; at < r->out_h * r->out_w; at++, grad_y += r->c) {
        const oct_qtap y = oct_qtap_of(r->bilinear, at / r->out_w, r->h, r->out_h);
        const oct_qtap x = oct_qtap_of(r->bilinear, at % r->out_w, r->w, r->out_w);
        for (int i = 0; i < (r->bilinear ? 4 : 1); i++) {
            const int32_t wy = i / 2 ? y.weight : OCT_QTAP_ONE - y.weight;
            const int32_t wx = i % 2 ? x.weight : OCT_QTAP_ONE - x.weight;
            const int64_t pixel = (i / 2 ? y.high : y.low) * r->w + (i % 2 ? x.high : x.low);
            add_to(r->c, (float)(wy * wx) / ((float)OCT_QTAP_ONE * OCT_QTAP_ONE), grad_y,
                   grad_x + pixel * r->c);
        }
    }
}

static void backward(oct_context *cx, oct_node *node)
{
    oct_tensor *x = node->input[0];
    const resize r = resize_of((const oct_qat_interpolate *)node->module, x);
    float *grad = oct_grad_new(cx, x);
    if (!grad) return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < oct_dim(x, 0); i++)
        backward_plane(&r, node->output->grad + i * r.out_h * r.out_w * r.c,
                       grad + i * r.h * r.w * r.c);
    oct_give_grad(cx, x, grad);
}

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    const oct_qat_interpolate *m = (const oct_qat_interpolate *)self;
    const oct_domain wiring = oct_inputs_domain(cx, x, n, 1);
    if (wiring == OCT_DOMAIN_INVALID) return NULL;
    if (wiring == OCT_DOMAIN_FLOAT) return oct_interpolate(cx, x[0], m->out_h, m->out_w, m->mode);
    char text[96];
    if (x[0]->shape.ndim != 4 || oct_dim(x[0], 1) < 1 || oct_dim(x[0], 2) < 1)
        return oct_context_fail(cx, OCT_PREPARE, "input %s is not (N, H, W, C)",
                                oct_shape_text(&x[0]->shape, text));
    const resize r = resize_of(m, x[0]);
    const int64_t samples = oct_dim(x[0], 0);
    oct_tensor *y = oct_tensor_new(cx, x[0]->dtype, OCT_SHAPE(samples, r.out_h, r.out_w, r.c));
    if (!y) return NULL;
    y->q = x[0]->q;
    oct_record(cx, "qat_interpolate", backward, x, 1, false, y);
    const oct_qcodes codes = oct_qcodes_of(x[0]);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < samples; i++)
        oct_qinterpolate_forward(1, r.h, r.w, r.c, r.out_h, r.out_w, r.bilinear,
                                 oct_qcodes_from(codes, i * r.h * r.w * r.c),
                                 oct_qcodes_place(y->data, y->q, i * r.out_h * r.out_w * r.c));
    return y;
}

static void describe(const oct_module *self, char *text, size_t size)
{
    const oct_qat_interpolate *m = (const oct_qat_interpolate *)self;
    snprintf(text, size, "to %lldx%lld, %s, input's qparams", (long long)m->out_h,
             (long long)m->out_w, m->mode == OCT_BILINEAR ? "bilinear" : "nearest");
}

static oct_status emit(oct_module *self, oct_emitter *e)
{
    const oct_qat_interpolate *m = (const oct_qat_interpolate *)self;
    const oct_value in = *oct_emit_input(e, 0);
    oct_step *step;
    OCT_TRY(oct_emit_step(e, OCT_STEP_INTERPOLATE, &step));
    step->bilinear = m->mode == OCT_BILINEAR;
    step->conv = (oct_conv_shape){.in_h = in.h,
                                  .in_w = in.w,
                                  .in_c = in.c,
                                  .out_h = m->out_h,
                                  .out_w = m->out_w,
                                  .out_c = in.c};
    return oct_emit_output(e, step, in.dtype, in.q);
}

const oct_module_type oct_qat_interpolate_type = {
    .name = "qat_interpolate",
    .forward = forward,
    .describe = describe,
    .leaf = true,
    .emit = emit,
};

oct_status oct_qat_interpolate_create(oct_module **m, int64_t out_h, int64_t out_w,
                                      oct_interpolation mode)
{
    OCT_TRY(oct_module_create(m, &oct_qat_interpolate_type, sizeof(oct_qat_interpolate)));
    oct_qat_interpolate *made = (oct_qat_interpolate *)*m;
    made->out_h = out_h;
    made->out_w = out_w;
    made->mode = mode;
    return OCT_OK;
}

static oct_status create(oct_module **made, oct_module **old)
{
    const oct_interpolate_module *m = (const oct_interpolate_module *)*old;
    const oct_status status = oct_qat_interpolate_create(made, m->out_h, m->out_w, m->mode);
    oct_module_destroy(old);
    return status;
}

const oct_quant_rule oct_quant_rule_interpolate = {
    .type = &oct_interpolate_type, .scale = OCT_SCALE_INPUT, .create = create};
