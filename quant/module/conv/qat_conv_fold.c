/* A batch norm moved into its layer for good.
 *
 * qat_conv_constants.c defines a channel's constants as those of a layer that has the batch norm's gain in its
 * weights and its shift as its bias. Here such a layer is made: its largest weight is the one whose scale is the
 * channel's effective scale, and a weight whose code would change by the rounding of the product with the gain goes
 * to the centre of its code.
 */
#include "quant/module/conv/conv_impl.h"

#include "core/base/mem.h"

#include <math.h>
#include <string.h>

/* Gives the layer's bias, and adds one when there is none. */
static oct_status ensure_bias(oct_module *layer, int64_t n, oct_param **bias)
{
    oct_linear_module *linear = (oct_linear_module *)layer;
    oct_conv2d_module *conv = (oct_conv2d_module *)layer;
    const bool is_linear = layer->type == &oct_linear_type;
    oct_param **slot = is_linear ? &linear->bias : &conv->bias;
    if (!*slot) OCT_TRY(oct_module_add_param(layer, "bias", OCT_SHAPE(n), false, slot));
    *(is_linear ? &linear->args.bias : &conv->args.bias) = true;
    *bias = *slot;
    return OCT_OK;
}

/* One channel of k weights, to be multiplied by the gain. */
typedef struct channel {
    float *weight;
    const int8_t *codes;
    int64_t k;
    float scale; /* of the weights now */
    double gain;
} channel;

