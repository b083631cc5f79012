/* Fake-quants of activations and the step's exchange of their ranges. */
#include "quant/module/fake_quant.h"

#include "core/autograd/leaf_grads.h"
#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "quant/module/mask.h"
#include "quant/rounding/bits.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void describe(const oct_module *self, char *text, size_t size)
{
    static const char *const states[] = {
#define X(name, text) text,
        OCT_QUANT_STATE_LIST(X)
#undef X
    };
    const oct_fake_quant *fq = (const oct_fake_quant *)self;
    oct_qparams q = oct_fake_quant_qparams(fq);
    char range[64] = "not seen";
    if (fq->updates[0] > 0)
        oct_snprintf(range, sizeof range, "[%.9g, %.9g]", (double)fq->min[0], (double)fq->max[0]);
    if (fq->fixed) snprintf(range, sizeof range, "fixed");
    oct_snprintf(text, size,
                 "state=%s, kind=%s, dtype=u%d, codes=[%d, %d], scheme=%s, observer=%s, range=%s, "
                 "scale=%.9g%s, zero_point=%d",
                 states[fq->state], fq->qconfig.fake_quant->name, fq->qconfig.bits, q.qmin, q.qmax,
                 q.zero_point && !fq->zero_point ? "symmetric" : "affine",
                 fq->qconfig.observer->name, range, (double)q.scale, fq->learned ? ", learned" : "",
                 q.zero_point);
}

static void destroy(oct_module *self)
{
    oct_free(&((oct_fake_quant *)self)->batch_histogram);
}

const oct_module_type oct_fake_quant_type = {
    .name = "fake_quant",
    .destroy = destroy,
    .describe = describe,
    .atomic = true,
};

static void reset_batch(oct_fake_quant *fq)
{
    fq->batch_range[0] = INFINITY;
    fq->batch_range[1] = -INFINITY;
    if (fq->batch_histogram)
        memset(fq->batch_histogram, 0, OCT_HISTOGRAM_BINS * sizeof *fq->batch_histogram);
}

/* Adds the scale, which is a parameter where the kind learns it. */
static oct_status add_scale(oct_fake_quant *fq)
{
    const oct_shape one = OCT_SHAPE(1);
    if (!fq->qconfig.fake_quant->slope)
        return oct_module_add_buffer(&fq->base, "scale", OCT_F32, one, &fq->scale);
    OCT_TRY(oct_module_add_param(&fq->base, "scale", one, false, &fq->learned));
    fq->scale = oct_f32(&fq->learned->value);
    fq->learned->frozen = true;
    return OCT_OK;
}

/* The zero_point that no kind has chosen: 0, or the middle of the codes. */
static int32_t plain_zero_point(const oct_fake_quant *fq)
{
    const bool centred = fq->is_signed || !fq->target->unsigned_codes;
    return centred ? 1 << (fq->qconfig.bits - 1) : 0;
}

static oct_status add_state(oct_fake_quant *fq)
{
    oct_shape one = OCT_SHAPE(1);
    OCT_TRY(oct_module_add_buffer(&fq->base, "min", OCT_F32, one, &fq->min));
    OCT_TRY(oct_module_add_buffer(&fq->base, "max", OCT_F32, one, &fq->max));
    OCT_TRY(oct_module_add_buffer(&fq->base, "updates", OCT_S64, one, &fq->updates));
    OCT_TRY(add_scale(fq));
    oct_module_limit_state(&fq->base, "scale", oct_scale_range);
    if (fq->qconfig.fake_quant->zero_point) {
        OCT_TRY(oct_module_add_buffer(&fq->base, "zero_point", OCT_S64, one, &fq->zero_point));
        fq->zero_point[0] = plain_zero_point(fq);
        oct_module_limit_state(&fq->base, "zero_point",
                               (oct_value_range){0, (1 << fq->qconfig.bits) - 1});
    }
    if (fq->qconfig.observer->count) {
        OCT_TRY(oct_module_add_buffer(&fq->base, "histogram", OCT_S64,
                                      OCT_SHAPE(OCT_HISTOGRAM_BINS), &fq->histogram));
        OCT_TRY(oct_alloc(&fq->batch_histogram, OCT_HISTOGRAM_BINS, sizeof *fq->batch_histogram));
    }
    fq->min[0] = INFINITY;
    fq->max[0] = -INFINITY;
    fq->scale[0] = 1.0f;
    reset_batch(fq);
    return OCT_OK;
}

