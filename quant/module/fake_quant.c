/* Fake-quants of activations: their state, what a forward shows them, and the float path through them. */
#include "quant/module/fake_quant.h"

#include "core/autograd/tape.h"
#include "core/base/cpu.h"
#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "quant/rounding/bits.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const void *const kinds[] = {
#define OCT_FAKE_QUANT_KIND(file) &oct_fake_quant_##file,
#include "quant/module/fake_quant_kind_list.def"
#undef OCT_FAKE_QUANT_KIND
};
oct_registry oct_fake_quant_kind_table = OCT_REGISTRY("a fake-quant", kinds);

const oct_fake_quant_kind *oct_fake_quant_kind_find(const char *name)
{
    return name ? oct_registry_find(&oct_fake_quant_kind_table, name) : NULL;
}

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

void oct_fake_quant_reset_batch(oct_fake_quant *fq)
{
    fq->batch_range[0] = INFINITY;
    fq->batch_range[1] = -INFINITY;
    if (fq->batch_histogram)
        memset(fq->batch_histogram, 0, OCT_HISTOGRAM_BINS * sizeof *fq->batch_histogram);
}

/* The zero_point that no kind has chosen: 0, or the middle of the codes. */
static int32_t default_zero_point(const oct_fake_quant *fq)
{
    const bool centred = fq->is_signed || !fq->target->unsigned_codes;
    return centred ? 1 << (fq->qconfig.bits - 1) : 0;
}

