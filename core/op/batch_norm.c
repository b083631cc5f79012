/* Batch normalization (Ioffe and Szegedy 2015) takes the global batch, or its norm groups.
 *
 * In training two sums over each group are taken over leaves in double: of x and x*x before forward, of
 * grad_y and grad_y * (x - mean) before backward. Squares of floats are exact in double, so one pass
 * is enough for the variance. Saved are mean and 1/sigma; x itself is still in the step's memory.
 */
#include "core/base/cpu.h"
#include "core/base/int_math.h"
#include "core/base/leaves.h"
#include "core/op/norm_groups.h"
#include "core/op/op_impl.h"
#include "core/op/ops.h"

#include <math.h>
#include <omp.h>
#include <string.h>

enum {
    LANES = 4, /* doubles of a vector */
    MANY = 4,  /* vectors of channels at a time */
    BLOCK_BYTES =
        32 * 1024, /* of each array: first-level caches are smaller, second-level larger */
};

typedef double doubles __attribute__((vector_size(LANES * 8), aligned(8), may_alias));

/* Vectors are handed from function to function, but all of those are inlined. */
#pragma GCC diagnostic ignored "-Wpsabi"

/* Element by element: gcc 12 makes halves of a __builtin_convertvector. */
OCT_INLINE doubles widen(const float *x)
{
    doubles wide;
    for (int i = 0; i < LANES; i++)
        wide[i] = (double)x[i];
    return wide;
}

/* Rows of some channels, `pitch` values apart, whose values and products are summed. */
typedef struct bn_rows {
    int64_t rows, pitch, channels;
    const float *grad, *x; /* at the first of these channels */
    const float *mean;
    double *sum, *product;
    const float *next_grad, *next_x; /* a line of the next block for each row, to prefetch */
} bn_rows;

_Static_assert(LANES *MANY * sizeof(float) == 64, "a row's channels at a time are a cache line");

/* sum += x, product += x * x of `vectors` vectors of channels. */
OCT_INLINE void add_values(int vectors, bn_rows v)
{
    doubles sum[MANY], product[MANY];
    for (int i = 0; i < vectors; i++) {
        sum[i] = *(const doubles *)(v.sum + i * LANES);
        product[i] = *(const doubles *)(v.product + i * LANES);
    }
    for (int64_t r = 0; r < v.rows; r++, v.x += v.pitch) {
        __builtin_prefetch(v.next_x + r * LANES * MANY);
        for (int i = 0; i < vectors; i++) {
            doubles x = widen(v.x + i * LANES);
            sum[i] += x;
            product[i] += x * x;
        }
    }
    for (int i = 0; i < vectors; i++) {
        *(doubles *)(v.sum + i * LANES) = sum[i];
        *(doubles *)(v.product + i * LANES) = product[i];
    }
}

/* sum += grad, product += grad * (x - mean). */
OCT_INLINE void add_grads(int vectors, bn_rows v)
{
    doubles sum[MANY], product[MANY], mean[MANY];
    for (int i = 0; i < vectors; i++) {
        sum[i] = *(const doubles *)(v.sum + i * LANES);
        product[i] = *(const doubles *)(v.product + i * LANES);
        mean[i] = widen(v.mean + i * LANES);
    }
    for (int64_t r = 0; r < v.rows; r++, v.grad += v.pitch, v.x += v.pitch) {
        __builtin_prefetch(v.next_grad + r * LANES * MANY);
        __builtin_prefetch(v.next_x + r * LANES * MANY);
        for (int i = 0; i < vectors; i++) {
            doubles grad = widen(v.grad + i * LANES);
            sum[i] += grad;
            product[i] += grad * (widen(v.x + i * LANES) - mean[i]);
        }
    }
    for (int i = 0; i < vectors; i++) {
        *(doubles *)(v.sum + i * LANES) = sum[i];
        *(doubles *)(v.product + i * LANES) = product[i];
    }
}

/* Returns the same rows from channel c on, with the rows of the next block, which are prefetched meanwhile. */
static bn_rows from_channel(bn_rows v, int64_t c)
{
    int64_t next = v.rows * (v.pitch + c);
    v.next_x = v.x + next;
    v.x += c;
    if (v.grad) {
        v.next_grad = v.grad + next;
        v.grad += c;
        v.mean += c;
    }
    v.sum += c;
    v.product += c;
    return v;
}

