/* conv2d, conv_transpose2d or linear (+ batch norm) (+ add) (+ relu, relu6 or clip), and a batch norm alone, as the
 * deployed integer arithmetic.
 *
 * Weight codes are those of the raw weights: batch norm's factor moves into the scale (qat_conv_constants.c), so
 * nothing is quantized twice and live batch norm needs no refolding. A second addend is added before anything is
 * rounded (epilogue.h).
 */
#include "quant/module/conv/conv_impl.h"

#include "core/base/mem.h"
#include "quant/module/emit.h"
#include "quant/module/quantized_impl.h"

#include <math.h>
#include <stdio.h>

/* Sets the distances that a transposed layer puts between the values of its input; 1: none. */
static void input_steps(const oct_qat_conv *m, int *step_h, int *step_w)
{
    *step_h = *step_w = 1;
    if (!oct_qat_is_transposed(m)) return;
    const oct_conv_geometry *g = &((const oct_conv2d_module *)m->layer)->args.geometry;
    *step_h = g->stride_h;
    *step_w = g->stride_w;
}

/* " + relu", for descriptions. */
static const char *activation_text(oct_activation activation)
{
    static const char *const words[] = {[OCT_ACT_NONE] = "",
                                        [OCT_ACT_RELU] = " + relu",
                                        [OCT_ACT_RELU6] = " + relu6",
                                        [OCT_ACT_CLIP] = " + clip"};
    return words[activation];
}

/* Computes the float model, with its output observed or rounded. */
static oct_tensor *float_forward(oct_context *cx, const oct_qat_conv *m, oct_tensor *x,
                                 oct_tensor *addend)
{
    oct_layer l = oct_qat_conv_layer(m);
    oct_tensor *y = x;
    if (oct_qat_is_linear(m))
        y = oct_linear(cx, x, l.weight, l.bias);
    else if (oct_qat_is_transposed(m))
        y = oct_conv_transpose2d(cx, x, l.weight, l.bias,
                                 ((oct_conv2d_module *)m->layer)->args.geometry);
    else if (m->layer)
        y = oct_conv2d(cx, x, l.weight, l.bias, ((oct_conv2d_module *)m->layer)->args.geometry);
    if (l.bn) {
        const oct_bn_args args = oct_batch_norm_call(l.bn, m->q.base.training);
        y = oct_batch_norm(cx, y, &args);
    }
    if (m->add) y = oct_add(cx, y, addend);
    if (l.activation == OCT_ACT_CLIP) y = oct_clip(cx, y, l.clip.lo, l.clip.hi);
    if (l.activation == OCT_ACT_RELU) y = oct_relu(cx, y);
    if (l.activation == OCT_ACT_RELU6) y = oct_relu6(cx, y);
    return oct_fake_quant_float(cx, l.fq, m->q.base.training, y);
}

static bool input_fits(oct_context *cx, const oct_qat_conv *m, const oct_tensor *x,
                       oct_conv_shape *s)
{
    const int n = x->shape.ndim;
    bool fits = (n == 4 || (oct_qat_is_linear(m) && (n == 2 || n == 3))) &&
                oct_dim(x, 0) == oct_leaves_local_samples(&cx->leaves);
    if (fits) {
        *s = oct_qat_conv_shape(m, n == 4 ? oct_dim(x, 1) : 1, n >= 3 ? oct_dim(x, n - 2) : 1);
        fits = oct_dim(x, n - 1) == s->in_c && s->out_h >= 1 && s->out_w >= 1;
    }
    if (!fits)
        oct_context_fail(cx, OCT_PREPARE, "input %s does not fit the layer",
                         oct_text_shape(&x->shape).text);
    return fits;
}

static bool addend_fits(oct_context *cx, const oct_qat_call *call)
{
    const oct_shape *shape = &call->addend->shape;
    if (!oct_rounding_of(call->layer.requantizer)->adds)
        oct_context_fail(cx, OCT_PREPARE,
                         "only a target that requantizes in float can add a second addend");
    else if (!oct_shape_equal(shape, &call->out))
        oct_context_fail(cx, OCT_PREPARE, "its second addend %s differs in shape from its sum %s",
                         oct_text_shape(shape).text, oct_text_shape(&call->out).text);
    return cx->status == OCT_OK;
}

