/* The gradients of a batch norm in a quantized layer, and of what clips after it. Loops keep 16 or 8
 * channels in registers while the rows go by; sums are taken in double, each channel's terms in order of
 * the rows, so no bit depends on how many channels that are. */
#include "core/autograd/leaf_grads.h"
#include "quant/module/conv/conv_impl.h"

#include "core/base/cpu.h"

#include <string.h>

bool oct_norm_grad_begin(oct_context *cx, int64_t n, const oct_norm_groups *groups,
                         oct_norm_grad *v)
{
    const size_t each = (size_t)(groups->count * n), leaves = (size_t)cx->leaves.local;
    *v = (oct_norm_grad){.n = n, .groups = *groups};
    v->gain = oct_scratch(cx, each * 3 * sizeof *v->gain);
    v->sums = oct_scratch(cx, (leaves + 1) * (size_t)n * 2 * sizeof *v->sums);
    if (!v->gain || !v->sums) return false;
    v->mean = v->gain + each;
    v->dot = v->mean + each;
    memset(v->sums, 0, leaves * (size_t)n * 2 * sizeof *v->sums);
    return true;
}

oct_norm_grad oct_norm_grad_of_leaf(const oct_norm_grad *v, int64_t leaf)
{
    oct_norm_grad own = *v;
    const int64_t at = oct_norm_group_at(&v->groups, leaf) * v->n;
    own.gain += at;
    own.mean += at;
    own.dot += at;
    return own;
}

void oct_norm_grad_end(oct_context *cx, oct_norm_grad *v)
{
    oct_scratch_end(cx, v->sums);
    oct_scratch_end(cx, v->gain);
}

/* Vectors are handed from function to function, but all of those are inlined. */
#pragma GCC diagnostic ignored "-Wpsabi"

typedef float eight __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t whole __attribute__((vector_size(32), aligned(4), may_alias));
typedef double wide __attribute__((vector_size(64), aligned(8), may_alias));

#define INLINE static inline __attribute__((always_inline))

/* Loops are compiled for x^ as values or from accumulators, and for masks with eight elements in every
 * byte. */
typedef struct kind {
    bool values, bytes;
} kind;

static bool has_bytes(const oct_norm_rows *r, int64_t n)
{
    return r->mask && r->first % 8 == 0 && r->channel % 8 == 0 && n % 8 == 0;
}

/* Clears those of eight elements whose bits, the lowest eight, are 0. */
INLINE eight clip(int32_t bits, eight grad)
{
    const whole bit = {1, 2, 4, 8, 16, 32, 64, 128};
    return (eight)((whole)grad & ((bit & bits) == bit));
}

/* The constants of x^ for eight channels. */
typedef struct affine {
    whole offset;
    eight a, b;
} affine;

INLINE affine affine_at(const kind k, const oct_normalized *x, int64_t c)
{
    affine f = {0};
    if (k.values) return f;
    f.offset = *(const whole *)(x->offset + c);
    f.a = *(const eight *)(x->a + c);
    f.b = *(const eight *)(x->b + c);
    return f;
}

/* Returns eight elements of x^. Here as below the next part is prefetched: loops take the rows some
 * channels at a time, so addresses are too far apart for the hardware prefetcher. */
INLINE eight normalized_at(const kind k, const oct_normalized *x, const affine *f, int64_t part,
                           int64_t i)
{
    if (k.values) return *(const eight *)(x->values + i);
    __builtin_prefetch(x->acc + part + i);
    return __builtin_convertvector(*(const whole *)(x->acc + i) - f->offset, eight) * f->a + f->b;
}

INLINE float normalized_of_one(const oct_normalized *x, int64_t c, int64_t i)
{
    if (x->values) return x->values[i];
    return (float)(x->acc[i] - x->offset[c]) * x->a[c] + x->b[c];
}

/* Returns eight elements of g, clipped. */
INLINE eight grad_at(const kind k, const oct_norm_rows *r, int64_t part, int64_t i)
{
    const eight grad = *(const eight *)(r->grad + i);
    const uint64_t at = (uint64_t)(r->first + i);
    uint16_t two;
    __builtin_prefetch(r->grad + part + i);
    if (k.bytes) return clip(r->mask[at / 8], grad);
    if (!r->mask) return grad;
    memcpy(&two, r->mask + at / 8, sizeof two);
    return clip(two >> at % 8, grad);
}