/* Adds a block of rows: many vectors of channels at a time in registers, then one, then single channels. */
OCT_CLONES
static void add_block_values(bn_rows v)
{
    int64_t c = 0;
    for (; c + MANY * LANES <= v.channels; c += MANY * LANES)
        add_values(MANY, from_channel(v, c));
    for (; c + LANES <= v.channels; c += LANES)
        add_values(1, from_channel(v, c));
    for (; c < v.channels; c++) {
        for (int64_t r = 0; r < v.rows; r++) {
            double x = (double)v.x[r * v.pitch + c];
            v.sum[c] += x;
            v.product[c] += x * x;
        }
    }
}

/* The same of grad and grad * (x - mean). */
OCT_CLONES static void add_block_grads(bn_rows v)
{
    int64_t c = 0;
    for (; c + MANY * LANES <= v.channels; c += MANY * LANES)
        add_grads(MANY, from_channel(v, c));
    for (; c + LANES <= v.channels; c += LANES)
        add_grads(1, from_channel(v, c));
    for (; c < v.channels; c++) {
        for (int64_t r = 0; r < v.rows; r++) {
            double grad = (double)v.grad[r * v.pitch + c];
            v.sum[c] += grad;
            v.product[c] += grad * ((double)v.x[r * v.pitch + c] - (double)v.mean[c]);
        }
    }
}

/* Sums over rows in order: of x and x * x, or with grad of grad and grad * (x - mean).
 *
 * It adds by blocks of rows that the cache holds, and in one of them keeps some channels at a time in registers; the
 * terms of each channel come in the order of the rows, in double, so the bits do not depend on that. Hardware does not
 * prefetch some channels of one row after the other, so each row asks for a line of the next block. */
static void sum_rows_of_leaf(bn_rows v)
{
    const int64_t block = oct_max_i64(1, BLOCK_BYTES / (v.channels * (int64_t)sizeof(float)));
    int64_t left = v.rows;
    memset(v.sum, 0, (size_t)v.channels * sizeof(double));
    memset(v.product, 0, (size_t)v.channels * sizeof(double));
    for (; left > 0; left -= v.rows) {
        v.rows = oct_min_i64(block, left);
        if (v.grad)
            add_block_grads(v);
        else
            add_block_values(v);
        v.x += v.rows * v.pitch;
        if (v.grad) v.grad += v.rows * v.pitch;
    }
}

/* What the loops below compute with: one value a channel. */
typedef struct bn_terms {
    const float *mean, *scale, *shift, *slope;
} bn_terms;

/* Rows of channels, and what is added to them (NULL: nothing). */
typedef struct bn_sample {
    int64_t rows, channels;
    const float *x, *addend;
} bn_sample;

OCT_INLINE void normalize_bounded(const oct_bound bound, const bool adds, bn_sample s,
                                  const bn_terms *terms, float *restrict y)
{
    const float *mean = terms->mean, *scale = terms->scale, *shift = terms->shift;
    for (int64_t r = 0; r < s.rows; r++, s.x += s.channels, y += s.channels) {
        for (int64_t c = 0; c < s.channels; c++) {
            const float value = (s.x[c] - mean[c]) * scale[c] + shift[c];
            y[c] = oct_bounded(bound, adds ? value + s.addend[c] : value);
        }
        if (adds) s.addend += s.channels;
    }
}

/* y = what `bound` makes of (x - mean) * scale + shift + addend */
OCT_CLONES
static void normalize(oct_bound bound, const bn_sample *s, const bn_terms *terms, float *restrict y)
{
#define CASE(bound)                                                                                \
    case bound:                                                                                    \
        if (s->addend)                                                                             \
            normalize_bounded(bound, true, *s, terms, y);                                          \
        else                                                                                       \
            normalize_bounded(bound, false, *s, terms, y);                                         \
        break;
    switch (bound) {
        CASE(OCT_BOUND_NONE)
        CASE(OCT_BOUND_RELU)
        CASE(OCT_BOUND_RELU6)
    }
#undef CASE
}

