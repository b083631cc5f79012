/* A batch norm that follows no convolution (+ relu, relu6 or clip), on codes: the depthwise 1x1 convolution whose
 * weights are 1, which needs no product (oct_qconv_plan_affine). */
#include "quant/module/conv/conv_impl.h"
#include "quant/module/emit.h"
#include "quant/module/quantized_impl.h"

#include <stdio.h>

static oct_layer layer_of(const oct_qat_batch_norm *m)
{
    return (oct_layer){.bn = (oct_batch_norm_module *)m->batch_norm,
                       .activation = m->activation,
                       .clip = m->clip,
                       .fq = (oct_fake_quant *)m->q.fake_quant,
                       .training = m->q.base.training,
                       .requantizer = m->q.target ? m->q.target->requantizer : OCT_REQUANT_FLOAT};
}

static oct_conv_shape plane_shape(int64_t h, int64_t w, int64_t c)
{
    return oct_conv_shape_of(h, w, c, c, oct_conv_geometry_of(1, 1, 1, 0, (int)c));
}

static oct_tensor *integer_forward(oct_context *cx, const oct_qat_batch_norm *m, oct_tensor *x)
{
    oct_qat_call call = {.op = "qat_batch_norm", .layer = layer_of(m), .out = x->shape, .x = x};
    const int64_t n = call.layer.bn->args.channels;
    char text[96];
    if ((x->shape.ndim != 2 && x->shape.ndim != 4) || oct_dim(x, x->shape.ndim - 1) != n ||
        oct_dim(x, 0) != oct_leaves_local_samples(&cx->leaves))
        return oct_context_fail(cx, OCT_PREPARE,
                                "input %s does not have the batch's samples and its %lld channels",
                                oct_shape_text(&x->shape, text), (long long)n);
    if (oct_requantizer_shifts(m->q.target->requantizer))
        return oct_context_fail(cx, OCT_PREPARE,
                                "target %s shifts and has no place for a batch norm; fold it",
                                m->q.target->name);
    const bool plane = x->shape.ndim == 4;
    call.shape = plane_shape(plane ? oct_dim(x, 1) : 1, plane ? oct_dim(x, 2) : 1, n);
    return oct_qat_conv_forward(cx, &call);
}

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    const oct_qat_batch_norm *m = (const oct_qat_batch_norm *)self;
    const oct_domain domain = oct_quantized_domain(cx, &m->q, x, n, 1);
    if (domain == OCT_DOMAIN_INVALID) return NULL;
    if (domain == OCT_DOMAIN_CODES) return integer_forward(cx, m, x[0]);
    const oct_layer l = layer_of(m);
    const oct_bn_args call = oct_batch_norm_call(l.bn, self->training);
    oct_tensor *y = oct_float_activation(cx, &l, oct_batch_norm(cx, x[0], &call));
    return oct_fake_quant_float(cx, l.fq, self->training, y);
}

static void describe(const oct_module *self, char *text, size_t size)
{
    const oct_qat_batch_norm *m = (const oct_qat_batch_norm *)self;
    snprintf(text, size, "batch_norm%s", oct_activation_words(m->activation));
}

static oct_status emit(oct_module *self, struct oct_emitter *e)
{
    const oct_qat_batch_norm *m = (const oct_qat_batch_norm *)self;
    const oct_value in = *oct_emit_input(e, 0);
    oct_step *step;
    OCT_TRY(oct_emit_step(e, OCT_STEP_AFFINE, &step));
    OCT_CHECK(in.dtype != OCT_F32, OCT_PREPARE, "%s: its input is float where codes should come",
              step->name);
    const oct_layer l = layer_of(m);
    step->conv.shape = plane_shape(in.h, in.w, in.c);
    step->conv.input_step_h = step->conv.input_step_w = 1;
    OCT_TRY(oct_step_set_layer(step, &l, in.q, NULL));
    const oct_qparams q = oct_fake_quant_qparams((const oct_fake_quant *)m->q.fake_quant);
    return oct_emit_output(e, step, oct_codes_dtype(q), q);
}

const oct_module_type oct_qat_batch_norm_type = {
    .name = "qat_batch_norm",
    .forward = forward,
    .describe = describe,
    .atomic = true,
    .emit = emit,
    .quantized = true,
};

oct_status oct_qat_batch_norm_create(oct_module **m, oct_module **batch_norm,
                                     oct_activation activation)
{
    oct_status status = oct_module_create(m, &oct_qat_batch_norm_type, sizeof(oct_qat_batch_norm));
    if (status == OCT_OK) {
        oct_qat_batch_norm *made = (oct_qat_batch_norm *)*m;
        made->activation = activation;
        made->batch_norm = *batch_norm;
        *batch_norm = NULL;
        status = oct_module_made(m, oct_module_add_child(*m, "bn", &made->batch_norm));
    }
    oct_module_destroy(batch_norm);
    return status;
}
