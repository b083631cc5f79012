/* The gradients of a batch norm in a quantized layer, and of what clips after it. Loops keep 8
 * channels in registers while the rows go by; sums are taken in double, each channel's terms in order of
 * the rows, so no bit depends on how many channels that are. */
#include "core/autograd/tape.h"
#include "quant/module/conv/conv_impl.h"

#include "core/base/cpu.h"
#include "core/base/int_math.h"

#include <omp.h>
#include <string.h>

/* Vectors are handed from function to function, but all of those are inlined. */
#pragma GCC diagnostic ignored "-Wpsabi"

typedef float f32x8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t s32x8 __attribute__((vector_size(32), aligned(4), may_alias));
/* Sums, which stay in registers over a loop, are no wider than AVX2's vectors: gcc 12 keeps wider ones in memory there. */
typedef double f64x4 __attribute__((vector_size(32), aligned(8), may_alias));
typedef double f64x8 __attribute__((vector_size(64)));

/* What loops are compiled for, so that they ask nothing in between. */
typedef struct variant {
    bool values; /* x^ is there as values; otherwise it comes from accumulators */
    bool bytes;  /* eight elements have one byte of the mask */
    bool raises; /* sums are taken with the largest magnitudes */
} variant;

/* Clears those of eight elements whose bits, the lowest eight, are 0. */
OCT_INLINE f32x8 clip(int32_t bits, f32x8 grad)
{
    const s32x8 bit = {1, 2, 4, 8, 16, 32, 64, 128};
    return (f32x8)((s32x8)grad & ((bit & bits) == bit));
}

/* The constants of x^ for eight channels. */
typedef struct normalizer {
    s32x8 offset;
    f32x8 scale, shift;
} normalizer;

/* Loads the constants of x^ = (acc - offset) * scale + shift for eight channels from c on. */
OCT_INLINE normalizer read_normalizer(const variant kind, const oct_normalized *x, int64_t c)
{
    normalizer f = {0};
    if (kind.values) return f;
    f.offset = *(const s32x8 *)(x->offset + c);
    f.scale = *(const f32x8 *)(x->scale + c);
    f.shift = *(const f32x8 *)(x->shift + c);
    return f;
}

/* Returns eight elements of x^, the normalized input: stored, or made again from accumulators. Here as below the next
 * elements, `ahead` of these, are prefetched: loops take the rows
 * some channels at a time, so addresses are too far apart for the hardware prefetcher. */
OCT_INLINE f32x8 normalized_at(const variant kind, const oct_normalized *x, const normalizer *f,
                               int64_t ahead, int64_t i)
{
    if (kind.values) return *(const f32x8 *)(x->values + i);
    __builtin_prefetch(x->acc + ahead + i);
    return __builtin_convertvector(*(const s32x8 *)(x->acc + i) - f->offset, f32x8) * f->scale +
           f->shift;
}

OCT_INLINE float normalized_scalar(const oct_normalized *x, int64_t c, int64_t i)
{
    if (x->values) return x->values[i];
    return (float)(x->acc[i] - x->offset[c]) * x->scale[c] + x->shift[c];
}

/* Returns eight gradients, 0 where the mask says that the output was clipped; their bits may be in two bytes. */
OCT_INLINE f32x8 grad_at(const variant kind, const oct_norm_rows *r, int64_t ahead, int64_t i)
{
    const f32x8 grad = *(const f32x8 *)(r->grad + i);
    const uint64_t bit = (uint64_t)(r->first + i);
    uint16_t two;
    __builtin_prefetch(r->grad + ahead + i);
    if (kind.bytes) return clip(r->mask[bit / 8], grad);
    if (!r->mask) return grad;
    memcpy(&two, r->mask + bit / 8, sizeof two);
    return clip(two >> bit % 8, grad);
}

OCT_INLINE float grad_scalar(const oct_norm_rows *r, int64_t i)
{
    const int64_t bit = r->first + i;
    return !r->mask || (r->mask[bit / 8] >> bit % 8 & 1) ? r->grad[i] : 0.0f;
}