/* Computes the deployed integer arithmetic. */
static oct_tensor *integer_forward(oct_context *cx, const oct_qat_conv *m, oct_tensor *x,
                                   oct_tensor *addend)
{
    oct_qat_call call = {.op = "qat_conv", .layer = oct_qat_conv_layer(m), .addend = addend};
    const oct_conv_shape *s = &call.shape;
    if (!input_fits(cx, m, x, &call.shape)) return NULL;
    if (call.layer.fq && !oct_fake_quant_quantizes(call.layer.fq))
        return oct_context_fail(cx, OCT_PREPARE, "codes came in while its own fake-quant is off");
    call.out = x->shape;
    call.out.dim[x->shape.ndim - 1] = s->out_c;
    if (!oct_qat_is_linear(m)) call.out = OCT_SHAPE(oct_dim(x, 0), s->out_h, s->out_w, s->out_c);
    if (addend && !addend_fits(cx, &call)) return NULL;
    int step_h, step_w;
    input_steps(m, &step_h, &step_w);
    call.x = step_h > 1 || step_w > 1 ? oct_dilate(cx, x, step_h, step_w) : x;
    if (call.x && m->moments) oct_context_adopt(cx, oct_moments_add(m->moments, s, call.x));
    return call.x ? oct_qat_conv_forward(cx, &call) : NULL;
}

/* Computes a batch norm on its own on codes, in integers: a factor and a bias for each channel, and no product
 * (oct_qconv_plan_affine). */
static oct_tensor *norm_on_codes(oct_context *cx, const oct_qat_conv *m, oct_tensor *x)
{
    oct_qat_call call = {
        .op = "qat_batch_norm", .layer = oct_qat_conv_layer(m), .out = x->shape, .x = x};
    const int64_t n = call.layer.bn->args.channels;
    if ((x->shape.ndim != 2 && x->shape.ndim != 4) || oct_dim(x, x->shape.ndim - 1) != n ||
        oct_dim(x, 0) != oct_leaves_local_samples(&cx->leaves))
        return oct_context_fail(cx, OCT_PREPARE,
                                "input %s does not have the batch's samples and its %lld channels",
                                oct_text_shape(&x->shape).text, (long long)n);
    if (oct_requantizer_shifts(m->q.target->requantizer))
        return oct_context_fail(cx, OCT_PREPARE,
                                "target %s shifts and has no place for a batch norm; fold it",
                                m->q.target->name);
    const bool plane = x->shape.ndim == 4;
    call.shape = oct_qat_conv_shape(m, plane ? oct_dim(x, 1) : 1, plane ? oct_dim(x, 2) : 1);
    return oct_qat_conv_forward(cx, &call);
}

/* Whether the first input is what the layers fused with this add computed. Names do not say which operand that is, so
 * with the other one first a forward would silently compute something else. A prepared graph knows the order. */
static bool in_order(oct_context *cx, const oct_qat_conv *m, oct_tensor *const *x, int n)
{
    if (!m->operand || cx->interceptor || n == 0 || !x[0] || x[0]->data == m->operand->passed)
        return true;
    oct_context_fail(cx, OCT_PREPARE,
                     "its first input does not come from the layers that were fused with this add; "
                     "swap the two inputs of the add in the forward, or leave fusing to prepare "
                     "with method jit");
    return false;
}

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    oct_qat_conv *m = (oct_qat_conv *)self;
    if (!in_order(cx, m, x, n)) return NULL;
    const int wanted = m->add ? 2 : 1;
    const oct_domain wiring = m->q.fake_quant || !m->layer
                                  ? oct_quantized_domain(cx, &m->q, x, n, wanted)
                                  : oct_inputs_domain(cx, x, n, wanted);
    if (wiring == OCT_DOMAIN_INVALID) return NULL;
    oct_tensor *addend = m->add ? x[1] : NULL;
    if (wiring == OCT_DOMAIN_FLOAT) return float_forward(cx, m, x[0], addend);
    return m->layer ? integer_forward(cx, m, x[0], addend) : norm_on_codes(cx, m, x[0]);
}

static void describe(const oct_module *self, char *text, size_t size)
{
    const oct_qat_conv *m = (const oct_qat_conv *)self;
    snprintf(text, size, "%s%s%s%s%s%s", m->layer->type->name,
             oct_qat_conv_owner(m)->batch_norm ? " + batch_norm" : "", m->add ? " + add" : "",
             activation_text(m->q.activation), m->lender ? ", shared weights" : "",
             m->q.fake_quant ? "" : ", float output");
}