/* Adds the state that checkpoints hold (range, scale, zero point, histogram) with its first values. */
static oct_status add_state(oct_fake_quant *fq)
{
    oct_shape one = OCT_SHAPE(1);
    OCT_TRY(oct_module_add_buffer(&fq->base, "min", OCT_F32, one, &fq->min));
    OCT_TRY(oct_module_add_buffer(&fq->base, "max", OCT_F32, one, &fq->max));
    OCT_TRY(oct_module_add_buffer(&fq->base, "updates", OCT_S64, one, &fq->updates));
    if (fq->qconfig.fake_quant->slope) { /* the scale is learned */
        OCT_TRY(oct_module_add_param(&fq->base, "scale", one, false, &fq->learned));
        fq->scale = oct_f32(&fq->learned->value);
        fq->learned->frozen = true;
    } else {
        OCT_TRY(oct_module_add_buffer(&fq->base, "scale", OCT_F32, one, &fq->scale));
    }
    oct_module_limit_state(&fq->base, "scale", oct_scale_range);
    if (fq->qconfig.fake_quant->zero_point) {
        OCT_TRY(oct_module_add_buffer(&fq->base, "zero_point", OCT_S64, one, &fq->zero_point));
        fq->zero_point[0] = default_zero_point(fq);
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
    oct_fake_quant_reset_batch(fq);
    return OCT_OK;
}

oct_status oct_fake_quant_create(oct_fake_quant **fq, const oct_qconfig *qconfig,
                                 const oct_target *target, bool is_signed)
{
    oct_module *module = NULL;
    OCT_TRY(oct_module_alloc(&module, &oct_fake_quant_type, sizeof(oct_fake_quant)));
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

/* Scales of targets that shift are powers of two. */
static float round_scale(const oct_fake_quant *fq, float scale)
{
    return oct_requantizer_shifts(fq->target->requantizer) ? oct_pow2_ceil(scale) : scale;
}

void oct_fake_quant_fix(oct_fake_quant *fq, float scale)
{
    fq->fixed = true;
    fq->scale[0] = round_scale(fq, scale);
    if (fq->learned) fq->learned->frozen = true;
}

oct_qparams oct_fake_quant_qparams(const oct_fake_quant *fq)
{
    return (oct_qparams){.scale = round_scale(fq, fq->scale[0]),
                         .zero_point =
                             fq->zero_point ? (int32_t)fq->zero_point[0] : default_zero_point(fq),
                         .qmin = 0,
                         .qmax = (1 << fq->qconfig.bits) - 1};
}

oct_qparams oct_fake_quant_of_range(const void *fake_quant, float min, float max)
{
    const oct_fake_quant *fq = fake_quant;
    const oct_fake_quant_kind *kind = fq->qconfig.fake_quant;
    oct_qparams q = oct_fake_quant_qparams(fq);
    q.zero_point = default_zero_point(fq);
    q.scale = kind->scale(min, max, q);
    if (!oct_is_scale(q.scale)) return q;
    q.scale = round_scale(fq, q.scale);
    if (kind->zero_point) q.zero_point = kind->zero_point(min, max, q.scale, q);
    return q;
}

/* Whether values seen in this mode move the range. */
static bool observes_values(const oct_fake_quant *fq, bool training)
{
    if (!training || fq->fixed) return false;
    if (fq->state != OCT_QUANT_QAT) return fq->state == OCT_QUANT_CALIBRATE;
    return !fq->qconfig.fixed_scale && (!fq->learned || fq->updates[0] == 0);
}

void oct_fake_quant_observe(oct_fake_quant *fq, bool training, float min, float max)
{
    if (!observes_values(fq, training)) return;
    /* A NaN, once taken, stays and is found at the end of the step. */
    float *range = fq->batch_range;
    if (min < range[0] || isnan(min)) range[0] = min;
    if (max > range[1] || isnan(max)) range[1] = max;
}

bool oct_fake_quant_counts(const oct_fake_quant *fq, bool training)
{
    return fq->batch_histogram && observes_values(fq, training);
}

void oct_fake_quant_count(oct_fake_quant *fq, const int64_t *count)
{
#pragma omp critical(oct_fake_quant_count)
    oct_histogram_merge(count, fq->batch_histogram);
}

void oct_fake_quant_observe_values(oct_fake_quant *fq, bool training, const float *x, int64_t n)
{
    enum { COUNTED = 1 << 16 }; /* values that a thread counts at a time */
    if (!observes_values(fq, training) || n == 0) return;
    if (fq->batch_histogram) {
#pragma omp parallel for schedule(static)
        for (int64_t first = 0; first < n; first += COUNTED) {
            int64_t count[OCT_HISTOGRAM_BINS] = {0};
            oct_histogram_add(x + first, oct_min_i64(n - first, COUNTED), count);
            oct_fake_quant_count(fq, count);
        }
    }
    float min = x[0], max = x[0];
    bool finite = true;
    for (int64_t i = 0; i < n; i++) {
        min = x[i] < min ? x[i] : min;
        max = x[i] > max ? x[i] : max;
        finite &= isfinite(x[i]) != 0;
    }
    oct_fake_quant_observe(fq, training, finite ? min : NAN, finite ? max : NAN);
}

/* Gradients are masked eight elements a byte: floats are kept or cleared as bit patterns. */
typedef uint32_t u32x8 __attribute__((vector_size(32), aligned(4), may_alias));

OCT_CLONES
void oct_mask_apply(const uint8_t *mask, int64_t n, float *grad)
{
    const u32x8 bit = {1, 2, 4, 8, 16, 32, 64, 128};
    int64_t whole = n / 8;
    for (int64_t i = 0; i < whole; i++)
        *(u32x8 *)(grad + 8 * i) &= (u32x8)((bit & mask[i]) == bit);
    for (int64_t i = 8 * whole; i < n; i++)
        if (!(mask[i / 8] & (1U << i % 8))) grad[i] = 0.0F;
}

void oct_fake_quant_backward(const oct_fake_quant *fq, int64_t n, const uint8_t *mask, float *grad)
{
    if (fq->qconfig.fake_quant->backward)
        fq->qconfig.fake_quant->backward(n, mask, grad);
    else
        oct_mask_apply(mask, n, grad);
}

/* Elements are added to eight sums by their number, so no bit depends on how they are divided into calls. */
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

/* What the backward of a rounding needs; the mask's bits follow. */
typedef struct rounded {
    const oct_fake_quant *fq;
    uint8_t mask[];
} rounded;

static void round_backward(oct_context *cx, oct_node *node)
{
    const rounded *saved = node->saved;
    float *grad = oct_detach_grad(node->output);
    oct_fake_quant_backward(saved->fq, oct_numel(node->output), saved->mask, grad);
    oct_add_grad(cx, node->input[0], grad);
}

/* Rounds values to their codes and back, which is what a quantized model would hand on. */
static oct_tensor *round_to_codes(oct_context *cx, const oct_fake_quant *fq, oct_tensor *x)
{
    oct_tensor *y = oct_tensor_new(cx, OCT_F32, x->shape);
    if (!y) return NULL;
    int64_t n = oct_numel(x);
    rounded *saved = NULL;
    oct_node *node = oct_record(cx, "fake_quant", round_backward, &x, 1, false, y);
    if (node) {
        saved = oct_save(cx, sizeof *saved + (size_t)(n + 7) / 8);
        if (!saved) return NULL;
        saved->fq = fq;
        node->saved = saved;
    }
    uint8_t flags[OCT_FLAG_BLOCK];
    for (int64_t i = 0; i < n; i += OCT_FLAG_BLOCK) {
        const int64_t count = n - i < OCT_FLAG_BLOCK ? n - i : OCT_FLAG_BLOCK;
        oct_fake_quantize(oct_f32(x) + i, count, oct_fake_quant_qparams(fq), oct_f32(y) + i, flags);
        if (saved) oct_bits_pack(flags, count, saved->mask + i / 8);
    }
    return y;
}

oct_tensor *oct_fake_quant_float(oct_context *cx, oct_fake_quant *fq, bool training, oct_tensor *y)
{
    if (!fq || !y) return y;
    if (fq->state == OCT_QUANT_SIMULATE) return round_to_codes(cx, fq, y);
    oct_fake_quant_observe_values(fq, training, oct_f32(y), oct_numel(y));
    return y;
}