oct_status oct_fake_quant_create(oct_fake_quant **fq, const oct_qconfig *qconfig,
                                 const oct_target *target, bool is_signed)
{
    oct_module *module = NULL;
    OCT_TRY(oct_module_create(&module, &oct_fake_quant_type, sizeof(oct_fake_quant)));
    oct_fake_quant *made = (oct_fake_quant *)module;
    made->qconfig = *qconfig;
    if (qconfig->fake_quant == &oct_fake_quant_affine && target->affine)
        made->qconfig.fake_quant = oct_fake_quant_kind_find(target->affine);
    made->target = target;
    made->is_signed = is_signed;
    OCT_TRY(oct_module_made(&module, add_state(made)));
    *fq = made;
    return OCT_OK;
}

static float of_target(const oct_fake_quant *fq, float scale)
{
    return oct_requantizer_shifts(fq->target->requantizer) ? oct_pow2_ceil(scale) : scale;
}

void oct_fake_quant_fix(oct_fake_quant *fq, float scale)
{
    fq->fixed = true;
    fq->scale[0] = of_target(fq, scale);
    if (fq->learned) fq->learned->frozen = true;
}

oct_qparams oct_fake_quant_qparams(const oct_fake_quant *fq)
{
    return (oct_qparams){.scale = of_target(fq, fq->scale[0]),
                         .zero_point =
                             fq->zero_point ? (int32_t)fq->zero_point[0] : plain_zero_point(fq),
                         .qmin = 0,
                         .qmax = (1 << fq->qconfig.bits) - 1};
}

static bool observes(const oct_fake_quant *fq, bool training)
{
    if (!training || fq->fixed) return false;
    if (fq->state != OCT_QUANT_QAT) return fq->state == OCT_QUANT_CALIBRATE;
    return !fq->qconfig.fixed_scale && (!fq->learned || fq->updates[0] == 0);
}

void oct_fake_quant_observe(oct_fake_quant *fq, bool training, float min, float max)
{
    if (!observes(fq, training)) return;
    /* A NaN, once taken, stays and is found at the end of the step. */
    float *range = fq->batch_range;
    if (min < range[0] || isnan(min)) range[0] = min;
    if (max > range[1] || isnan(max)) range[1] = max;
}

bool oct_fake_quant_counts(const oct_fake_quant *fq, bool training)
{
    return fq->batch_histogram && observes(fq, training);
}

void oct_fake_quant_count(oct_fake_quant *fq, const int64_t *count)
{
#pragma omp critical(oct_fake_quant_count)
    oct_histogram_merge(count, fq->batch_histogram);
}

static void count_values(oct_fake_quant *fq, const float *x, int64_t n)
{
    enum { PART = 1 << 16 };
#pragma omp parallel for schedule(static)
    for (int64_t first = 0; first < n; first += PART) {
        int64_t count[OCT_HISTOGRAM_BINS] = {0};
        oct_histogram_add(x + first, oct_min_i64(n - first, PART), count);
        oct_fake_quant_count(fq, count);
    }
}

void oct_fake_quant_observe_values(oct_fake_quant *fq, bool training, const float *x, int64_t n)
{
    if (!observes(fq, training) || n == 0) return;
    if (fq->batch_histogram) count_values(fq, x, n);
    float min = x[0], max = x[0];
    bool finite = true;
    for (int64_t i = 0; i < n; i++) {
        min = x[i] < min ? x[i] : min;
        max = x[i] > max ? x[i] : max;
        finite &= isfinite(x[i]) != 0;
    }
    oct_fake_quant_observe(fq, training, finite ? min : NAN, finite ? max : NAN);
}