/* Raises eight bits of magnitudes to those of values. */
OCT_INLINE s32x8 raise(s32x8 most, f32x8 v)
{
    const s32x8 bits = (s32x8)v & INT32_MAX;
    for (int i = 0; i < 8; i++)
        most[i] = bits[i] > most[i] ? bits[i] : most[i];
    return most;
}

OCT_CLONES
void oct_grad_raise(int64_t rows, int64_t n, const float *grad, int32_t *restrict most)
{
    for (int64_t i = 0; i < rows * n; i += n)
        for (int64_t c = 0; c < n; c++) {
            int32_t bits;
            memcpy(&bits, grad + i + c, sizeof bits);
            bits &= INT32_MAX;
            most[c] = bits > most[c] ? bits : most[c];
        }
}

/* Of eight channels: sums of g (gradient) and of g x^ (normalized input), and the largest magnitudes of both. */
typedef struct channel_sums {
    f64x4 grad[2], product[2];
    s32x8 most_grad, most_normalized;
} channel_sums;

OCT_INLINE f64x4 half_of(f64x8 v, const int half)
{
    return half == 0 ? __builtin_shufflevector(v, v, 0, 1, 2, 3)
                     : __builtin_shufflevector(v, v, 4, 5, 6, 7);
}

/* Adds eight channels of all rows from channel c on to total (2, n), and raises most (2, n). */
OCT_INLINE void sum_8_channels(const variant kind, const oct_norm_rows *r, int64_t n, int64_t c,
                               double *total, int32_t *most)
{
    const int64_t end = r->rows * n;
    const normalizer f = read_normalizer(kind, &r->normalized, c);
    f64x4 *sum = (f64x4 *)(total + c), *product = (f64x4 *)(total + n + c);
    channel_sums t = {.grad = {sum[0], sum[1]}, .product = {product[0], product[1]}};
    if (kind.raises) {
        t.most_grad = *(const s32x8 *)(most + c);
        t.most_normalized = *(const s32x8 *)(most + n + c);
    }
    for (int64_t i = c; i < end; i += n) {
        const f32x8 g = grad_at(kind, r, end, i);
        const f32x8 x = normalized_at(kind, &r->normalized, &f, end, i);
        const f64x8 wide_g = __builtin_convertvector(g, f64x8);
        const f64x8 wide_x = __builtin_convertvector(x, f64x8);
        for (int half = 0; half < 2; half++) {
            t.grad[half] += half_of(wide_g, half);
            t.product[half] += half_of(wide_g, half) * half_of(wide_x, half);
        }
        if (!kind.raises) continue;
        t.most_grad = raise(t.most_grad, g);
        t.most_normalized = raise(t.most_normalized, x);
    }
    for (int half = 0; half < 2; half++) {
        sum[half] = t.grad[half];
        product[half] = t.product[half];
    }
    if (!kind.raises) return;
    *(s32x8 *)(most + c) = t.most_grad;
    *(s32x8 *)(most + n + c) = t.most_normalized;
}

/* The same of one channel. */
OCT_INLINE void sum_channel(const variant kind, const oct_norm_rows *r, int64_t n, int64_t c,
                            double *total, int32_t *most)
{
    for (int64_t i = c; i < r->rows * n; i += n) {
        const float g = grad_scalar(r, i), x = normalized_scalar(&r->normalized, c, i);
        total[c] += (double)g;
        total[n + c] += (double)g * (double)x;
        if (!kind.raises) continue;
        oct_grad_raise(1, 1, &g, most + c);
        oct_grad_raise(1, 1, &x, most + n + c);
    }
}

/* Adds sums over rows to total (2, n), and raises most: of eight channels at once, then of one. */
OCT_INLINE void sum_rows(const variant kind, const oct_norm_rows *r, int64_t n, double *total,
                         int32_t *most)
{
    int64_t c = r->first_channel;
    for (; c + 8 <= r->end_channel; c += 8)
        sum_8_channels(kind, r, n, c, total, most);
    for (; c < r->end_channel; c++)
        sum_channel(kind, r, n, c, total, most);
}