/* grad = scale * (grad - shift - (x - mean) * slope), in place */
OCT_CLONES
static void grad_of_input(int64_t rows, int64_t channels, const float *x, const bn_terms *terms,
                          float *restrict grad)
{
    const float *mean = terms->mean, *scale = terms->scale;
    const float *shift = terms->shift, *slope = terms->slope;
    for (int64_t r = 0; r < rows; r++, x += channels, grad += channels) {
        for (int64_t c = 0; c < channels; c++)
            grad[c] = scale[c] * (grad[c] - shift[c] - (x[c] - mean[c]) * slope[c]);
    }
}

/* grad = scale * grad, in place */
OCT_CLONES
static void scale_rows(int64_t rows, int64_t channels, const float *scale, float *restrict grad)
{
    for (int64_t r = 0; r < rows; r++, grad += channels) {
        for (int64_t c = 0; c < channels; c++)
            grad[c] *= scale[c];
    }
}

typedef struct bn_saved {
    oct_deferred output; /* comes first */
    const oct_tensor *x;
    oct_param *gamma, *beta;
    float *mean, *inv, *scale; /* (groups, C) used by forward */
    oct_norm_groups groups;
    bool batch_stats;
} bn_saved;

void oct_bn_running(const oct_bn_args *args, int64_t channels, float *mean, float *inv_std)
{
    memcpy(mean, args->running_mean, (size_t)channels * sizeof(float));
    for (int64_t c = 0; c < channels; c++)
        inv_std[c] = (float)(1.0 / sqrt((double)args->running_var[c] + (double)args->eps));
}

/* Sums the rows of each leaf of the batch: (leaves, 2, C), values and products. `all` begins with the first leaf, and
 * the means with those of the first group; threads share leaves and channels. */
static void sum_leaves(const oct_context *cx, const bn_rows *all, const bn_saved *v,
                       int64_t positions)
{
    const oct_cut cut = oct_cut_columns(cx->leaves.local, all->pitch, omp_get_max_threads());
#pragma omp parallel for schedule(static)
    for (int t = 0; t < cut.threads; t++) {
        for (oct_tile tile = oct_tile_begin(&cut, t); oct_tile_next(&cut, &tile);) {
            bn_rows some = *all;
            const int64_t begin = oct_leaf_begin(&cx->leaves, tile.leaf);
            some.rows = oct_leaf_size(&cx->leaves, tile.leaf) * positions;
            some.channels = tile.end - tile.first;
            some.x += begin * positions * some.pitch + tile.first;
            some.sum += tile.leaf * 2 * some.pitch + tile.first;
            some.product = some.sum + some.pitch;
            if (some.grad) {
                some.grad += begin * positions * some.pitch + tile.first;
                some.mean += oct_norm_group_at(&v->groups, tile.leaf) * some.pitch + tile.first;
            }
            sum_rows_of_leaf(some);
        }
    }
}

/* Returns how many values a channel has in group g, on all ranks. */
static double values_in_group(const bn_saved *v, int64_t positions, int64_t g)
{
    return (double)(oct_norm_group_samples(&v->groups, g) * positions);
}

/* Makes mean and variance of each group of totals (groups, 2, C), the sums of x and x*x. False: one is not finite. */
static bool derive_stats(const oct_bn_stats *stats, const bn_saved *v, int64_t positions,
                         const double *totals)
{
    const int64_t channels = stats->channels;
    bool finite = true;
    for (int64_t g = 0; g < v->groups.count; g++, totals += 2 * channels) {
        const double count = values_in_group(v, positions, g);
        for (int64_t c = 0; c < channels; c++) {
            double mean = totals[c] / count, var = totals[channels + c] / count - mean * mean;
            if (var < 0) var = 0;
            const oct_bn_batch batch = {
                .mean = mean, .var = var, .unbiased = var * count / (count - 1)};
            finite &= oct_bn_update(stats, g, c, &batch);
        }
    }
    return finite;
}

/* Puts mean and 1/sigma of each group into `saved`; the running values move towards the batch's. One that is
 * not finite would damage evaluation and checkpoints while the loss may still look well. */