void oct_fake_quant_backward(const oct_fake_quant *fq, int64_t n, const uint8_t *mask, float *grad)
{
    if (fq->qconfig.fake_quant->backward)
        fq->qconfig.fake_quant->backward(n, mask, grad);
    else
        oct_mask_apply(mask, n, grad);
}

void oct_slope_sum_add(oct_slope_sum *sum, int64_t first, int64_t n, const float *v,
                       const float *grad)
{
    float slope[OCT_FLAG_BLOCK];
    for (int64_t i = 0; i < n; i += OCT_FLAG_BLOCK) {
        const int64_t some = oct_min_i64(n - i, OCT_FLAG_BLOCK);
        sum->fq->qconfig.fake_quant->slope(some, v + i, sum->q, slope);
        for (int64_t k = 0; k < some; k++)
            sum->lane[(first + i + k) % 8] += (double)grad[i + k] * (double)slope[k];
    }
}

float oct_slope_sum_end(const oct_slope_sum *sum, int64_t each)
{
    const oct_fake_quant_kind *kind = sum->fq->qconfig.fake_quant;
    const double *lane = sum->lane;
    const double total =
        ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
    return (float)(kind->factor ? total * (double)kind->factor(each, sum->q) : total);
}

static float learn_leaf(const oct_context *cx, const oct_fake_quant *fq, int64_t leaf, int64_t each,
                        const oct_scaled_values *values, const float *grad)
{
    const int64_t begin = oct_leaf_begin(&cx->leaves, leaf) * each;
    const int64_t count = oct_leaf_size(&cx->leaves, leaf) * each;
    oct_slope_sum sum = {.fq = fq, .q = values->q};
    float v[OCT_FLAG_BLOCK];
    for (int64_t i = 0; i < count; i += OCT_FLAG_BLOCK) {
        const int64_t some = oct_min_i64(count - i, OCT_FLAG_BLOCK);
        values->read(values->args, begin + i, some, v);
        oct_slope_sum_add(&sum, i, some, v, grad + begin + i);
    }
    return oct_slope_sum_end(&sum, each);
}

void oct_fake_quant_add_scale_grad(oct_context *cx, oct_fake_quant *fq, int64_t each,
                                   const oct_scaled_values *values, const float *grad)
{
    float *rows = oct_leaf_grads_begin(cx, fq->learned);
    if (!rows) return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < cx->leaves.local; i++)
        rows[i] += learn_leaf(cx, fq, i, each, values, grad);
    oct_leaf_grads_end(cx, fq->learned);
}

typedef struct collector {
    oct_quantizers *list;
    size_t capacity, weight_capacity;
} collector;

static oct_status collect(void *user, oct_module *module)
{
    collector *c = user;
    if (module->type == &oct_weight_fake_quant_type) {
        OCT_TRY(oct_grow(&c->list->weights, &c->weight_capacity, c->list->num_weights + 1,
                         sizeof(oct_weight_fake_quant *)));
        c->list->weights[c->list->num_weights++] = (oct_weight_fake_quant *)module;
    }
    if (module->type != &oct_fake_quant_type) return OCT_OK;
    OCT_TRY(oct_grow(&c->list->items, &c->capacity, c->list->count + 1, sizeof(oct_fake_quant *)));
    c->list->items[c->list->count++] = (oct_fake_quant *)module;
    return OCT_OK;
}

oct_status oct_quantizers_collect(oct_quantizers *quantizers, oct_module *root)
{
    *quantizers = (oct_quantizers){0};
    collector c = {.list = quantizers};
    oct_status status = oct_module_walk(root, collect, &c);
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
        reset_batch(fq);
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
        OCT_TRY(oct_weight_fake_quant_backward(quantizers->weights[i]));
    return OCT_OK;
}

/* Key of "nothing seen", below the key of every float. */
static const int64_t NOTHING = INT64_MIN;