/* Writes biases, multipliers and scales of the weights of all output channels. */
static oct_status write_channels(oct_step *step, const oct_channels *ch)
{
    const int64_t n = step->conv.shape.out_c, k = oct_conv_depth(&step->conv.shape);
    OCT_TRY(oct_alloc(&step->conv.bias, (size_t)n, sizeof *step->conv.bias));
    OCT_TRY(oct_alloc(&step->conv.multiplier, (size_t)n, sizeof *step->conv.multiplier));
    OCT_TRY(oct_alloc(&step->conv.weight_scale, (size_t)n, sizeof *step->conv.weight_scale));
    for (int64_t o = 0; o < n; o++) {
        /* Multipliers become positive by negating codes and bias: (-a)(-m) = a m, bit for bit. */
        const bool negate = ch->multiplier[o] < 0;
        int8_t *weight = step->conv.weight + o * k;
        step->conv.bias[o] = negate ? -ch->bias[o] : ch->bias[o];
        step->conv.multiplier[o] = negate ? -ch->multiplier[o] : ch->multiplier[o];
        step->conv.weight_scale[o] = negate ? -ch->effective[o] : ch->effective[o];
        for (int64_t i = 0; negate && i < k; i++)
            weight[i] = (int8_t)-weight[i];
    }
    return OCT_OK;
}

/* Fills in a step whose conv.shape is set: codes, biases, multipliers, bounds. addend: the second input, or NULL. */
static oct_status fill_step(oct_step *step, const oct_layer *l, oct_qparams in,
                            const oct_value *addend)
{
    const oct_conv_shape *s = &step->conv.shape;
    const oct_qparams out = l->fq ? oct_fake_quant_qparams(l->fq) : (oct_qparams){.scale = 1.0f};
    OCT_OWNED(oct_channels_free) oct_channels ch = {0};
    OCT_TRY(oct_channels_alloc(&ch, NULL, s->out_c, 1));
    OCT_TRY(oct_alloc(&step->conv.weight, (size_t)(s->out_c * oct_conv_depth(s)), 1));
    oct_quantize_weights(l, s, in, step->conv.weight, &ch);
    if (l->bn) oct_running_statistics(l, &ch);
    if (oct_fold_channels(l, in, out.scale, &ch, s->out_c) != OCT_OK)
        return oct_fail_prefix("%s", step->name);
    oct_clear_dead_codes(&ch, s, step->conv.weight);
    const oct_epilogue f = oct_epilogue_of(l, in, l->fq ? &out : NULL, NULL, &ch);
    /* lo and hi of a float output say which activation there is: 0 and 0 none, 0 and INT32_MAX relu, 0 and 6 relu6. */
    if (l->fq) {
        step->conv.lo = f.q.lo;
        step->conv.hi = f.q.hi;
    } else if (f.q.relu) {
        step->conv.hi = isfinite(f.q.six) ? 6 : INT32_MAX;
    }
    if (addend) step->conv.addend_multiplier = addend->q.scale / out.scale;
    return write_channels(step, &ch);
}

static oct_status emit(oct_module *self, struct oct_emitter *e)
{
    const oct_qat_conv *m = (const oct_qat_conv *)self;
    const oct_fake_quant *fq = (const oct_fake_quant *)m->q.fake_quant;
    oct_value in = *oct_emit_input(e, 0), addend;
    if (m->add) addend = *oct_emit_input(e, 1);
    oct_step *step;
    OCT_TRY(oct_emit_step(e,
                          !m->layer ? OCT_STEP_AFFINE
                          : fq      ? OCT_STEP_CONV
                                    : OCT_STEP_CONV_FLOAT,
                          &step));
    OCT_CHECK(in.dtype != OCT_F32 && (!m->add || addend.dtype != OCT_F32), OCT_PREPARE,
              "%s: its input is float where codes should come", step->name);
    OCT_CHECK(fq || m->q.activation != OCT_ACT_CLIP, OCT_PREPARE,
              "%s: is fused with a clip and hands over float outputs, which no program can; do not "
              "fuse them",
              step->name);
    step->conv.shape = oct_qat_conv_shape(m, in.h, in.w);
    input_steps(m, &step->conv.input_step_h, &step->conv.input_step_w);
    const oct_layer l = oct_qat_conv_layer(m);
    OCT_TRY(fill_step(step, &l, in.q, m->add ? &addend : NULL));
    if (!fq) return oct_emit_output(e, step, OCT_F32, (oct_qparams){0});
    const oct_qparams q = oct_fake_quant_qparams(fq);
    return oct_emit_output(e, step, oct_codes_dtype(q), q);
}

const oct_module_type oct_qat_conv_type = {
    .name = "qat_conv",
    .forward = forward,
    .describe = describe,
    .atomic = true,
    .emit = emit,
    .quantized = true,
};

