/* Planes of codes in another size: the input's qparams serve the output too. */
#include "quant/module/quantized_impl.h"
#include "quant/module/rule.h"

#include <stdio.h>
#include <string.h>

typedef struct interpolate {
    oct_quantized q;
    oct_interpolate_args args;
} interpolate;

typedef struct resize {
    oct_interpolation mode;
    int64_t h, w, c, out_h, out_w;
} resize;

/* Each pixel of the output adds its gradient to the four that it is mixed of, by their weights. */
static void spread_plane_grad(const resize *r, const float *grad_y, float *grad_x)
{
    memset(grad_x, 0, (size_t)(r->h * r->w * r->c) * sizeof(float));
    for (int64_t at = 0; at < r->out_h * r->out_w; at++, grad_y += r->c) {
        const oct_qtap y = oct_qtap_of(r->mode, at / r->out_w, r->h, r->out_h);
        const oct_qtap x = oct_qtap_of(r->mode, at % r->out_w, r->w, r->out_w);
        for (int i = 0; i < (oct_is_bilinear(r->mode) ? 4 : 1); i++) {
            const int32_t wy = i / 2 ? y.weight : OCT_QTAP_ONE - y.weight;
            const int32_t wx = i % 2 ? x.weight : OCT_QTAP_ONE - x.weight;
            const int64_t pixel = (i / 2 ? y.high : y.low) * r->w + (i % 2 ? x.high : x.low);
            const float weight = (float)(wy * wx) / ((float)OCT_QTAP_ONE * OCT_QTAP_ONE);
            for (int64_t c = 0; c < r->c; c++)
                grad_x[pixel * r->c + c] += weight * grad_y[c];
        }
    }
}

static void backward(oct_context *cx, oct_node *node)
{
    oct_tensor *x = node->input[0];
    const oct_interpolate_args *args = &((const interpolate *)node->module)->args;
    const resize r = {.mode = args->mode,
                      .h = oct_dim(x, 1),
                      .w = oct_dim(x, 2),
                      .c = oct_dim(x, 3),
                      .out_h = args->out_h,
                      .out_w = args->out_w};
    float *grad = oct_grad_new(cx, x);
    if (!grad) return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < oct_dim(x, 0); i++)
        spread_plane_grad(&r, node->output->grad + i * r.out_h * r.out_w * r.c,
                          grad + i * r.h * r.w * r.c);
    oct_add_grad(cx, x, grad);
}

static oct_tensor *compute_in_float(oct_context *cx, oct_module *self, oct_tensor *const *x)
{
    const interpolate *m = (const interpolate *)self;
    return oct_interpolate(cx, x[0], m->args.out_h, m->args.out_w, m->args.mode);
}

static bool check_input(oct_context *cx, const oct_module *self, const oct_tensor *x)
{
    (void)self;
    return oct_is_plane(cx, x);
}

static oct_shape output_shape(const oct_module *self, const oct_tensor *x)
{
    const interpolate *m = (const interpolate *)self;
    return OCT_SHAPE(oct_dim(x, 0), m->args.out_h, m->args.out_w, oct_dim(x, 3));
}

static oct_status set_constants(oct_module *self, const oct_program *program, oct_step *step)
{
    const interpolate *m = (const interpolate *)self;
    const oct_value *in = oct_step_input(program, step, 0);
    step->interpolate.mode = (int32_t)m->args.mode;
    step->interpolate.shape = (oct_conv_shape){.in_h = in->h,
                                               .in_w = in->w,
                                               .in_c = in->c,
                                               .out_h = m->args.out_h,
                                               .out_w = m->args.out_w,
                                               .out_c = in->c};
    return OCT_OK;
}

static const oct_quantized_op step = {.kind = OCT_STEP_INTERPOLATE,
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
    const interpolate *m = (const interpolate *)self;
    snprintf(text, size, "to %lldx%lld, %s, input's qparams", (long long)m->args.out_h,
             (long long)m->args.out_w, oct_interpolation_name(m->args.mode));
}

static const oct_module_type type = {
    .name = "qat_interpolate",
    .describe = describe,
    OCT_QUANTIZED_OP(&step, interpolate),
    .args_at = offsetof(interpolate, args),
};

const oct_quant_rule oct_quant_rule_interpolate = {
    .type = &oct_interpolate_type, .scale = OCT_SCALE_INPUT, .made = &type};