static bool use_batch_stats(oct_context *cx, const oct_tensor *x, const oct_bn_args *args,
                            bn_saved *saved)
{
    int64_t c = oct_last_dim(x), positions = oct_sample_positions(x);
    oct_bn_stats stats = {.args = args,
                          .groups = saved->groups,
                          .channels = c,
                          .positions = positions,
                          .mean = saved->mean,
                          .inv_std = saved->inv};
    double *rows = oct_scratch(cx, (size_t)((cx->leaves.local + saved->groups.count) * 2 * c) *
                                       sizeof(double));
    if (!rows) return false;
    double *totals = rows + cx->leaves.local * 2 * c;
    sum_leaves(cx, &(bn_rows){.pitch = c, .x = oct_f32(x), .sum = rows}, saved, positions);
    if (oct_bn_stats_begin(cx, &stats) &&
        oct_sum_over_groups(cx, &saved->groups, rows, 2 * c, totals) &&
        !derive_stats(&stats, saved, positions, totals))
        oct_context_fail(cx, OCT_NUMERIC, "the batch's mean or variance is not finite");
    oct_scratch_end(cx, rows);
    return cx->status == OCT_OK;
}

/* Adds each leaf's gradients from its sums (2, C): beta sum(grad), gamma sum(grad * (x - mean)) / sigma. */
static void add_param_grads(oct_context *cx, const bn_saved *v, int64_t channels,
                            const double *rows)
{
    float *gamma = oct_leaf_grads_begin(cx, v->gamma), *beta = oct_leaf_grads_begin(cx, v->beta);
    if (cx->status != OCT_OK) return;
    for (int64_t i = 0; i < cx->leaves.local; i++, rows += 2 * channels) {
        const float *inv = v->inv + oct_norm_group_at(&v->groups, i) * channels;
        for (int64_t c = 0; c < channels; c++) {
            beta[i * channels + c] += (float)rows[c];
            gamma[i * channels + c] += (float)(rows[channels + c] * (double)inv[c]);
        }
    }
    oct_leaf_grads_end(cx, v->gamma);
    oct_leaf_grads_end(cx, v->beta);
}

/* grad_x = gamma / sigma * (grad_y - mean(grad_y) - (x - mean) * slope); running statistics (totals NULL): the first
 * term alone. totals (groups, 2, C): sums of grad_y and grad_y * (x - mean). work: (groups, 3, C). */
static void make_input_grad(const oct_context *cx, const bn_saved *v, const oct_tensor *x,
                            const double *totals, float *work, float *grad)
{
    int64_t channels = oct_last_dim(x), positions = oct_sample_positions(x);
    for (int64_t g = 0; g < v->groups.count; g++) {
        const double *total = totals ? totals + g * 2 * channels : NULL;
        const double count = values_in_group(v, positions, g);
        const float *inv = v->inv + g * channels;
        float *scale = work + g * 3 * channels, *shift = scale + channels;
        float *slope = shift + channels;
        for (int64_t c = 0; c < channels; c++) {
            scale[c] = oct_f32(&v->gamma->value)[c] * inv[c];
            if (!total) continue;
            shift[c] = (float)(total[c] / count);
            slope[c] = (float)(total[channels + c] * (double)inv[c] * (double)inv[c] / count);
        }
    }
    const int64_t samples = oct_dim(x, 0);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < samples; i++) {
        const int64_t g = oct_norm_group_at(&v->groups, i / cx->leaves.leaf);
        const float *scale = work + g * 3 * channels;
        const bn_terms terms = {v->mean + g * channels, scale, scale + channels,
                                scale + 2 * channels};
        const int64_t rows = positions, at = i * positions * channels;
        if (totals)
            grad_of_input(rows, channels, oct_f32(x) + at, &terms, grad + at);
        else
            scale_rows(rows, channels, scale, grad + at);
    }
}

/* The gradient of x takes the sums of grad and grad * (x - mean) over each group, if its statistics were the
 * batch's. */