void oct_quantizers_keys(const oct_quantizers *quantizers, int64_t *keys)
{
    for (size_t i = 0; i < quantizers->count; i++) {
        const float *range = quantizers->items[i]->batch_range;
        bool seen = !(range[0] == INFINITY && range[1] == -INFINITY);
        keys[2 * i] = seen ? oct_float_key(-range[0]) : NOTHING;
        keys[2 * i + 1] = seen ? oct_float_key(range[1]) : NOTHING;
    }
}

static bool is_scale(float scale)
{
    return isfinite(scale) && scale > 0.0f;
}

/* How the kind and the target quantize a range; nothing is judged yet, but after a scale that is none no zero_point is
 * asked for. */
static oct_qparams qparams_of_range(const void *fake_quant, float min, float max)
{
    const oct_fake_quant *fq = fake_quant;
    const oct_fake_quant_kind *kind = fq->qconfig.fake_quant;
    oct_qparams q = oct_fake_quant_qparams(fq);
    q.zero_point = plain_zero_point(fq);
    q.scale = kind->scale(min, max, q);
    if (!is_scale(q.scale)) return q;
    q.scale = of_target(fq, q.scale);
    if (kind->zero_point) q.zero_point = kind->zero_point(min, max, q.scale, q);
    return q;
}

static oct_status update_scale(oct_fake_quant *fq)
{
    char path[256];
    const oct_fake_quant_kind *kind = fq->qconfig.fake_quant;
    const oct_qparams q = qparams_of_range(fq, fq->min[0], fq->max[0]);
    OCT_CHECK(is_scale(q.scale), OCT_NUMERIC,
              "%s: the fake-quant '%s' gave the scale %g for the range [%g, %g]",
              oct_module_path(&fq->base, path), kind->name, (double)q.scale, (double)fq->min[0],
              (double)fq->max[0]);
    fq->scale[0] = q.scale;
    if (!fq->zero_point) return OCT_OK;
    OCT_CHECK(q.zero_point >= q.qmin && q.zero_point <= q.qmax, OCT_NUMERIC,
              "%s: the fake-quant '%s' gave the zero_point %d for the range [%g, %g]; codes are %d "
              "to %d",
              oct_module_path(&fq->base, path), kind->name, q.zero_point, (double)fq->min[0],
              (double)fq->max[0], q.qmin, q.qmax);
    fq->zero_point[0] = q.zero_point;
    return OCT_OK;
}

/* Hands the batch to the observer, whose range changes. */
static void observe_batch(oct_fake_quant *fq, const oct_seen *batch)
{
    const oct_observer *observer = fq->qconfig.observer;
    const float averaging = fq->qconfig.averaging;
    oct_range range = {.min = fq->min[0], .max = fq->max[0], .updates = fq->updates[0]};
    if (observer->count)
        observer->count(&range, fq->histogram, batch, averaging);
    else
        observer->update(&range, batch->min, batch->max, averaging);
    fq->min[0] = range.min;
    fq->max[0] = range.max;
    fq->updates[0] = range.updates;
}

static oct_seen seen_of(const oct_fake_quant *fq, const int64_t keys[2])
{
    return (oct_seen){.min = -oct_float_of_key((int32_t)keys[0]),
                      .max = oct_float_of_key((int32_t)keys[1]),
                      .count = fq->batch_histogram,
                      .calibrating = fq->state == OCT_QUANT_CALIBRATE,
                      .percentile = fq->qconfig.percentile,
                      .qparams = qparams_of_range,
                      .fake_quant = fq};
}

