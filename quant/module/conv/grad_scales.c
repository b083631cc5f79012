/* The scales and random keys of an int8 backward, and the operand rows that it multiplies.
 *
 * With B[n,o] a bound of |dC| of sample n and channel o:
 *     with a live batch norm       |gain| * (G + |mean| + |dot| * H) >= |gain * (g - mean - x^ dot)|
 *     otherwise                    |gain| * G, or G
 * with G and H the largest |g| and |x^|, an operand's codes have the scales
 *     of the input's gradient      max over o of s_w[o] * B[n,o] for a sample
 *     of the weights' gradient     max over n of B[n,o] for a channel and a segment, some samples of a leaf
 * over 127. So nothing is cut, and there is no state. Everything is local to a leaf, and maxima have no order, so no bit
 * depends on ranks or threads.
 */
#include "quant/module/conv/conv_impl.h"

#include "core/base/int_math.h"
#include "core/base/rng.h"
#include "core/kernel/conv.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* The bits of a magnitude have the order of the magnitudes, NaN the last. */
static inline int32_t magnitude_bits(float v)
{
    int32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits & INT32_MAX;
}

static inline float magnitude(int32_t bits)
{
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static inline int32_t largest_of(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

/* The bounds are in float as dC is, each within some of its last digits; this is above all of them. */
static const float room = 1.0f + 0x1p-20f;

/* Makes scale and factor of a bound: factor * v is at most the largest code, in units of a 256th of one digit, or of the
 * lower of two. A bound that is not finite makes everything NaN; what is next to nothing becomes 0. */
static void set_scale(float bound, int digits, float *scale, float *factor)
{
    const float least = 0x1p-100f;
    bound *= room;
    *factor = 0.0f;
    *scale = bound <= FLT_MAX ? 0.0f : NAN;
    if (!(bound >= least) || isnan(*scale)) return;
    *factor = (digits == 2 ? OCT_GRAD_MOST_WIDE : OCT_GRAD_MOST) / bound;
    *scale = bound / (digits == 2 ? OCT_GRAD_MOST_WIDE : OCT_GRAD_MOST / 256);
}

void oct_grad_scale_leaf(const oct_context *cx, const oct_grad_sweep *sweep, int64_t number)
{
    const oct_grad_leaf leaf = oct_grad_leaf_of(cx, sweep, number);
    const oct_grad_scales *s = &sweep->scales;
    const oct_qat_saved *saved = sweep->saved;
    const oct_norm_grad *v = &leaf.norm;
    const oct_conv_weight_product *plan = &s->plan->weight;
    const int64_t n = saved->plan.shape.out_c, samples = oct_leaf_size(&cx->leaves, number);
    const int64_t begin = oct_leaf_begin(&cx->leaves, number);
    const int64_t place = cx->draws.first_sample + oct_leaves_first_sample(&cx->leaves) + begin;
    for (int64_t i = 0; i < samples; i++) {
        int32_t *most = leaf.most + 2 * i * n, largest = 0;
        float *factors = (float *)(most + n), factor;
        for (int64_t o = 0; o < n; o++) {
            float bound = magnitude(most[o]);
            if (saved->live) bound += fabsf(v->mean[o]) + fabsf(v->dot[o]) * magnitude(most[n + o]);
            if (saved->layer.bn) bound *= fabsf(v->gain[o]);
            most[o] = magnitude_bits(bound);
            largest = largest_of(largest, magnitude_bits(bound * saved->ch.scale[o]));
        }
        set_scale(magnitude(largest), s->digits[OCT_GATE_INPUT], &s->input[begin + i], &factor);
        for (int64_t o = 0; o < n; o++)
            factors[o] = factor * saved->ch.scale[o];
        for (uint32_t k = 0; k < OCT_GATE_OPERANDS; k++) {
            uint32_t words[4];
            oct_philox(cx->draws.seed, OCT_STREAM_ROUND,
                       cx->draws.update << 32 | (uint64_t)(place + i),
                       OCT_GATE_OPERANDS * saved->call + k, words);
            s->key[(begin + i) * OCT_GATE_OPERANDS + k] = words[0];
        }
    }
    for (int64_t i = 0; i < samples; i += plan->segment_samples) {
        const int64_t segment = number * plan->leaf_segments + i / plan->segment_samples;
        const int64_t end = oct_min_i64(i + plan->segment_samples, samples);
        for (int64_t o = 0; o < n; o++) {
            float *factor = (float *)(leaf.most + 2 * i * n + o);
            int32_t largest = 0;
            for (int64_t k = i; k < end; k++)
                largest = largest_of(largest, leaf.most[2 * k * n + o]);
            set_scale(magnitude(largest), s->digits[OCT_GATE_WEIGHT], &s->weight[segment * n + o],
                      factor);
        }
    }
}

void oct_grad_write_rows(const oct_context *cx, const oct_grad_leaf *leaf, int64_t position,
                         int64_t rows, const float *grad, float *bias, char *to)
{
    const oct_grad_scales *s = &leaf->sweep->scales;
    const oct_qat_saved *saved = leaf->sweep->saved;
    const int64_t n = saved->plan.shape.out_c, each = s->plan->weight.segment_samples;
    to += (size_t)position * s->plan->grad_row_bytes;
    if (bias) oct_bias_backward(rows, n, n, grad, bias);
    if (!leaf->most) {
        oct_conv_grad_rows(s->plan, rows, grad, saved->ch.scale, to);
        return;
    }
    const uint32_t *keys = s->key + oct_leaf_begin(&cx->leaves, leaf->number) * OCT_GATE_OPERANDS;
    for (int64_t count; rows > 0; rows -= count, position += count, grad += count * n) {
        const int64_t sample = position / leaf->plane, first = position % leaf->plane;
        const int32_t *factor[] = {[OCT_GATE_INPUT] = leaf->most + (2 * sample + 1) * n,
                                   [OCT_GATE_WEIGHT] =
                                       leaf->most + 2 * (sample - sample % each) * n};
        uint8_t *codes = (uint8_t *)to;
        count = oct_min_i64(rows, leaf->plane - first);
        to += (size_t)count * s->plan->grad_row_bytes;
        for (int k = 0; k < OCT_GATE_OPERANDS; k++) {
            const int digits = s->digits[k];
            int64_t errors[OCT_GATE_SUMS] = {0};
            oct_grad_codes c = {.rows = count,
                                .position = first,
                                .key = keys[sample * OCT_GATE_OPERANDS + k],
                                .flip = k == OCT_GATE_INPUT ? OCT_GRAD_FLIP : 0,
                                .grad = grad,
                                .factor = (const float *)factor[k],
                                .codes = codes,
                                .low = digits == 2 ? codes + s->digit_bytes : NULL};
            if (digits == 1 && s->gates && s->gates->measures) {
                c.errors = errors;
                oct_conv_grad_codes(s->plan, &c);
                for (int e = 0; e < OCT_GATE_SUMS; e++)
                    __atomic_fetch_add(&s->gates->items[saved->layer.gate - 1].sums[k][e],
                                       errors[e], __ATOMIC_RELAXED);
            } else if (digits > 0) {
                oct_conv_grad_codes(s->plan, &c);
            }
            codes += (size_t)digits * s->digit_bytes;
        }
    }
}