static void batch_norm_backward(oct_context *cx, oct_node *node)
{
    const bn_saved *v = node->saved;
    oct_tensor *x = node->input[0];
    int64_t c = oct_last_dim(x), positions = oct_sample_positions(x);
    double *rows =
        oct_scratch(cx, (size_t)((cx->leaves.local + v->groups.count) * 2 * c) * sizeof(double));
    float *work = oct_scratch(cx, (size_t)(v->groups.count * 3 * c) * sizeof(float));
    if (!rows || !work) goto out;

    double *totals = rows + cx->leaves.local * 2 * c;
    sum_leaves(
        cx,
        &(bn_rows){
            .pitch = c, .grad = node->output->grad, .x = oct_f32(x), .mean = v->mean, .sum = rows},
        v, positions);
    add_param_grads(cx, v, c, rows);
    if (!x->needs_grad) goto out;
    if (v->batch_stats && !oct_sum_over_groups(cx, &v->groups, rows, 2 * c, totals)) goto out;
    float *grad = oct_detach_grad(node->output);
    make_input_grad(cx, v, x, v->batch_stats ? totals : NULL, work, grad);
    oct_add_grad(cx, x, grad);
out:
    oct_scratch_end(cx, rows);
    oct_scratch_end(cx, work);
}

/* Writes the output of a batch norm (oct_deferred). */
static void write_output(const oct_deferred *output, oct_bound bound, const float *addend,
                         float *to)
{
    const bn_saved *v = (const bn_saved *)(const void *)output;
    const int64_t c = oct_last_dim(v->x), n = oct_sample_positions(v->x) * c;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < oct_dim(v->x, 0); i++) {
        const int64_t g = oct_norm_group_at(&v->groups, i / v->output.cx->leaves.leaf);
        const bn_terms terms = {
            .mean = v->mean + g * c, .scale = v->scale + g * c, .shift = oct_f32(&v->beta->value)};
        const bn_sample sample = {oct_sample_positions(v->x), c, oct_f32(v->x) + i * n,
                                  addend ? addend + i * n : NULL};
        normalize(bound, &sample, &terms, to + i * n);
    }
}

oct_tensor *oct_batch_norm(oct_context *cx, oct_tensor *x, const oct_bn_args *args)
{
    if (!oct_inputs_ok(cx, &x, 1)) return NULL;
    if (!args || !args->running_mean || !args->running_var)
        return oct_context_fail(cx, OCT_USAGE, "batch_norm is called without its arguments");
    if (!oct_needs_params(cx, "batch_norm", args->gamma, args->beta)) return NULL;
    if (!oct_needs_f32(cx, "batch_norm", x) || !oct_needs_batch(cx, "batch_norm", x)) return NULL;
    bn_saved v = {.output = {cx, oct_tensor_settle, write_output, true},
                  .x = x,
                  .gamma = args->gamma,
                  .beta = args->beta,
                  .groups = oct_norm_groups_of(cx, args->batch_stats),
                  .batch_stats = args->batch_stats};
    const int64_t c = x->shape.ndim >= 2 ? oct_last_dim(x) : -1;
    if (c != oct_numel(&args->gamma->value) || c != oct_numel(&args->beta->value))
        return oct_context_fail(
            cx, OCT_USAGE, "batch_norm of %lld channels cannot take the input %s",
            (long long)oct_numel(&args->gamma->value), oct_text_shape(&x->shape).text);
    const int64_t numel = v.groups.count * c;
    /* Where a tape keeps x the output is computed by who reads it. */
    const bool defers = cx->record && !cx->trace;
    oct_tensor *y = defers ? oct_tensor_view(cx, OCT_F32, x->shape, NULL)
                           : oct_tensor_new(cx, OCT_F32, x->shape);
    bn_saved *saved = oct_save(cx, sizeof *saved);
    float *work = oct_save(cx, (size_t)(3 * numel) * sizeof(float));
    if (!y || !saved || !work) return NULL;
    v.mean = work;
    v.inv = work + numel;
    v.scale = work + 2 * numel;
    if (v.batch_stats) {
        if (!use_batch_stats(cx, x, args, &v)) return NULL;
    } else {
        oct_bn_running(args, c, v.mean, v.inv);
    }
    for (int64_t k = 0; k < numel; k++)
        v.scale[k] = oct_f32(&args->gamma->value)[k % c] * v.inv[k];
    *saved = v;
    if (defers)
        y->deferred = &saved->output;
    else
        write_output(&v.output, OCT_BOUND_NONE, NULL, oct_f32(y));
    oct_node *node = oct_record(cx, "batch_norm", batch_norm_backward, &x, 1, true, y);
    if (node) node->saved = saved;
    oct_param_used(cx, args->gamma);
    oct_param_used(cx, args->beta);
    return y;
}