static void describe_norm(const oct_module *self, char *text, size_t size)
{
    snprintf(text, size, "batch_norm%s",
             activation_text(((const oct_quantized *)self)->activation));
}

const oct_module_type oct_qat_batch_norm_type = {
    .name = "qat_batch_norm",
    .forward = forward,
    .describe = describe_norm,
    .atomic = true,
    .emit = emit,
    .quantized = true,
};

static oct_status adopt_child(oct_module *self, const char *name, oct_module **slot,
                              oct_module **child)
{
    if (!*child) return OCT_OK;
    *slot = *child;
    *child = NULL;
    return oct_module_add_child(self, name, slot);
}

/* Makes a module of the type, which takes over the layer and the batch norm; each may be NULL. */
static oct_status create(oct_module **m, const oct_module_type *type, oct_module **float_layer,
                         oct_module **batch_norm, bool add, oct_activation activation)
{
    oct_status status = oct_module_alloc(m, type, sizeof(oct_qat_conv));
    if (status == OCT_OK) {
        oct_qat_conv *made = (oct_qat_conv *)*m;
        made->add = add;
        made->q.activation = activation;
        const char *name =
            *float_layer && (*float_layer)->type == &oct_linear_type ? "linear" : "conv";
        status = adopt_child(*m, name, &made->layer, float_layer);
        if (status == OCT_OK) status = adopt_child(*m, "bn", &made->batch_norm, batch_norm);
        status = oct_module_made(m, status);
    }
    oct_module_destroy(float_layer);
    oct_module_destroy(batch_norm);
    return status;
}

oct_status oct_qat_conv_create(oct_module **m, oct_module **float_layer, oct_module **batch_norm,
                               bool add, oct_activation activation)
{
    return create(m, &oct_qat_conv_type, float_layer, batch_norm, add, activation);
}

oct_status oct_qat_batch_norm_create(oct_module **m, oct_module **batch_norm,
                                     oct_activation activation)
{
    oct_module *none = NULL;
    return create(m, &oct_qat_batch_norm_type, &none, batch_norm, false, activation);
}

bool oct_qat_conv_is_tied(const oct_qat_conv *m)
{
    return oct_module_is_tied(m->layer) || (m->batch_norm && oct_module_is_tied(m->batch_norm));
}

oct_status oct_qat_conv_quantize_weights(oct_qat_conv *m, const oct_fake_quant_kind *kind,
                                         const oct_target *target)
{
    oct_weight_fake_quant *wq;
    const bool by_target = oct_list_has(target->per_tensor, m->layer->type->name);
    const bool shift = oct_requantizer_shifts(target->requantizer);
    OCT_ASSERT(!m->borrows && !m->weight_fake_quant);
    if (!kind) kind = &oct_fake_quant_affine;
    if (kind == &oct_fake_quant_affine && !by_target) return OCT_OK;
    OCT_TRY(oct_weight_fake_quant_create(&wq, kind, oct_qat_conv_layer(m).weight,
                                         kind->per_tensor || by_target, shift));
    wq->by_target = by_target;
    m->weight_fake_quant = &wq->base;
    return oct_module_add_child(&m->q.base, "weight_fake_quant", &m->weight_fake_quant);
}

void oct_qat_conv_weight_scales(const oct_qat_conv *m, float *scale)
{
    const oct_layer l = oct_qat_conv_layer(m);
    const oct_tensor *weight = &l.weight->value;
    const int64_t n = oct_dim(weight, 0), k = oct_numel(weight) / n;
    if (l.wq) oct_weight_fake_quant_scales(l.wq, scale);
    for (int64_t o = 0; !l.wq && o < n; o++) {
        scale[o] = oct_weight_scale(oct_f32(weight) + o * k, k);
        if (oct_requantizer_shifts(l.requantizer)) scale[o] = oct_pow2_ceil(scale[o]);
    }
}

oct_status oct_qat_conv_create_shared(oct_module **m, const oct_qat_conv *other, bool add,
                                      oct_activation activation)
{
    OCT_TRY(oct_module_alloc(m, &oct_qat_conv_type, sizeof(oct_qat_conv)));
    oct_qat_conv *made = (oct_qat_conv *)*m;
    made->borrows = true;
    made->lender = oct_qat_conv_owner(other);
    made->layer = made->lender->layer;
    made->q.target = made->lender->q.target;
    made->add = add;
    made->q.activation = activation;
    return OCT_OK;
}