/* Calls a loop with the variant for these rows of n channels as its first argument, a constant. */
#define CALL_VARIANT(r, n, raising, loop, ...)                                                     \
    do {                                                                                           \
        const bool bytes =                                                                         \
            (r)->mask && (r)->first % 8 == 0 && (r)->first_channel % 8 == 0 && (n) % 8 == 0;       \
        if ((r)->normalized.values && bytes)                                                       \
            loop((variant){.raises = raising, .values = true, .bytes = true}, __VA_ARGS__);        \
        else if ((r)->normalized.values)                                                           \
            loop((variant){.raises = raising, .values = true}, __VA_ARGS__);                       \
        else if (bytes)                                                                            \
            loop((variant){.raises = raising, .bytes = true}, __VA_ARGS__);                        \
        else                                                                                       \
            loop((variant){.raises = raising}, __VA_ARGS__);                                       \
    } while (0)

OCT_CLONES
static void sum_part(const oct_norm_rows *r, int64_t n, double *total, int32_t *most)
{
    const oct_norm_rows rows = *r; /* a copy, which no write to total can change */
    if (most)
        CALL_VARIANT(r, n, true, sum_rows, &rows, n, total, most);
    else
        CALL_VARIANT(r, n, false, sum_rows, &rows, n, total, NULL);
}

/* x^ of 16-bit inputs, whose accumulators have 64 bits. */
OCT_CLONES
static void normalize_wide(int64_t rows, int64_t n, const int64_t *offset, const float *a,
                           const float *b, const int64_t *acc, float *restrict normalized)
{
    for (int64_t i = 0; i < rows; i++, acc += n, normalized += n)
        for (int64_t o = 0; o < n; o++)
            normalized[o] = (float)(acc[o] - offset[o]) * a[o] + b[o];
}

oct_norm_rows oct_grad_leaf_rows(const oct_grad_leaf *leaf, int64_t position, int64_t row,
                                 int64_t rows, const void *acc)
{
    const oct_qat_saved *saved = leaf->sweep->saved;
    const oct_norm_grad *norm = &leaf->norm;
    const int64_t n = norm->n, first = (position + row) * n;
    oct_norm_rows r = {.rows = rows,
                       .mask = leaf->mask,
                       .first = first,
                       .grad = leaf->grad + first,
                       .first_channel = leaf->first_channel,
                       .end_channel = leaf->end_channel};
    if (saved->plan.wide) {
        normalize_wide(rows, n, saved->ch.offset, norm->scale, norm->shift,
                       (const int64_t *)acc + row * n, leaf->part);
        r.normalized.values = leaf->part;
    } else {
        r.normalized = (oct_normalized){.acc = (const int32_t *)acc + row * n,
                                        .offset = saved->ch.offset32,
                                        .scale = norm->scale,
                                        .shift = norm->shift};
    }
    OCT_ASSERT(!r.normalized.values != !r.normalized.acc);
    return r;
}

oct_grad_leaf oct_grad_leaf_of(const oct_context *cx, const oct_grad_sweep *s, int64_t number)
{
    const oct_qat_saved *saved = s->saved;
    const oct_conv_shape *shape = &saved->plan.shape;
    const int64_t begin = oct_leaf_begin(&cx->leaves, number) * oct_conv_out_numel(shape);
    char *scratch = s->scratch + (size_t)omp_get_thread_num() * s->scratch_bytes;
    oct_grad_leaf leaf = {.sweep = s,
                          .number = number,
                          .grad = s->grad + begin,
                          .part = (float *)(void *)scratch,
                          .norm = s->norm};
    if (saved->layer.bn) {
        const int64_t group = oct_norm_group_at(&saved->groups, number) * shape->out_c;
        leaf.norm.gain += group;
        leaf.norm.mean += group;
        leaf.norm.dot += group;
        leaf.norm.scale += group;
        leaf.norm.shift += group;
    }
    leaf.plane = shape->out_h * shape->out_w;
    if (s->scales.most)
        leaf.most = s->scales.most + oct_leaf_begin(&cx->leaves, number) * 2 * shape->out_c;
    if (saved->mask && oct_clips_in_parts(saved->layer.fq))
        leaf.mask = saved->mask + number * saved->mask_stride;
    return leaf;
}

