/* conv2d or linear (+ batch norm) (+ relu or relu6), as the deployed integer arithmetic.
 *
 * Weight codes are those of the raw weights: batch norm's factor moves into the scale (fold.h), so
 * nothing is quantized twice and live batch norm needs no refolding.
 */
#include "quant/module/qat_conv_impl.h"

#include "core/base/mem.h"
#include "quant/module/fold.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

oct_layer oct_layer_of(const oct_qat_conv *m)
{
    oct_layer l = {.bn = (oct_batch_norm_module *)m->batch_norm,
                   .fq = (oct_fake_quant *)m->fake_quant};
    if (m->layer->type == &oct_conv2d_type) {
        l.weight = ((oct_conv2d_module *)m->layer)->weight;
        l.bias = ((oct_conv2d_module *)m->layer)->bias;
    } else {
        l.weight = ((oct_linear_module *)m->layer)->weight;
        l.bias = ((oct_linear_module *)m->layer)->bias;
    }
    return l;
}

oct_conv_shape oct_qat_conv_shape(const oct_qat_conv *m, int64_t in_h, int64_t in_w)
{
    if (m->layer->type == &oct_linear_type) {
        const oct_linear_module *l = (const oct_linear_module *)m->layer;
        return (oct_conv_shape){.in_h = 1,
                                .in_w = 1,
                                .in_c = l->in_features,
                                .out_h = 1,
                                .out_w = 1,
                                .out_c = l->out_features,
                                .kernel_h = 1,
                                .kernel_w = 1,
                                .stride = 1,
                                .groups = 1};
    }
    const oct_conv2d_module *c = (const oct_conv2d_module *)m->layer;
    oct_conv_geometry g = c->geometry;
    return (oct_conv_shape){.in_h = in_h,
                            .in_w = in_w,
                            .in_c = c->in_channels,
                            .out_h = oct_conv_out(in_h, g.kernel_h, g.stride, g.padding),
                            .out_w = oct_conv_out(in_w, g.kernel_w, g.stride, g.padding),
                            .out_c = c->out_channels,
                            .kernel_h = g.kernel_h,
                            .kernel_w = g.kernel_w,
                            .stride = g.stride,
                            .padding = g.padding,
                            .groups = g.groups};
}

/* The float model, with its output observed: states OFF and CALIBRATE. */
static oct_tensor *float_forward(oct_context *cx, oct_qat_conv *m, oct_tensor *x)
{
    oct_layer l = oct_layer_of(m);
    oct_tensor *y;
    if (m->layer->type == &oct_linear_type)
        y = oct_linear(cx, x, l.weight, l.bias);
    else
        y = oct_conv2d(cx, x, l.weight, l.bias, ((oct_conv2d_module *)m->layer)->geometry);
    if (l.bn) {
        oct_bn_args args = {.gamma = l.bn->gamma,
                            .beta = l.bn->beta,
                            .running_mean = l.bn->running_mean,
                            .running_var = l.bn->running_var,
                            .eps = l.bn->eps,
                            .momentum = l.bn->momentum,
                            .batch_stats = m->base.training && !l.bn->frozen};
        y = oct_batch_norm(cx, y, &args);
    }
    if (m->activation == OCT_ACT_RELU) y = oct_relu(cx, y);
    if (m->activation == OCT_ACT_RELU6) y = oct_relu6(cx, y);
    if (y && l.fq) oct_fake_quant_observe_values(l.fq, m->base.training, oct_f32(y), oct_numel(y));
    return y;
}

void oct_quantize_weights(const float *weight, const oct_conv_shape *s, int32_t zero_point,
                          int8_t *codes, float *scale, int32_t *offset)
{
    int64_t k = oct_conv_depth(s);
#pragma omp parallel for schedule(static)
    for (int64_t o = 0; o < s->out_c; o++) {
        scale[o] = oct_weight_scale(weight + o * k, k);
        oct_weight_codes(weight + o * k, k, scale[o], codes + o * k);
        int32_t sum = 0;
        for (int64_t i = 0; i < k; i++)
            sum += codes[o * k + i];
        offset[o] = zero_point * sum;
    }
}

