/* Fake-quants of weights. */
#include "quant/module/weight_fake_quant.h"

#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "quant/module/mask.h"
#include "quant/rounding/bits.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const oct_qparams codes = {.scale = 1.0f, .zero_point = 0, .qmin = -127, .qmax = 127};

static int64_t channels_of(const oct_tensor *weight)
{
    return oct_dim(weight, 0);
}

/* Writes the scales that the kind gives for the weights as they are now. */
static void follow_weights(const oct_weight_fake_quant *wq, float *scale)
{
    const oct_tensor *weight = &wq->weight->value;
    const int64_t channels = channels_of(weight), n = wq->per_tensor ? 1 : channels;
    const int64_t k = oct_numel(weight) / n;
#pragma omp parallel for schedule(static)
    for (int64_t o = 0; o < n; o++)
        scale[o] = oct_scale_at_least(wq->kind->weight_scale(oct_f32(weight) + o * k, k));
    for (int64_t o = n; o < channels; o++)
        scale[o] = scale[0];
}

void oct_weight_fake_quant_scales(const oct_weight_fake_quant *wq, float *scale)
{
    const int64_t n = channels_of(&wq->weight->value);
    if (wq->scale)
        memcpy(scale, wq->scale->value.data, (size_t)n * sizeof *scale);
    else
        follow_weights(wq, scale);
    for (int64_t o = 0; wq->shift && o < n; o++)
        scale[o] = oct_pow2_ceil(scale[o]);
}

static void describe(const oct_module *self, char *text, size_t size)
{
    const oct_weight_fake_quant *wq = (const oct_weight_fake_quant *)self;
    snprintf(text, size, "kind=%s, %s%s", wq->kind->name, wq->scale ? "learned, " : "",
             wq->per_tensor ? "per_tensor" : "per_channel");
}

const oct_module_type oct_weight_fake_quant_type = {
    .name = "weight_fake_quant",
    .describe = describe,
    .atomic = true,
};

/* Judges a kind's own rule by the weights that prepare finds: a scale is a number, and leaves codes that differ. */
static oct_status check_rule(const oct_weight_fake_quant *wq)
{
    const oct_tensor *weight = &wq->weight->value;
    const int64_t n = wq->per_tensor ? 1 : channels_of(weight), k = oct_numel(weight) / n;
    for (int64_t o = 0; o < n; o++) {
        const float most = 127 * oct_weight_scale(oct_f32(weight) + o * k, k);
        const float scale = wq->kind->weight_scale(oct_f32(weight) + o * k, k);
        if (!isfinite(most)) continue; /* not the rule's fault */
        OCT_CHECK(isfinite(scale) && (scale < 2 * most || scale <= OCT_MIN_SCALE), OCT_PREPARE,
                  "the fake-quant '%s' gave its weights, which reach %g, the scale %g, %s",
                  wq->kind->name, (double)most, (double)scale,
                  isfinite(scale) ? "so each of them becomes 0; codes reach 127, so a scale is "
                                    "about the largest weight / 127"
                                  : "which is no number");
    }
    return OCT_OK;
}

static oct_status add_scale(oct_weight_fake_quant *wq)
{
    const oct_shape shape = OCT_SHAPE(channels_of(&wq->weight->value));
    OCT_TRY(oct_module_add_param(&wq->base, "scale", shape, false, &wq->scale));
    follow_weights(wq, oct_f32(&wq->scale->value));
    wq->scale->frozen = true;
    oct_module_limit_state(&wq->base, "scale", oct_scale_range);
    return OCT_OK;
}

oct_status oct_weight_fake_quant_create(oct_weight_fake_quant **wq, const oct_fake_quant_kind *kind,
                                        oct_param *weight, bool per_tensor, bool shift)
{
    oct_module *module = NULL;
    OCT_TRY(oct_module_create(&module, &oct_weight_fake_quant_type, sizeof(oct_weight_fake_quant)));
    oct_weight_fake_quant *made = (oct_weight_fake_quant *)module;
    made->kind = kind;
    made->weight = weight;
    made->per_tensor = per_tensor;
    made->shift = shift;
    oct_status status = check_rule(made);
    if (status == OCT_OK && kind->slope) status = add_scale(made);
    OCT_TRY(oct_module_made(&module, status));
    *wq = made;
    return OCT_OK;
}