/* Adds the sums of g and of g x^ over a block of accumulators to those of its leaf, in parts that stay in cache. */
static void sum_block(void *args, int64_t position, int64_t positions, void *acc)
{
    const oct_grad_leaf *leaf = args;
    const int64_t n = leaf->norm.n;
    for (int64_t row = 0, rows; row < positions; row += rows) {
        rows = oct_min_i64(oct_part_rows(n), positions - row);
        int32_t *most = leaf->most;
        if (most) { /* a part is of one sample */
            rows = oct_min_i64(rows, leaf->plane - (position + row) % leaf->plane);
            most += (position + row) / leaf->plane * 2 * n;
        }
        const oct_norm_rows part = oct_grad_leaf_rows(leaf, position, row, rows, acc);
        sum_part(&part, n, leaf->norm.sums + leaf->number * 2 * n, most);
    }
}

/* Adds to the gradient of a parameter, leaf by leaf, the sums that begin at `first` of each leaf's: 0 those of g, n
 * those of g x^. */
static void add_leaf_sums(oct_context *cx, oct_param *param, const oct_norm_grad *v, int64_t first)
{
    float *rows = oct_leaf_grads_begin(cx, param);
    for (int64_t i = 0; rows && i < cx->leaves.local; i++)
        for (int64_t o = 0; o < v->n; o++)
            rows[i * v->n + o] += (float)v->sums[i * 2 * v->n + first + o];
    oct_leaf_grads_end(cx, param);
}

/* Takes the means over each group of the gradient and of its product with x^: in training they too depend on
 * every input of the group. */
static void average_groups(oct_context *cx, const oct_qat_saved *saved, oct_norm_grad *v)
{
    const oct_norm_groups *groups = &saved->groups;
    const int64_t n = v->n, positions = oct_conv_out_numel(&saved->plan.shape) / n;
    double *totals = oct_scratch(cx, (size_t)(groups->count * n * 2) * sizeof *totals);
    if (totals && oct_sum_over_groups(cx, groups, v->sums, 2 * n, totals)) {
        for (int64_t g = 0; g < groups->count; g++) {
            const double count = (double)(oct_norm_group_samples(groups, g) * positions);
            const double *total = totals + g * 2 * n;
            for (int64_t o = 0; o < n; o++) {
                v->mean[g * n + o] = (float)(total[o] / count);
                v->dot[g * n + o] = (float)(total[n + o] / count);
            }
        }
    }
    oct_scratch_end(cx, totals);
}

/* Borrows the arrays of a batch norm's backward, computes their constants, and clears means and sums. */
static bool alloc_norm(oct_context *cx, const oct_grad_sweep *s, oct_norm_grad *v)
{
    const oct_qat_saved *saved = s->saved;
    const oct_layer *l = &saved->layer;
    const int64_t n = saved->plan.shape.out_c, all = saved->groups.count * n;
    v->n = n;
    v->gain = oct_scratch(cx, (size_t)(5 * all) * sizeof *v->gain);
    v->sums = oct_scratch(cx, (size_t)((cx->leaves.local + 1) * 2 * n) * sizeof *v->sums);
    if (!v->gain || !v->sums) return false;
    v->mean = v->gain + all;
    v->dot = v->mean + all;
    v->scale = v->dot + all;
    v->shift = v->scale + all;
    for (int64_t i = 0; i < all; i++) {
        const int64_t o = i % n;
        const float bias = l->bias ? oct_f32(&l->bias->value)[o] : 0.0f;
        v->gain[i] = oct_f32(&l->bn->gamma->value)[o] * saved->ch.inv_std[i];
        v->mean[i] = v->dot[i] = 0.0f;
        v->scale[i] = s->acc.x->q.scale * saved->ch.scale[o] * saved->ch.inv_std[i];
        v->shift[i] = (bias - saved->ch.mean[i]) * saved->ch.inv_std[i];
    }
    memset(v->sums, 0, (size_t)(cx->leaves.local * 2 * n) * sizeof *v->sums);
    return true;
}