oct_status oct_quantizers_check(const oct_quantizers *quantizers, const int64_t *keys)
{
    char path[256];
    for (size_t i = 0; i < quantizers->count; i++, keys += 2) {
        if (keys[0] == NOTHING || keys[1] == NOTHING) continue;
        const oct_fake_quant *fq = quantizers->items[i];
        const oct_seen batch = seen_of(fq, keys);
        const float most = fmaxf(-batch.min, batch.max);
        OCT_CHECK(isfinite(batch.min) && isfinite(batch.max), OCT_NUMERIC,
                  "%s: the activation's range is not finite", oct_module_path(&fq->base, path));
        OCT_CHECK(
            !fq->qconfig.observer->count || !batch.calibrating ||
                most <= oct_histogram_high(OCT_HISTOGRAM_BINS - 1),
            OCT_NUMERIC,
            "%s: its values reach %g, and the observer '%s' counts them up to 2^32 only; scale "
            "the network's inputs, or use min_max or moving_average",
            oct_module_path(&fq->base, path), (double)most, fq->qconfig.observer->name);
    }
    return OCT_OK;
}

static oct_status update_one(oct_fake_quant *fq, const int64_t keys[2])
{
    char path[256];
    if (oct_fake_quant_learns(fq)) { /* the optimizer has moved the scale */
        OCT_CHECK(isfinite(fq->scale[0]), OCT_NUMERIC, "%s: its learned scale is not finite",
                  oct_module_path(&fq->base, path));
        fq->scale[0] = oct_scale_at_least(fq->scale[0]);
    }
    if (keys[0] == NOTHING || keys[1] == NOTHING) return OCT_OK;
    const oct_seen batch = seen_of(fq, keys);
    observe_batch(fq, &batch);
    OCT_CHECK(isfinite(fq->min[0]) && isfinite(fq->max[0]) && fq->min[0] <= fq->max[0], OCT_NUMERIC,
              "%s: the observer '%s' gave the range [%g, %g]; its ends are numbers, the lower one "
              "first",
              oct_module_path(&fq->base, path), fq->qconfig.observer->name, (double)fq->min[0],
              (double)fq->max[0]);
    return update_scale(fq);
}

void oct_quantizers_discard_batch(const oct_quantizers *quantizers)
{
    for (size_t i = 0; i < quantizers->count; i++)
        reset_batch(quantizers->items[i]);
}

oct_status oct_quantizers_update(const oct_quantizers *quantizers, const int64_t *keys)
{
    oct_status status = oct_quantizers_check(quantizers, keys);
    for (size_t i = 0; i < quantizers->count && status == OCT_OK; i++)
        status = update_one(quantizers->items[i], keys + 2 * i);
    oct_quantizers_discard_batch(quantizers);
    for (size_t i = 0; i < quantizers->num_weights && status == OCT_OK; i++)
        status = oct_weight_fake_quant_update(quantizers->weights[i]);
    return status;
}

/* Copies the histograms, one after another, to `all` or back. */
static void move_counts(const oct_quantizers *quantizers, double *all, bool back)
{
    for (size_t i = 0; i < quantizers->count; i++) {
        int64_t *histogram = quantizers->items[i]->batch_histogram;
        if (!oct_fake_quant_counts(quantizers->items[i], true)) continue;
        for (int bin = 0; bin < OCT_HISTOGRAM_BINS; bin++, all++) {
            if (back)
                histogram[bin] = (int64_t)*all;
            else
                *all = (double)histogram[bin];
        }
    }
}

oct_status oct_quantizers_sum_counts(const oct_quantizers *quantizers, const oct_collective *group)
{
    /* Counts below 2^53 are exact in double, and so are their sums: ranks are the leaves of a sum that there is
 * anyway. One rank asks as well: where a leaf is computed again (oct_replay), the answer has more leaves. */
    const oct_leaves ranks = oct_leaves_split(group->size, 1, group->rank, group->size);
    double *all = NULL;
    int64_t n = 0;
    for (size_t i = 0; i < quantizers->count; i++)
        if (oct_fake_quant_counts(quantizers->items[i], true)) n += OCT_HISTOGRAM_BINS;
    if (n == 0) return OCT_OK;
    OCT_TRY(oct_alloc(&all, (size_t)n, sizeof *all));
    move_counts(quantizers, all, false);
    const oct_status status = group->tree_sum_f64(group, &ranks, all, n, all);
    if (status == OCT_OK) move_counts(quantizers, all, true);
    oct_free(&all);
    return status;
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