INLINE float grad_of_one(const oct_norm_rows *r, int64_t i)
{
    const int64_t at = r->first + i;
    return !r->mask || (r->mask[at / 8] >> at % 8 & 1) ? r->grad[i] : 0.0f;
}

INLINE void sum_eight(const kind k, const oct_norm_rows *r, const affine *f, int64_t part,
                      int64_t i, wide *sum, wide *product)
{
    const wide g = __builtin_convertvector(grad_at(k, r, part, i), wide);
    *sum += g;
    *product += g * __builtin_convertvector(normalized_at(k, &r->normalized, f, part, i), wide);
}

INLINE void sum_one(const oct_norm_rows *r, int64_t n, int64_t c, double *total)
{
    for (int64_t i = c; i < r->rows * n; i += n) {
        const double g = (double)grad_of_one(r, i);
        total[c] += g;
        total[n + c] += g * (double)normalized_of_one(&r->normalized, c, i);
    }
}

INLINE void sum_rows(const kind k, const oct_norm_rows *r, int64_t n, double *total)
{
    const int64_t end = r->rows * n;
    int64_t c = r->channel;
    const int64_t last = r->end;
    for (; c + 16 <= last; c += 16) {
        const affine f0 = affine_at(k, &r->normalized, c), f1 = affine_at(k, &r->normalized, c + 8);
        wide *sum = (wide *)(total + c), *product = (wide *)(total + n + c);
        wide s0 = sum[0], s1 = sum[1], p0 = product[0], p1 = product[1];
        for (int64_t i = c; i < end; i += n) {
            sum_eight(k, r, &f0, end, i, &s0, &p0);
            sum_eight(k, r, &f1, end, i + 8, &s1, &p1);
        }
        sum[0] = s0;
        sum[1] = s1;
        product[0] = p0;
        product[1] = p1;
    }
    for (; c + 8 <= last; c += 8) {
        const affine f = affine_at(k, &r->normalized, c);
        wide s = *(wide *)(total + c), p = *(wide *)(total + n + c);
        for (int64_t i = c; i < end; i += n)
            sum_eight(k, r, &f, end, i, &s, &p);
        *(wide *)(total + c) = s;
        *(wide *)(total + n + c) = p;
    }
    for (; c < last; c++)
        sum_one(r, n, c, total);
}

OCT_CLONES
static void sum_values(const oct_norm_rows *r, int64_t n, double *total)
{
    const oct_norm_rows own = *r; /* which nothing that is written can change */
    if (has_bytes(r, n))
        sum_rows((kind){.values = true, .bytes = true}, &own, n, total);
    else
        sum_rows((kind){.values = true}, &own, n, total);
}

OCT_CLONES
static void sum_acc(const oct_norm_rows *r, int64_t n, double *total)
{
    const oct_norm_rows own = *r;
    if (has_bytes(r, n))
        sum_rows((kind){.bytes = true}, &own, n, total);
    else
        sum_rows((kind){0}, &own, n, total);
}

void oct_norm_grad_sum(const oct_norm_grad *v, int64_t leaf, const oct_norm_rows *r)
{
    (r->normalized.values ? sum_values : sum_acc)(r, v->n, v->sums + leaf * 2 * v->n);
}

/* Adds the leaves' sums at `at` to the gradient rows of a parameter of n elements. */
static void add_leaf_sums(oct_context *cx, oct_param *param, const oct_norm_grad *v, int64_t at)
{
    float *rows = oct_leaf_grads_begin(cx, param);
    for (int64_t i = 0; rows && i < cx->leaves.local; i++)
        for (int64_t o = 0; o < v->n; o++)
            rows[i * v->n + o] += (float)v->sums[i * 2 * v->n + at + o];
    oct_leaf_grads_end(cx, param);
}

/* Takes the means over each group of the gradient and of its product with x^: in training they too depend on
 * every input of the group. */
