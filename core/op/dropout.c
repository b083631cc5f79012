/* Dropout zeroes each value with probability p and multiplies the others by 1 / (1 - p).
 *
 * What is drawn for a value is a pure function of the seed, the update, the call, the number of its sample in the
 * global batch and its place in the sample, so no bit depends on ranks or threads.
 *
 * Codes stay codes: dropped ones become the zero_point, and the factor goes into the scale, so training computes with
 * exactly the codes that evaluation has. A scale that is a power of two stays one, since a target that shifts needs
 * that: it grows by the next power of two, and codes are rounded to what is left of the factor.
 */
#include "core/base/int_math.h"
#include "core/base/rng.h"
#include "core/op/op_impl.h"

#include <math.h>

/* The draws of one call, which its backward repeats. */
typedef struct dropout_draws {
    uint64_t key;
    uint64_t first_sample; /* of the global batch: the one that this rank begins with */
    uint64_t threshold;    /* a word below it drops: p * 2^32 */
    float factor;          /* 1 / (1 - p) */
} dropout_draws;

/* Draws the random key of this call, which all its values share and its backward uses again. */
static dropout_draws begin_draws(oct_context *cx, double p)
{
    uint32_t words[4];
    oct_draws *draws = &cx->draws;
    oct_philox(draws->seed, OCT_STREAM_DROPOUT, draws->update, ++draws->calls, words);
    return (dropout_draws){
        .key = (uint64_t)words[0] << 32 | words[1],
        .first_sample = (uint64_t)(draws->first_sample + oct_leaves_first_sample(&cx->leaves)),
        .threshold = (uint64_t)ldexp(p, 32),
        .factor = (float)(1 / (1 - p))};
}

/* keep[i] = whether value first + i of a sample is kept. A draw has four words, so `first` is a multiple of 4. */
static void draw_kept(const dropout_draws *d, int64_t sample, int64_t first, int64_t n, bool *keep)
{
    uint32_t words[4];
    for (int64_t i = 0; i < n; i++) {
        if (i % 4 == 0)
            oct_philox(d->key, OCT_STREAM_DROPOUT, d->first_sample + (uint64_t)sample,
                       (uint32_t)((first + i) / 4), words);
        keep[i] = words[i % 4] >= d->threshold;
    }
}

enum { BLOCK = 256 };

/* y = x * factor, or 0; y may be x. */
static void drop_values(const dropout_draws *d, int64_t sample, int64_t n, const float *x, float *y)
{
    bool keep[BLOCK];
    for (int64_t first = 0; first < n; first += BLOCK) {
        const int64_t count = oct_min_i64(n - first, BLOCK);
        draw_kept(d, sample, first, count, keep);
        for (int64_t i = 0; i < count; i++)
            y[first + i] = keep[i] ? x[first + i] * d->factor : 0.0F;
    }
}

/* The codes of y from those of x: the zero_point, or `ratio` of them. */
#define OCT_DROP_CODES(name, code_t)                                                               \
    static void name(const dropout_draws *d, int64_t sample, const oct_tensor *x, float ratio,     \
                     oct_tensor *y)                                                                \
    {                                                                                              \
        const int64_t n = oct_numel(x) / oct_samples(x), begin = sample * n;                       \
        const int32_t z = x->q.zero_point;                                                         \
        const code_t *from = (const code_t *)x->data + begin;                                      \
        code_t *to = (code_t *)y->data + begin;                                                    \
        bool keep[BLOCK];                                                                          \
        for (int64_t first = 0; first < n; first += BLOCK) {                                       \
            const int64_t count = oct_min_i64(n - first, BLOCK);                                   \
            draw_kept(d, sample, first, count, keep);                                              \
            for (int64_t i = 0; i < count; i++) {                                                  \
                const float kept = rintf((float)(from[first + i] - z) * ratio);                    \
                to[first + i] = (code_t)(z + (keep[i] ? (int32_t)kept : 0));                       \
            }                                                                                      \
        }                                                                                          \
    }

OCT_DROP_CODES(drop_u8, uint8_t)
OCT_DROP_CODES(drop_u16, uint16_t)

/* How much the scale grows: by the factor, or, of a scale that is a power of two (a fraction of 0.5), by the power of
 * two that is not below the factor. */
static float scale_growth(float scale, float factor)
{
    int exponent;
    if (frexpf(scale, &exponent) != 0.5F) return factor;
    const float fraction = frexpf(factor, &exponent);
    return ldexpf(1.0F, fraction == 0.5F ? exponent - 1 : exponent);
}

static void dropout_backward(oct_context *cx, oct_node *node)
{
    oct_tensor *x = node->input[0];
    const int64_t samples = oct_samples(x), n = samples ? oct_numel(x) / samples : 0;
    float *grad = oct_detach_grad(node->output);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < samples; i++)
        drop_values(node->saved, i, n, grad + i * n, grad + i * n);
    oct_add_grad(cx, x, grad);
}

oct_tensor *oct_dropout(oct_context *cx, oct_tensor *x, double p)
{
    if (!oct_inputs_ok(cx, &x, 1)) return NULL;
    if (!(p >= 0 && p < 1))
        return oct_context_fail(cx, OCT_USAGE,
                                "dropout cannot have the probability %g; give one from 0 to below "
                                "1",
                                p);
    if (!cx->draws.active || p == 0) return x;
    if (!oct_is_codes(x) && !oct_needs_f32(cx, "dropout", x)) return NULL;
    if (!oct_needs_batch(cx, "dropout", x)) return NULL;
    oct_tensor *y = oct_tensor_new(cx, x->dtype, x->shape);
    if (!y) return NULL;
    const dropout_draws d = begin_draws(cx, p);
    const int64_t samples = oct_samples(x), n = samples ? oct_numel(x) / samples : 0;
    const float growth = oct_is_codes(x) ? scale_growth(x->q.scale, d.factor) : 1.0F;
    y->q = x->q;
    y->q.scale = x->q.scale * growth; /* codes are multiplied by the rest of the factor */
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < samples; i++) {
        if (x->dtype == OCT_F32)
            drop_values(&d, i, n, oct_f32(x) + i * n, oct_f32(y) + i * n);
        else if (x->dtype == OCT_U8)
            drop_u8(&d, i, x, d.factor / growth, y);
        else
            drop_u16(&d, i, x, d.factor / growth, y);
    }
    oct_node *node = oct_record(cx, "dropout", dropout_backward, &x, 1, false, y);
    return oct_node_save(cx, node, &d, sizeof d) ? y : NULL;
}
