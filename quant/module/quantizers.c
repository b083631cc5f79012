/* All fake-quants of a model: those of weights, and what a step exchanges and updates. */
#include "quant/module/fake_quant.h"

#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "quant/rounding/bits.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const oct_qparams weight_codes = {
    .scale = 1.0f, .zero_point = 0, .qmin = -OCT_WEIGHT_CODES, .qmax = OCT_WEIGHT_CODES};

static int64_t channels_of(const oct_tensor *weight)
{
    return oct_dim(weight, 0);
}

/* Writes the scales that the kind gives for the weights as they are now. */
static void compute_weight_scales(const oct_weight_fake_quant *wq, float *scale)
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
        compute_weight_scales(wq, scale);
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
static oct_status check_weight_rule(const oct_weight_fake_quant *wq)
{
    const oct_tensor *weight = &wq->weight->value;
    const int64_t n = wq->per_tensor ? 1 : channels_of(weight), k = oct_numel(weight) / n;
    for (int64_t o = 0; o < n; o++) {
        const float most = OCT_WEIGHT_CODES * oct_weight_scale(oct_f32(weight) + o * k, k);
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

oct_status oct_weight_fake_quant_create(oct_weight_fake_quant **wq, const oct_fake_quant_kind *kind,
                                        oct_param *weight, bool per_tensor, bool shift)
{
    oct_module *module = NULL;
    OCT_TRY(oct_module_alloc(&module, &oct_weight_fake_quant_type, sizeof(oct_weight_fake_quant)));
    oct_weight_fake_quant *made = (oct_weight_fake_quant *)module;
    made->kind = kind;
    made->weight = weight;
    made->per_tensor = per_tensor;
    made->shift = shift;
    oct_status status = check_weight_rule(made);
    if (status == OCT_OK && kind->slope)
        status = oct_module_add_param(module, "scale", OCT_SHAPE(channels_of(&weight->value)),
                                      false, &made->scale);
    OCT_TRY(oct_module_made(&module, status));
    if (made->scale) {
        compute_weight_scales(made, oct_f32(&made->scale->value));
        made->scale->frozen = true;
        oct_module_limit_state(module, "scale", oct_scale_range);
    }
    *wq = made;
    return OCT_OK;
}

/* Clips the gradient of some weights that share a scale, from total to grad, which may be the same; returns what they
 * add to that of the scale. */
static double clip_weight_grads(const oct_weight_fake_quant *wq, float scale, const float *weight,
                                int64_t n, const float *total, float *grad)
{
    float v[OCT_FLAG_BLOCK], slope[OCT_FLAG_BLOCK];
    uint8_t flags[OCT_FLAG_BLOCK], mask[OCT_FLAG_BLOCK / 8];
    const float one_over = 1.0f / scale;
    oct_qparams q = weight_codes;
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

/* Clips the gradient of the weights of a channel, and returns what they add to that of its scale. */
static double clip_channel_grads(const oct_weight_fake_quant *wq, float scale, int64_t channel)
{
    const oct_param *weight = wq->weight;
    const int64_t k = oct_numel(&weight->value) / channels_of(&weight->value), first = channel * k;
    double sum = 0;
    for (int64_t i = first; i < first + k; i += OCT_FLAG_BLOCK)
        sum += clip_weight_grads(wq, scale, oct_f32(&weight->value) + i,
                                 oct_min_i64(first + k - i, OCT_FLAG_BLOCK), weight->grad + i,
                                 weight->own_grad + i);
    return sum;
}

/* Turns the sums of the channels into gradients; factors count the weights that share a scale. */
static void write_scale_grads(const oct_weight_fake_quant *wq, const double *sum)
{
    const oct_tensor *weight = &wq->weight->value;
    const int64_t channels = channels_of(weight), n = wq->per_tensor ? 1 : channels;
    const int64_t weights_per_scale = oct_numel(weight) / n;
    const float factor =
        wq->kind->factor ? wq->kind->factor(weights_per_scale, weight_codes) : 1.0f;
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

/* Turns the total gradient of the values that weight codes stand for into those of the weights and of their scales. */
static oct_status pass_weight_grads(const oct_weight_fake_quant *wq)
{
    const int64_t n = channels_of(&wq->weight->value);
    OCT_OWNED(oct_free) double *sum = NULL;
    OCT_OWNED(oct_free) float *scale = NULL;
    if (!wq->quantizes) return OCT_OK;
    OCT_TRY(oct_alloc(&sum, (size_t)n, sizeof *sum));
    OCT_TRY(oct_alloc(&scale, (size_t)n, sizeof *scale));
    oct_weight_fake_quant_scales(wq, scale);
#pragma omp parallel for schedule(static)
    for (int64_t o = 0; o < n; o++)
        sum[o] = clip_channel_grads(wq, scale[o], o);
    wq->weight->grad = wq->weight->own_grad;
    if (wq->scale && !wq->scale->frozen) write_scale_grads(wq, sum);
    return OCT_OK;
}

/* All of a model. */

static oct_status collect_quantizer(void *user, oct_module *module)
{
    oct_quantizers *list = user;
    if (module->type == &oct_weight_fake_quant_type) {
        OCT_TRY(oct_grow(&list->weights, &list->weight_capacity, list->num_weights + 1,
                         sizeof(oct_weight_fake_quant *)));
        list->weights[list->num_weights++] = (oct_weight_fake_quant *)module;
    }
    if (module->type != &oct_fake_quant_type) return OCT_OK;
    OCT_TRY(oct_grow(&list->items, &list->capacity, list->count + 1, sizeof(oct_fake_quant *)));
    list->items[list->count++] = (oct_fake_quant *)module;
    return OCT_OK;
}

oct_status oct_quantizers_collect(oct_quantizers *quantizers, oct_module *root)
{
    *quantizers = (oct_quantizers){0};
    const oct_status status = oct_module_walk(root, collect_quantizer, quantizers);
    if (status != OCT_OK) oct_quantizers_free(quantizers);
    return status;
}

void oct_quantizers_free(oct_quantizers *quantizers)
{
    oct_free(&quantizers->items);
    oct_free(&quantizers->weights);
    *quantizers = (oct_quantizers){0};
}

void oct_quantizers_set_state(const oct_quantizers *quantizers, oct_quant_state state)
{
    for (size_t i = 0; i < quantizers->count; i++) {
        oct_fake_quant *fq = quantizers->items[i];
        fq->state = state;
        if (fq->learned)
            fq->learned->frozen = state != OCT_QUANT_QAT || fq->fixed || fq->qconfig.fixed_scale;
        oct_fake_quant_reset_batch(fq);
    }
    for (size_t i = 0; i < quantizers->num_weights; i++) {
        oct_weight_fake_quant *wq = quantizers->weights[i];
        wq->quantizes = state == OCT_QUANT_QAT || state == OCT_QUANT_FROZEN;
        if (wq->scale) wq->scale->frozen = state != OCT_QUANT_QAT;
    }
}

oct_status oct_quantizers_backward(const oct_quantizers *quantizers)
{
    for (size_t i = 0; i < quantizers->num_weights; i++)
        OCT_TRY(pass_weight_grads(quantizers->weights[i]));
    return OCT_OK;
}

/* Key of "nothing seen", below the key of every float. */
static const int64_t NOTHING = INT64_MIN;

/* The least value is negated, so that both ends are maxima. */
void oct_quantizers_keys(const oct_quantizers *quantizers, int64_t *keys)
{
    for (size_t i = 0; i < quantizers->count; i++) {
        const float *range = quantizers->items[i]->batch_range;
        bool seen = !(range[0] == INFINITY && range[1] == -INFINITY);
        keys[2 * i] = seen ? oct_float_key(-range[0]) : NOTHING;
        keys[2 * i + 1] = seen ? oct_float_key(range[1]) : NOTHING;
    }
}

/* Hands the batch to the observer, whose range changes. */
static void observe_batch(oct_fake_quant *fq, const oct_observation *batch)
{
    const oct_observer *observer = fq->qconfig.observer;
    oct_range range = {.min = fq->min[0], .max = fq->max[0], .updates = fq->updates[0]};
    if (observer->count)
        observer->count(&range, fq->histogram, batch);
    else
        observer->update(&range, batch);
    fq->min[0] = range.min;
    fq->max[0] = range.max;
    fq->updates[0] = range.updates;
}

/* What the observer gets of the step's values: the range that all ranks' keys gave, and the counts. */
static oct_observation batch_of_keys(const oct_fake_quant *fq, const int64_t keys[2])
{
    return (oct_observation){.min = -oct_float_of_order((int32_t)keys[0]),
                             .max = oct_float_of_order((int32_t)keys[1]),
                             .count = fq->batch_histogram,
                             .calibrating = fq->state == OCT_QUANT_CALIBRATE,
                             .averaging = fq->qconfig.averaging,
                             .percentile = fq->qconfig.percentile,
                             .qparams = oct_fake_quant_of_range,
                             .fake_quant = fq};
}

oct_status oct_quantizers_check(const oct_quantizers *quantizers, const int64_t *keys)
{
    for (size_t i = 0; i < quantizers->count; i++, keys += 2) {
        if (keys[0] == NOTHING || keys[1] == NOTHING) continue;
        const oct_fake_quant *fq = quantizers->items[i];
        const oct_observation batch = batch_of_keys(fq, keys);
        const float most = fmaxf(-batch.min, batch.max);
        OCT_CHECK(isfinite(batch.min) && isfinite(batch.max), OCT_NUMERIC,
                  "%s: the activation's range is not finite", oct_module_path(&fq->base).text);
        OCT_CHECK(
            !fq->qconfig.observer->count || !batch.calibrating ||
                most <= oct_histogram_high(OCT_HISTOGRAM_BINS - 1),
            OCT_NUMERIC,
            "%s: its values reach %g, and the observer '%s' counts them up to 2^32 only; scale "
            "the network's inputs, or use min_max or moving_average",
            oct_module_path(&fq->base).text, (double)most, fq->qconfig.observer->name);
    }
    return OCT_OK;
}

/* Keeps a learned scale positive, which the optimizer has moved. */
static oct_status limit_learned_scale(const oct_module *quantizer, float *scale)
{
    OCT_CHECK(isfinite(*scale), OCT_NUMERIC, "%s: a learned scale is not finite",
              oct_module_path(quantizer).text);
    *scale = oct_scale_at_least(*scale);
    return OCT_OK;
}

/* Updates range, scale and zero point from the keys of a global range, and checks what observer and kind have given. */
static oct_status update_fake_quant(oct_fake_quant *fq, const int64_t keys[2])
{
    if (oct_fake_quant_learns(fq)) OCT_TRY(limit_learned_scale(&fq->base, fq->scale));
    if (keys[0] == NOTHING || keys[1] == NOTHING) return OCT_OK;
    const oct_observation batch = batch_of_keys(fq, keys);
    observe_batch(fq, &batch);
    OCT_CHECK(isfinite(fq->min[0]) && isfinite(fq->max[0]) && fq->min[0] <= fq->max[0], OCT_NUMERIC,
              "%s: the observer '%s' gave the range [%g, %g]; its ends are numbers, the lower one "
              "first",
              oct_module_path(&fq->base).text, fq->qconfig.observer->name, (double)fq->min[0],
              (double)fq->max[0]);
    const oct_qparams q = oct_fake_quant_of_range(fq, fq->min[0], fq->max[0]);
    const char *kind = fq->qconfig.fake_quant->name;
    OCT_CHECK(oct_is_scale(q.scale), OCT_NUMERIC,
              "%s: the fake-quant '%s' gave the scale %g for the range [%g, %g]",
              oct_module_path(&fq->base).text, kind, (double)q.scale, (double)fq->min[0],
              (double)fq->max[0]);
    fq->scale[0] = q.scale;
    if (!fq->zero_point) return OCT_OK;
    OCT_CHECK(q.zero_point >= q.qmin && q.zero_point <= q.qmax, OCT_NUMERIC,
              "%s: the fake-quant '%s' gave the zero_point %d for the range [%g, %g]; codes are %d "
              "to %d",
              oct_module_path(&fq->base).text, kind, q.zero_point, (double)fq->min[0],
              (double)fq->max[0], q.qmin, q.qmax);
    fq->zero_point[0] = q.zero_point;
    return OCT_OK;
}

void oct_quantizers_discard_batch(const oct_quantizers *quantizers)
{
    for (size_t i = 0; i < quantizers->count; i++)
        oct_fake_quant_reset_batch(quantizers->items[i]);
}

oct_status oct_quantizers_update(const oct_quantizers *quantizers, const int64_t *keys)
{
    oct_status status = oct_quantizers_check(quantizers, keys);
    for (size_t i = 0; i < quantizers->count && status == OCT_OK; i++)
        status = update_fake_quant(quantizers->items[i], keys + 2 * i);
    oct_quantizers_discard_batch(quantizers);
    for (size_t i = 0; i < quantizers->num_weights && status == OCT_OK; i++) {
        const oct_weight_fake_quant *wq = quantizers->weights[i];
        const int64_t n = wq->scale && !wq->scale->frozen ? oct_numel(&wq->scale->value) : 0;
        for (int64_t o = 0; o < n && status == OCT_OK; o++)
            status = limit_learned_scale(&wq->base, oct_f32(&wq->scale->value) + o);
    }
    return status;
}

oct_status oct_quantizers_sum_counts(const oct_quantizers *quantizers, const oct_collective *group)
{
    /* Counts below 2^53 are exact in double, and so are their sums, so a tree sum of doubles adds them, with one
 * term a rank. One rank asks as well: where a leaf is computed again (oct_replay), the answer has more leaves. */
    const oct_leaves ranks = oct_leaves_split(group->size, 1, group->rank, group->size);
    OCT_OWNED(oct_free) double *all = NULL;
    int64_t n = 0;
    for (size_t i = 0; i < quantizers->count; i++)
        if (oct_fake_quant_counts(quantizers->items[i], true)) n += OCT_HISTOGRAM_BINS;
    if (n == 0) return OCT_OK;
    OCT_TRY(oct_alloc(&all, (size_t)n, sizeof *all));
    double *count = all;
    for (size_t i = 0; i < quantizers->count; i++)
        if (oct_fake_quant_counts(quantizers->items[i], true))
            for (int bin = 0; bin < OCT_HISTOGRAM_BINS; bin++)
                *count++ = (double)quantizers->items[i]->batch_histogram[bin];
    OCT_TRY(group->tree_sum(group, &ranks, all, n, sizeof(double), all));
    count = all;
    for (size_t i = 0; i < quantizers->count; i++)
        if (oct_fake_quant_counts(quantizers->items[i], true))
            for (int bin = 0; bin < OCT_HISTOGRAM_BINS; bin++)
                quantizers->items[i]->batch_histogram[bin] = (int64_t)*count++;
    return OCT_OK;
}

oct_status oct_fake_quant_update(oct_fake_quant *fq, const oct_collective *group)
{
    int64_t keys[2];
    oct_quantizers only = {.items = &fq, .count = 1};
    oct_quantizers_keys(&only, keys);
    OCT_TRY(group->max_i64(group, keys, 2));
    OCT_TRY(oct_quantizers_sum_counts(&only, group));
    return oct_quantizers_update(&only, keys);
}