static void group_means(oct_context *cx, int64_t positions, oct_norm_grad *v)
{
    const int64_t n = v->n;
    double *totals = oct_scratch(cx, (size_t)(v->groups.count * n * 2) * sizeof *totals);
    if (totals && oct_sum_over_groups(cx, &v->groups, v->sums, 2 * n, totals)) {
        for (int64_t g = 0; g < v->groups.count; g++) {
            const double count = (double)(oct_norm_group_samples(&v->groups, g) * positions);
            const double *total = totals + g * 2 * n;
            for (int64_t o = 0; o < n; o++) {
                v->mean[g * n + o] = (float)(total[o] / count);
                v->dot[g * n + o] = (float)(total[n + o] / count);
            }
        }
    }
    oct_scratch_end(cx, totals);
}

bool oct_norm_grad_reduce(oct_context *cx, const oct_batch_norm_module *bn, const float *inv_std,
                          bool live, int64_t positions, oct_norm_grad *v)
{
    for (int64_t i = 0; i < v->groups.count * v->n; i++) {
        v->gain[i] = oct_f32(&bn->gamma->value)[i % v->n] * inv_std[i];
        v->mean[i] = v->dot[i] = 0.0f;
    }
    add_leaf_sums(cx, bn->beta, v, 0);
    add_leaf_sums(cx, bn->gamma, v, v->n);
    if (live) group_means(cx, positions, v);
    return cx->status == OCT_OK;
}

INLINE void live_rows(const kind k, const oct_norm_grad *v, const oct_norm_rows *r,
                      const float *factor, bool clip_too, float *out)
{
    const int64_t n = v->n, end = r->rows * n;
    int64_t c = 0;
    for (; c + 8 <= n; c += 8) {
        const affine f = affine_at(k, &r->normalized, c);
        const eight gain = *(const eight *)(v->gain + c), mean = *(const eight *)(v->mean + c);
        const eight dot = *(const eight *)(v->dot + c);
        eight times = (eight){0} + 1.0f;
        if (factor) times = *(const eight *)(factor + c);
        for (int64_t i = c; i < end; i += n) {
            const eight grad = grad_at(k, r, end, i);
            if (clip_too) *(eight *)(r->grad + i) = grad;
            *(eight *)(out + i) =
                gain * (grad - mean - normalized_at(k, &r->normalized, &f, end, i) * dot) * times;
        }
    }
    for (; c < n; c++) {
        const float times = factor ? factor[c] : 1.0f;
        for (int64_t i = c; i < end; i += n) {
            const float grad = grad_of_one(r, i);
            if (clip_too) r->grad[i] = grad;
            out[i] = v->gain[c] *
                     (grad - v->mean[c] - normalized_of_one(&r->normalized, c, i) * v->dot[c]) *
                     times;
        }
    }
}

OCT_CLONES
static void live_values(const oct_norm_grad *v, const oct_norm_rows *r, const float *factor,
                        bool clip_too, float *out)
{
    const oct_norm_grad norm = *v;
    const oct_norm_rows own = *r;
    if (has_bytes(r, v->n))
        live_rows((kind){.values = true, .bytes = true}, &norm, &own, factor, clip_too, out);
    else
        live_rows((kind){.values = true}, &norm, &own, factor, clip_too, out);
}

OCT_CLONES
static void live_acc(const oct_norm_grad *v, const oct_norm_rows *r, const float *factor,
                     bool clip_too, float *out)
{
    const oct_norm_grad norm = *v;
    const oct_norm_rows own = *r;
    if (has_bytes(r, v->n))
        live_rows((kind){.bytes = true}, &norm, &own, factor, clip_too, out);
    else
        live_rows((kind){0}, &norm, &own, factor, clip_too, out);
}

void oct_norm_grad_live(const oct_norm_grad *v, const oct_norm_rows *r, const float *factor,
                        bool clip_too, float *out)
{
    (r->normalized.values ? live_values : live_acc)(v, r, factor, clip_too, out);
}

OCT_CLONES
static void frozen_rows(int64_t rows, int64_t n, const float *restrict gain, const float *grad,
                        float *out)
{
    for (int64_t r = 0; r < rows; r++, grad += n, out += n)
        for (int64_t c = 0; c < n; c++)
            out[c] = gain[c] * grad[c];
}

void oct_norm_grad_frozen(const oct_norm_grad *v, int64_t rows, const float *grad, float *out)
{
    frozen_rows(rows, v->n, v->gain, grad, out);
}