void oct_running_statistics(const oct_batch_norm_module *bn, oct_channels *ch, int64_t n)
{
    for (int64_t o = 0; o < n; o++) {
        ch->mean[o] = bn->running_mean[o];
        ch->inv_std[o] = (float)(1.0 / sqrt((double)bn->running_var[o] + (double)bn->eps));
    }
}

bool oct_fold_channels(const oct_layer *l, float input_scale, float output_scale, oct_channels *ch,
                       int64_t n)
{
    for (int64_t o = 0; o < n; o++) {
        double gain = 1.0, shift = l->bias ? (double)oct_f32(&l->bias->value)[o] : 0.0;
        if (l->bn) {
            gain = (double)oct_f32(&l->bn->gamma->value)[o] * (double)ch->inv_std[o];
            shift = (double)oct_f32(&l->bn->beta->value)[o] + (shift - (double)ch->mean[o]) * gain;
        }
        if (!isfinite(gain) || !isfinite(shift) || !isfinite(ch->scale[o])) return false;
        oct_fold fold = oct_fold_channel(input_scale, ch->scale[o], gain, shift, output_scale);
        ch->effective[o] = fold.weight_scale;
        ch->multiplier[o] = fold.multiplier;
        ch->dead[o] = fold.dead;
        ch->bias[o] = fold.dead ? fold.bias : fold.bias - ch->offset[o];
    }
    return true;
}

void oct_silence_codes(const oct_channels *ch, const oct_conv_shape *s, int8_t *codes)
{
    for (int64_t o = 0; o < s->out_c; o++)
        if (ch->dead[o]) memset(codes + o * oct_conv_depth(s), 0, (size_t)oct_conv_depth(s));
}

oct_requant oct_requant_of(const oct_qat_conv *m, oct_qparams out, const oct_channels *ch)
{
    oct_requant q = {.bias = ch->bias,
                     .multiplier = ch->multiplier,
                     .lo = out.qmin - out.zero_point,
                     .hi = out.qmax - out.zero_point,
                     .zero_point = out.zero_point,
                     .relu = m->activation != OCT_ACT_NONE,
                     .six = INFINITY};
    if (m->activation == OCT_ACT_RELU6) {
        q.six = 6.0f / out.scale;
        if (q.six < (float)q.hi) q.hi = (int32_t)nearbyintf(q.six);
    }
    return q;
}

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    if (!oct_ready(cx, x, n)) return NULL;
    oct_qat_conv *m = (oct_qat_conv *)self;
    return x[0]->dtype == OCT_U8 ? oct_qat_conv_integer(cx, m, x[0]) : float_forward(cx, m, x[0]);
}

static void describe(const oct_module *self, char *text, size_t size)
{
    const oct_qat_conv *m = (const oct_qat_conv *)self;
    static const char *const activation[] = {"", " + relu", " + relu6"};
    snprintf(text, size, "%s%s%s%s", m->layer->type->name, m->batch_norm ? " + batch_norm" : "",
             activation[m->activation], m->fake_quant ? "" : ", float output");
}

const oct_module_type oct_qat_conv_type = {
    .name = "qat_conv",
    .forward = forward,
    .describe = describe,
    .leaf = true,
};

static oct_status adopt(oct_module *self, const char *name, oct_module **slot, oct_module **child)
{
    if (!*child) return OCT_OK;
    *slot = *child;
    *child = NULL;
    return oct_module_add_child(self, name, slot);
}

