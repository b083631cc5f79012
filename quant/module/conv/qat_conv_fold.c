/* A batch norm moved into its layer for good.
 *
 * fold.h defines a channel's constants as those of a layer that has the batch norm's gain in its
 * weights and its shift as its bias. Here such a layer is made: its largest weight is the one whose
 * scale is the channel's effective scale, and a weight whose code would change by the rounding of the
 * product with the gain goes to the centre of its code.
 */
#include "quant/module/conv/conv_impl.h"

#include "core/base/mem.h"
#include "quant/module/conv/fold.h"

#include <math.h>
#include <string.h>

/* Returns the layer's bias, and adds one when there is none. */
static oct_status want_bias(oct_module *layer, int64_t n, oct_param **bias)
{
    oct_param **own = layer->type == &oct_linear_type ? &((oct_linear_module *)layer)->bias
                                                      : &((oct_conv2d_module *)layer)->bias;
    if (!*own) OCT_TRY(oct_module_add_param(layer, "bias", OCT_SHAPE(n), false, own));
    *bias = *own;
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

/* Tells whether codes stay: the largest is 127 unless the scale is at its floor. */
static bool keeps_codes(const channel *c)
{
    int largest = 0;
    for (int64_t i = 0; i < c->k; i++) {
        const int magnitude = c->codes[i] < 0 ? -c->codes[i] : c->codes[i];
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest == 127 && fabsf(oct_folded_scale(c->scale, c->gain)) >= OCT_MIN_SCALE;
}

static float within(float x, float limit)
{
    return x > limit ? limit : x < -limit ? -limit : x;
}

static void move_gain(const channel *c)
{
    const float limit = fabsf(oct_folded_absmax(c->scale, c->gain));
    const float scale = fabsf(oct_folded_scale(c->scale, c->gain));
    int64_t largest = 0;
    for (int64_t i = 1; i < c->k; i++)
        if (fabsf(c->weight[i]) > fabsf(c->weight[largest])) largest = i;
    for (int64_t i = 0; i < c->k; i++) {
        const int8_t code = (int8_t)(c->gain < 0 ? -c->codes[i] : c->codes[i]);
        float moved = within((float)((double)c->weight[i] * c->gain), limit);
        int8_t became;
        oct_weight_codes(&moved, 1, scale, &became);
        if (became != code) moved = within((float)code * scale, limit);
        c->weight[i] = moved;
    }
    c->weight[largest] = copysignf(limit, c->weight[largest]);
}

static void scale_weights(const channel *c)
{
    for (int64_t i = 0; i < c->k; i++)
        c->weight[i] = (float)((double)c->weight[i] * c->gain);
}

/* Moves the gain where the scale is learned. The largest code may be any; what is beyond the codes stays
 * there. */
static void move_learned(const channel *c, float scale)
{
    for (int64_t i = 0; i < c->k; i++) {
        const int8_t code = (int8_t)(c->gain < 0 ? -c->codes[i] : c->codes[i]);
        int8_t became;
        c->weight[i] = (float)((double)c->weight[i] * c->gain);
        oct_weight_codes(&c->weight[i], 1, scale, &became);
        if (became != code) c->weight[i] = (float)code * scale;
    }
}

/* Folds a channel of a learned scale and returns what the scale becomes. */
static float fold_learned(const channel *c, bool dead)
{
    const float scale = fabsf(oct_folded_scale(c->scale, c->gain));
    if (scale >= OCT_MIN_SCALE)
        move_learned(c, scale);
    else if (dead)
        memset(c->weight, 0, (size_t)c->k * sizeof *c->weight);
    else
        scale_weights(c);
    return oct_scale_at_least(scale);
}

static oct_status fold_layer(const oct_layer *l, const oct_conv_shape *s, oct_qparams input,
                             const int8_t *codes, oct_channels *ch, float *bias)
{
    const int64_t k = oct_conv_depth(s);
    oct_running_statistics(l, ch);
    OCT_TRY(oct_fold_channels(l, input, 1.0f, ch, s->out_c));
    for (int64_t o = 0; o < s->out_c; o++) {
        channel c = {.weight = oct_f32(&l->weight->value) + o * k,
                     .codes = codes + o * k,
                     .k = k,
                     .scale = ch->scale[o]};
        double shift;
        oct_channel_affine(l, ch, o, &c.gain, &shift);
        if (l->wq)
            oct_f32(&l->wq->scale->value)[o] = fold_learned(&c, ch->dead[o]);
        else if (keeps_codes(&c))
            move_gain(&c);
        else if (ch->dead[o])
            memset(c.weight, 0, (size_t)k * sizeof *c.weight);
        else
            scale_weights(&c);
        bias[o] = (float)shift;
    }
    return OCT_OK;
}

static oct_status check_foldable(const oct_qat_conv *m)
{
    const oct_weight_fake_quant *wq = (const oct_weight_fake_quant *)m->weight_fake_quant;
    char path[256];
    OCT_CHECK(!wq || wq->scale, OCT_PREPARE,
              "%s: its batch norm cannot be folded now: the fake-quant of its weights, '%s', takes "
              "scales from the weights, which change; fold at prepare, or not at all",
              oct_module_path(&m->q.base, path), wq ? wq->kind->name : "");
    return OCT_OK;
}

oct_status oct_qat_conv_fold(oct_qat_conv *m, oct_qparams input)
{
    oct_status status;
    oct_channels ch = {0};
    int8_t *codes = NULL;
    float *shifts = NULL;
    if (!m->batch_norm) return OCT_OK;
    OCT_TRY(check_foldable(m));
    const oct_layer l = oct_qat_conv_layer(m);
    const oct_conv_shape s = oct_qat_conv_shape(m, 1, 1);
    oct_param *bias;
    OCT_TRY_OUT(oct_channels_alloc(&ch, s.out_c));
    OCT_TRY_OUT(oct_alloc(&codes, (size_t)(s.out_c * oct_conv_depth(&s)), 1));
    OCT_TRY_OUT(oct_alloc(&shifts, (size_t)s.out_c, sizeof *shifts));
    oct_quantize_weights(&l, &s, input, codes, &ch);
    status = fold_layer(&l, &s, input, codes, &ch, shifts);
    if (status != OCT_OK) {
        char path[256];
        status = oct_fail_prefix("%s", oct_module_path(&m->q.base, path));
        goto out;
    }
    if (l.wq) ((oct_weight_fake_quant *)m->weight_fake_quant)->per_tensor = false;
    OCT_TRY_OUT(want_bias(m->layer, s.out_c, &bias));
    memcpy(oct_f32(&bias->value), shifts, (size_t)s.out_c * sizeof *shifts);
    oct_module_remove_child(&m->q.base, &m->batch_norm);
out:
    oct_free(&shifts);
    oct_free(&codes);
    oct_channels_free(&ch);
    return status;
}

oct_status oct_fold_float(oct_module *layer, const oct_batch_norm_module *bn)
{
    oct_param *bias, *weight = layer->type == &oct_linear_type
                                   ? ((oct_linear_module *)layer)->weight
                                   : ((oct_conv2d_module *)layer)->weight;
    const int64_t n = bn->channels, k = oct_numel(&weight->value) / n;
    OCT_TRY(want_bias(layer, n, &bias));
    for (int64_t o = 0; o < n; o++) {
        const double sigma = sqrt((double)bn->running_var[o] + (double)bn->eps);
        const double gain = (double)oct_f32(&bn->gamma->value)[o] / sigma;
        float *w = oct_f32(&weight->value) + o * k, *b = oct_f32(&bias->value) + o;
        for (int64_t i = 0; i < k; i++)
            w[i] = (float)((double)w[i] * gain);
        *b = (float)((double)oct_f32(&bn->beta->value)[o] +
                     ((double)*b - (double)bn->running_mean[o]) * gain);
    }
    return OCT_OK;
}