/* Whether codes stay when weights take the gain: the largest is OCT_WEIGHT_CODES unless the scale is at its floor. */
static bool keeps_codes(const channel *c)
{
    int largest = 0;
    for (int64_t i = 0; i < c->k; i++) {
        const int magnitude = c->codes[i] < 0 ? -c->codes[i] : c->codes[i];
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest == OCT_WEIGHT_CODES &&
           fabsf(oct_folded_scale(c->scale, c->gain)) >= OCT_MIN_SCALE;
}

static float clamp_magnitude(float x, float limit)
{
    return x > limit ? limit : x < -limit ? -limit : x;
}

/* Multiplies a weight by the channel's gain, up to `limit` in magnitude. Where its code would be another with the new
 * scale, the weight becomes code * scale. */
static void multiply_weight(const channel *c, int64_t i, float scale, float limit)
{
    const int8_t code = (int8_t)(c->gain < 0 ? -c->codes[i] : c->codes[i]);
    float scaled = clamp_magnitude((float)((double)c->weight[i] * c->gain), limit);
    int8_t new_code;
    oct_weight_codes(&scaled, 1, scale, &new_code);
    if (new_code != code) scaled = clamp_magnitude((float)code * scale, limit);
    c->weight[i] = scaled;
}

/* Multiplies all weights; the largest becomes the one from which the channel's scale follows. */
static void multiply_weights_keeping_codes(const channel *c)
{
    const float limit = fabsf(oct_folded_absmax(c->scale, c->gain));
    int64_t largest = 0;
    for (int64_t i = 1; i < c->k; i++)
        if (fabsf(c->weight[i]) > fabsf(c->weight[largest])) largest = i;
    for (int64_t i = 0; i < c->k; i++)
        multiply_weight(c, i, fabsf(oct_folded_scale(c->scale, c->gain)), limit);
    c->weight[largest] = copysignf(limit, c->weight[largest]);
}

static void scale_weights(const channel *c)
{
    for (int64_t i = 0; i < c->k; i++)
        c->weight[i] = (float)((double)c->weight[i] * c->gain);
}

/* Folds the batch norm into a channel whose scale is learned, and returns the scale that it has then. No code changes: a
 * weight that would round to another one becomes code * scale. Weights beyond the largest code stay beyond it. */
static float fold_into_learned_scale(const channel *c, bool dead)
{
    const float scale = fabsf(oct_folded_scale(c->scale, c->gain));
    for (int64_t i = 0; scale >= OCT_MIN_SCALE && i < c->k; i++)
        multiply_weight(c, i, scale, INFINITY);
    if (scale >= OCT_MIN_SCALE) return scale;
    if (dead)
        memset(c->weight, 0, (size_t)c->k * sizeof *c->weight);
    else
        scale_weights(c);
    return oct_scale_at_least(scale);
}

static bool has_one_scale(const oct_layer *l)
{
    return l->wq && l->wq->by_target;
}

/* Quantizes the layer's weights and folds its running statistics, which gives codes, scales and dead channels. */
static oct_status begin_folding(const oct_qat_conv *m, oct_qparams input, oct_coded_layer *f)
{
    OCT_TRY(oct_coded_layer_begin(m, input, f));
    oct_running_statistics(&f->layer, &f->ch);
    if (oct_fold_channels(&f->layer, input, 1.0f, &f->ch, f->shape.out_c) != OCT_OK)
        return oct_fail_prefix("%s", oct_module_path(&m->q.base).text);
    return OCT_OK;
}

/* Collects weights, codes, scale and gain of channel o, and the shift that becomes its bias. */
static channel read_channel(const oct_coded_layer *f, int64_t o, double *shift)
{
    const int64_t k = oct_conv_depth(&f->shape);
    channel c = {.weight = oct_f32(&f->layer.weight->value) + o * k,
                 .codes = f->codes + o * k,
                 .k = k,
                 .scale = f->ch.scale[o]};
    oct_channel_affine(&f->layer, &f->ch, o, &c.gain, shift);
    return c;
}

/* Multiplies a channel's weights by the batch norm's gain, as its scale allows, and puts the shift in bias[o]. */
static void fold_channel(const oct_coded_layer *f, int64_t o, float *bias)
{
    double shift;
    const channel c = read_channel(f, o, &shift);
    const bool one_scale = has_one_scale(&f->layer);
    if (f->layer.wq && !one_scale)
        oct_f32(&f->layer.wq->scale->value)[o] = fold_into_learned_scale(&c, f->ch.dead[o]);
    else if (!one_scale && keeps_codes(&c))
        multiply_weights_keeping_codes(&c);
    else if (!one_scale && f->ch.dead[o])
        memset(c.weight, 0, (size_t)c.k * sizeof *c.weight);
    else
        scale_weights(&c);
    bias[o] = (float)shift;
}

/* Gives all channels the largest scale that one of them would have, where scales are learned. */
static void share_learned_scale(const oct_coded_layer *f)
{
    oct_param *scale = f->layer.wq->scale;
    float largest = 0;
    double shift;
    if (!scale) return;
    for (int64_t o = 0; o < f->shape.out_c; o++) {
        const channel c = read_channel(f, o, &shift);
        largest = fmaxf(largest, fabsf(oct_folded_scale(c.scale, c.gain)));
    }
    for (int64_t o = 0; o < f->shape.out_c; o++)
        oct_f32(&scale->value)[o] = oct_scale_at_least(largest);
}

static oct_status check_foldable(const oct_qat_conv *m)
{
    const oct_weight_fake_quant *wq = (const oct_weight_fake_quant *)m->weight_fake_quant;
    OCT_CHECK(!wq || wq->scale || wq->kind == &oct_fake_quant_affine, OCT_PREPARE,
              "%s: its batch norm cannot be folded now: the fake-quant of its weights, '%s', takes "
              "scales from the weights, which change; fold at prepare, or not at all",
              oct_module_path(&m->q.base).text, wq ? wq->kind->name : "");
    return OCT_OK;
}

oct_status oct_qat_conv_folds_exactly(const oct_qat_conv *m, oct_qparams input, bool *exactly)
{
    OCT_OWNED(oct_coded_layer_end) oct_coded_layer f = {0};
    *exactly = false;
    OCT_TRY(check_foldable(m));
    OCT_TRY(begin_folding(m, input, &f));
    *exactly = !has_one_scale(&f.layer); /* which cannot hold the gains of all channels */
    for (int64_t o = 0; *exactly && o < f.shape.out_c; o++) {
        /* The channel computes with a scale that its weights can have when they hold the gain. */
        double shift;
        const channel c = read_channel(&f, o, &shift);
        *exactly =
            f.ch.dead[o] || (f.layer.wq ? fabsf(oct_folded_scale(c.scale, c.gain)) >= OCT_MIN_SCALE
                                        : keeps_codes(&c));
    }
    return OCT_OK;
}

oct_status oct_qat_conv_drop_norm(oct_qat_conv *m)
{
    oct_weight_fake_quant *wq = (oct_weight_fake_quant *)m->weight_fake_quant;
    oct_param *bias;
    OCT_TRY(ensure_bias(m->layer, oct_qat_conv_shape(m, 1, 1).out_c, &bias));
    if (wq && !wq->by_target) wq->per_tensor = false;
    oct_module_remove_child(&m->q.base, &m->batch_norm);
    return OCT_OK;
}

oct_status oct_qat_conv_fold(oct_qat_conv *m, oct_qparams input)
{
    OCT_OWNED(oct_coded_layer_end) oct_coded_layer f = {0};
    OCT_OWNED(oct_free) float *shifts = NULL;
    oct_param *bias;
    if (!m->batch_norm) return OCT_OK;
    OCT_TRY(check_foldable(m));
    OCT_TRY(begin_folding(m, input, &f));
    OCT_TRY(oct_alloc(&shifts, (size_t)f.shape.out_c, sizeof *shifts));
    OCT_TRY(ensure_bias(m->layer, f.shape.out_c, &bias)); /* nothing fails after this */
    for (int64_t o = 0; o < f.shape.out_c; o++)
        fold_channel(&f, o, shifts);
    if (has_one_scale(&f.layer)) share_learned_scale(&f);
    OCT_TRY(oct_qat_conv_drop_norm(m));
    memcpy(oct_f32(&bias->value), shifts, (size_t)f.shape.out_c * sizeof *shifts);
    return OCT_OK;
}

/* The gain of the running statistics moves into the weights, the shift into the bias. */
oct_status oct_fold_float(oct_module *layer, const oct_batch_norm_module *bn)
{
    oct_param *bias, *weight = oct_layer_weight(layer);
    const int64_t n = bn->args.channels, k = oct_numel(&weight->value) / n;
    OCT_TRY(ensure_bias(layer, n, &bias));
    for (int64_t o = 0; o < n; o++) {
        const double sigma = sqrt((double)bn->running_var[o] + (double)bn->args.eps);
        const double gain = (double)oct_f32(&bn->gamma->value)[o] / sigma;
        float *w = oct_f32(&weight->value) + o * k, *b = oct_f32(&bias->value) + o;
        for (int64_t i = 0; i < k; i++)
            w[i] = (float)((double)w[i] * gain);
        *b = (float)((double)oct_f32(&bn->beta->value)[o] +
                     ((double)*b - (double)bn->running_mean[o]) * gain);
    }
    return OCT_OK;
}