void oct_norm_grad_begin(oct_context *cx, oct_grad_sweep *s)
{
    const oct_batch_norm_module *bn = s->saved->layer.bn;
    if (!alloc_norm(cx, s, &s->norm)) return;
    /* Over some channels of a leaf at a time where its accumulators are in the buffer. */
    const oct_cut cut = oct_accumulators_cut_channels(cx, &s->acc);
#pragma omp parallel for schedule(static)
    for (int t = 0; t < cut.threads; t++) {
        for (oct_tile tile = oct_tile_begin(&cut, t); oct_tile_next(&cut, &tile);) {
            const oct_tile whole = oct_whole_leaf(cx, tile.leaf);
            oct_grad_leaf leaf = oct_grad_leaf_of(cx, s, tile.leaf);
            leaf.first_channel = tile.first;
            leaf.end_channel = tile.end;
            oct_accumulators_pass(cx, &s->acc, &whole, sum_block, &leaf);
        }
    }
    s->acc.computed = true;
    add_leaf_sums(cx, bn->beta, &s->norm, 0);
    add_leaf_sums(cx, bn->gamma, &s->norm, s->norm.n);
    if (s->saved->live) average_groups(cx, s->saved, &s->norm);
}

/* Writes gain * (g - mean - x^ dot), the gradient of batch norm's input, times factor: of 8 channels, then of one. */
OCT_INLINE void live_rows(const variant kind, const oct_norm_grad *v, const oct_norm_rows *r,
                          const float *factor, bool clips, float *out)
{
    const int64_t n = v->n, end = r->rows * n;
    int64_t c = 0;
    for (; c + 8 <= n; c += 8) {
        const normalizer f = read_normalizer(kind, &r->normalized, c);
        const f32x8 gain = *(const f32x8 *)(v->gain + c), mean = *(const f32x8 *)(v->mean + c);
        const f32x8 dot = *(const f32x8 *)(v->dot + c);
        f32x8 times = (f32x8){0} + 1.0f;
        if (factor) times = *(const f32x8 *)(factor + c);
        for (int64_t i = c; i < end; i += n) {
            const f32x8 grad = grad_at(kind, r, end, i);
            if (clips) *(f32x8 *)(r->grad + i) = grad;
            *(f32x8 *)(out + i) =
                gain * (grad - mean - normalized_at(kind, &r->normalized, &f, end, i) * dot) *
                times;
        }
    }
    for (; c < n; c++) {
        const float times = factor ? factor[c] : 1.0f;
        for (int64_t i = c; i < end; i += n) {
            const float grad = grad_scalar(r, i);
            if (clips) r->grad[i] = grad;
            out[i] = v->gain[c] *
                     (grad - v->mean[c] - normalized_scalar(&r->normalized, c, i) * v->dot[c]) *
                     times;
        }
    }
}

OCT_CLONES
void oct_norm_grad_live(const oct_norm_grad *v, const oct_norm_rows *r, const float *factor,
                        bool clips, float *out)
{
    const oct_norm_grad norm = *v;
    const oct_norm_rows rows = *r;
    CALL_VARIANT(r, v->n, false, live_rows, &norm, &rows, factor, clips, out);
}

OCT_CLONES
void oct_norm_grad_frozen(int64_t rows, int64_t n, const float *restrict gain, const float *grad,
                          float *out)
{
    for (int64_t r = 0; r < rows; r++, grad += n, out += n)
        for (int64_t c = 0; c < n; c++)
            out[c] = gain[c] * grad[c];
}