/* Clips the gradient of some weights that share a scale, from total to grad, which may be the same; returns what they
 * add to that of the scale. */
static double clip_block(const oct_weight_fake_quant *wq, float scale, const float *weight,
                         int64_t n, const float *total, float *grad)
{
    float v[OCT_FLAG_BLOCK], slope[OCT_FLAG_BLOCK];
    uint8_t flags[OCT_FLAG_BLOCK], mask[OCT_FLAG_BLOCK / 8];
    const float one_over = 1.0f / scale;
    oct_qparams q = codes;
    double sum = 0;
    q.scale = scale;
    if (total != grad) memcpy(grad, total, (size_t)n * sizeof *grad);
    for (int64_t i = 0; i < n; i++) {
        v[i] = weight[i] * one_over;
        flags[i] = fabsf(rintf(v[i])) <= (float)q.qmax;
    }
    if (wq->scale) {
        wq->kind->slope(n, v, q, slope);
        for (int64_t i = 0; i < n; i++)
            sum += (double)grad[i] * (double)slope[i];
    }
    oct_bits_pack(flags, n, mask);
    if (wq->kind->backward)
        wq->kind->backward(n, mask, grad);
    else
        oct_mask_apply(mask, n, grad);
    return sum;
}

static double clip_channel(const oct_weight_fake_quant *wq, float scale, int64_t channel)
{
    const oct_param *weight = wq->weight;
    const int64_t k = oct_numel(&weight->value) / channels_of(&weight->value), first = channel * k;
    double sum = 0;
    for (int64_t i = first; i < first + k; i += OCT_FLAG_BLOCK)
        sum += clip_block(wq, scale, oct_f32(&weight->value) + i,
                          oct_min_i64(first + k - i, OCT_FLAG_BLOCK), weight->grad + i,
                          weight->own_grad + i);
    return sum;
}

/* Turns the sums of the channels into gradients; factors count the weights that share a scale. */
static void give_gradients(const oct_weight_fake_quant *wq, const double *sum)
{
    const oct_tensor *weight = &wq->weight->value;
    const int64_t channels = channels_of(weight), n = wq->per_tensor ? 1 : channels;
    const int64_t together = oct_numel(weight) / n;
    const float factor = wq->kind->factor ? wq->kind->factor(together, codes) : 1.0f;
    float *grad = oct_param_own_grad(wq->scale);
    for (int64_t i = 0; i < n; i++) {
        const int64_t begin = i * channels / n, end = (i + 1) * channels / n;
        double total = 0;
        for (int64_t o = begin; o < end; o++)
            total += sum[o];
        for (int64_t o = begin; o < end; o++)
            grad[o] = (float)(total * (double)factor);
    }
}

oct_status oct_weight_fake_quant_backward(const oct_weight_fake_quant *wq)
{
    const int64_t n = channels_of(&wq->weight->value);
    double *sum = NULL;
    float *scale = NULL;
    oct_status status = OCT_OK;
    if (!wq->quantizes) return OCT_OK;
    OCT_TRY_OUT(oct_alloc(&sum, (size_t)n, sizeof *sum));
    OCT_TRY_OUT(oct_alloc(&scale, (size_t)n, sizeof *scale));
    oct_weight_fake_quant_scales(wq, scale);
#pragma omp parallel for schedule(static)
    for (int64_t o = 0; o < n; o++)
        sum[o] = clip_channel(wq, scale[o], o);
    wq->weight->grad = wq->weight->own_grad;
    if (wq->scale && !wq->scale->frozen) give_gradients(wq, sum);
out:
    oct_free(&scale);
    oct_free(&sum);
    return status;
}

oct_status oct_weight_fake_quant_update(const oct_weight_fake_quant *wq)
{
    char path[256];
    if (!wq->scale || wq->scale->frozen) return OCT_OK;
    float *scale = oct_f32(&wq->scale->value);
    for (int64_t i = 0; i < oct_numel(&wq->scale->value); i++) {
        OCT_CHECK(isfinite(scale[i]), OCT_NUMERIC, "%s: a learned scale is not finite",
                  oct_module_path(&wq->base, path));
        scale[i] = oct_scale_at_least(scale[i]);
    }
    return OCT_OK;
}