oct_status oct_qat_conv_create(oct_module **m, oct_module **float_layer, oct_module **batch_norm,
                               oct_activation activation, oct_fake_quant **fake_quant)
{
    oct_status status = oct_module_create(m, &oct_qat_conv_type, sizeof(oct_qat_conv));
    oct_module *fq = *fake_quant ? &(*fake_quant)->base : NULL;
    *fake_quant = NULL;
    if (status == OCT_OK) {
        oct_qat_conv *made = (oct_qat_conv *)*m;
        made->activation = activation;
        const char *name = (*float_layer)->type == &oct_linear_type ? "linear" : "conv";
        status = adopt(*m, name, &made->layer, float_layer);
        if (status == OCT_OK) status = adopt(*m, "bn", &made->batch_norm, batch_norm);
        if (status == OCT_OK) status = adopt(*m, "fake_quant", &made->fake_quant, &fq);
        if (status != OCT_OK) oct_module_destroy(m);
    }
    oct_module_destroy(float_layer);
    oct_module_destroy(batch_norm);
    oct_module_destroy(&fq);
    return status;
}

/* Makes a negative multiplier positive by negating codes and bias: (-a)(-m) = a m, bit for bit. */
static void make_positive(oct_step *step, int64_t o, int64_t k)
{
    if (!(step->multiplier[o] < 0)) return;
    step->multiplier[o] = -step->multiplier[o];
    step->weight_scale[o] = -step->weight_scale[o];
    step->bias[o] = -step->bias[o];
    for (int64_t i = 0; i < k; i++)
        step->weight[o * k + i] = (int8_t)-step->weight[o * k + i];
}

oct_status oct_qat_conv_emit(oct_qat_conv *self, oct_qparams in, int64_t in_h, int64_t in_w,
                             oct_step *step)
{
    oct_status status = OCT_OK;
    oct_layer l = oct_layer_of(self);
    oct_conv_shape s = oct_qat_conv_shape(self, in_h, in_w);
    int64_t n = s.out_c, k = oct_conv_depth(&s);
    oct_channels ch = {0};
    step->conv = s;
    step->kind = l.fq ? OCT_STEP_CONV : OCT_STEP_CONV_FLOAT;
    OCT_TRY_OUT(oct_alloc(&step->weight, (size_t)(n * k), 1));
    OCT_TRY_OUT(oct_alloc(&step->bias, (size_t)n, 4));
    OCT_TRY_OUT(oct_alloc(&step->multiplier, (size_t)n, 4));
    OCT_TRY_OUT(oct_alloc(&step->weight_scale, (size_t)n, 4));
    OCT_TRY_OUT(oct_alloc(&ch.scale, (size_t)n, 4));
    OCT_TRY_OUT(oct_alloc(&ch.mean, (size_t)n, 4));
    OCT_TRY_OUT(oct_alloc(&ch.inv_std, (size_t)n, 4));
    OCT_TRY_OUT(oct_alloc(&ch.offset, (size_t)n, 4));
    OCT_TRY_OUT(oct_alloc(&ch.dead, (size_t)n, 1));
    ch.bias = step->bias;
    ch.multiplier = step->multiplier;
    ch.effective = step->weight_scale;

    oct_quantize_weights(oct_f32(&l.weight->value), &s, in.zero_point, step->weight, ch.scale,
                         ch.offset);
    if (l.bn) oct_running_statistics(l.bn, &ch, n);
    oct_qparams out = l.fq ? oct_fake_quant_qparams(l.fq) : (oct_qparams){.scale = 1.0f};
    OCT_CHECK_OUT(oct_fold_channels(&l, in.scale, out.scale, &ch, n), OCT_NUMERIC,
                  "%s: a weight, bias or batch-norm value is not finite", step->name);
    oct_silence_codes(&ch, &s, step->weight);
    for (int64_t o = 0; o < n; o++)
        make_positive(step, o, k);
    oct_requant q = oct_requant_of(self, out, &ch);
    step->lo = l.fq ? q.lo : 0;
    step->hi = l.fq ? q.hi : 0;
out:
    oct_free(&ch.dead);
    oct_free(&ch.offset);
    oct_free(&ch.inv_std);
    oct_free(&ch.mean);
    oct_free(&ch.scale);
    return status;
}
