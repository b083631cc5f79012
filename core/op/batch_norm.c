/* Batch normalization (Ioffe and Szegedy 2015) takes the global batch, or its norm groups.
 *
 * In training two sums over each group are taken over leaves in double: of x and x*x before forward, of
 * grad_y and grad_y * (x - mean) before backward. Squares of floats are exact in double, so one pass
 * is enough for the variance. Saved are mean and 1/sigma; x itself still lies in the step's memory.
 */
#include "core/autograd/leaf_grads.h"
#include "core/base/tiles.h"
#include "core/kernel/batch_norm.h"
#include "core/op/norm_groups.h"
#include "core/op/op_impl.h"
#include "core/op/ops.h"

#include <math.h>
#include <omp.h>
#include <string.h>

typedef struct bn_saved {
    oct_param *gamma, *beta;
    float *mean, *inv; /* (groups, C) used by forward */
    oct_norm_groups groups;
    bool batch_stats;
} bn_saved;

static int64_t positions_of(const oct_tensor *x)
{
    int64_t positions = 1;
    for (int i = 1; i < x->shape.ndim - 1; i++)
        positions *= oct_dim(x, i);
    return positions;
}

void oct_bn_running(const oct_bn_args *args, int64_t channels, float *mean, float *inv_std)
{
    memcpy(mean, args->running_mean, (size_t)channels * sizeof(float));
    for (int64_t c = 0; c < channels; c++)
        inv_std[c] = (float)(1.0 / sqrt((double)args->running_var[c] + (double)args->eps));
}

/* Sums rows of `all` channels leaf by leaf; `all` begins with the first leaf, and the means with those of the
 * first group. */
static void sum_leaves(const oct_context *cx, const oct_bn_rows *all, const bn_saved *v,
                       int64_t positions)
{
    const oct_cut cut = oct_cut_columns(cx->leaves.local, all->pitch, omp_get_max_threads());
#pragma omp parallel for schedule(static)
    for (int t = 0; t < cut.threads; t++) {
        for (oct_tile tile = oct_tile_begin(&cut, t); oct_tile_next(&cut, &tile);) {
            oct_bn_rows some = *all;
            const int64_t begin = oct_leaf_begin(&cx->leaves, tile.leaf);
            some.rows = oct_leaf_size(&cx->leaves, tile.leaf) * positions;
            some.channels = tile.end - tile.first;
            some.x += begin * positions * some.pitch + tile.first;
            some.sums += tile.leaf * 2 * some.pitch + tile.first;
            if (some.grad) some.grad += begin * positions * some.pitch + tile.first;
            if (some.mean)
                some.mean += oct_norm_group_at(&v->groups, tile.leaf) * some.pitch + tile.first;
            oct_bn_sum(&some);
        }
    }
}

/* Returns the values a channel has in group g. */
static double count_of(const bn_saved *v, int64_t positions, int64_t g)
{
    return (double)(oct_norm_group_samples(&v->groups, g) * positions);
}

/* Takes the statistics from totals (groups, 2, C) of x and x*x. */
static bool take_stats(const oct_bn_stats *stats, const bn_saved *v, int64_t positions,
                       const double *totals)
{
    const int64_t channels = stats->channels;
    bool finite = true;
    for (int64_t g = 0; g < v->groups.count; g++, totals += 2 * channels) {
        const double count = count_of(v, positions, g);
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
    int64_t c = oct_dim(x, x->shape.ndim - 1), positions = positions_of(x);
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
    sum_leaves(cx, &(oct_bn_rows){.pitch = c, .x = oct_f32(x), .sums = rows}, saved, positions);
    if (oct_bn_stats_begin(cx, &stats) &&
        oct_sum_over_groups(cx, &saved->groups, rows, 2 * c, totals) &&
        !take_stats(&stats, saved, positions, totals))
        oct_context_fail(cx, OCT_NUMERIC, "the batch's mean or variance is not finite");
    oct_scratch_end(cx, rows);
    return cx->status == OCT_OK;
}

/* Gives gamma and beta each leaf's row of their gradient from its sums. */
static void give_param_grads(oct_context *cx, const bn_saved *v, int64_t channels,
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

/* Turns grad_y into grad_x. totals (groups, 2, C): the sums of each group, NULL for running statistics.
 * work: (groups, 3, C). */
static void input_grad(const oct_context *cx, const bn_saved *v, const oct_tensor *x,
                       const double *totals, float *work, float *grad)
{
    int64_t channels = oct_dim(x, x->shape.ndim - 1), positions = positions_of(x);
    for (int64_t g = 0; g < v->groups.count; g++) {
        const double *total = totals ? totals + g * 2 * channels : NULL;
        const double count = count_of(v, positions, g);
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
        const oct_bn_terms terms = {v->mean + g * channels, scale, scale + channels,
                                    scale + 2 * channels};
        const int64_t rows = positions, at = i * positions * channels;
        if (totals)
            oct_bn_input_grad(rows, channels, oct_f32(x) + at, &terms, grad + at);
        else
            oct_scale_rows(rows, channels, scale, grad + at);
    }
}

static void batch_norm_backward(oct_context *cx, oct_node *node)
{
    const bn_saved *v = node->saved;
    oct_tensor *x = node->input[0];
    int64_t c = oct_dim(x, x->shape.ndim - 1), positions = positions_of(x);
    double *rows =
        oct_scratch(cx, (size_t)((cx->leaves.local + v->groups.count) * 2 * c) * sizeof(double));
    float *work = oct_scratch(cx, (size_t)(v->groups.count * 3 * c) * sizeof(float));
    if (!rows || !work) goto out;

    double *totals = rows + cx->leaves.local * 2 * c;
    sum_leaves(
        cx,
        &(oct_bn_rows){
            .pitch = c, .grad = node->output->grad, .x = oct_f32(x), .mean = v->mean, .sums = rows},
        v, positions);
    give_param_grads(cx, v, c, rows);
    if (!x->needs_grad) goto out;
    if (v->batch_stats && !oct_sum_over_groups(cx, &v->groups, rows, 2 * c, totals)) goto out;
    float *grad = oct_detach_grad(node->output);
    input_grad(cx, v, x, v->batch_stats ? totals : NULL, work, grad);
    oct_add_grad(cx, x, grad);
out:
    oct_scratch_end(cx, rows);
    oct_scratch_end(cx, work);
}

static bool args_fit(oct_context *cx, const oct_tensor *x, const oct_bn_args *args)
{
    char text[96];
    oct_shape_text(&x->shape, text);
    int64_t c = x->shape.ndim >= 2 ? oct_dim(x, x->shape.ndim - 1) : -1;
    if (c != oct_numel(&args->gamma->value) || c != oct_numel(&args->beta->value)) {
        oct_context_fail(cx, OCT_USAGE, "batch_norm of %lld channels cannot take the input %s",
                         (long long)oct_numel(&args->gamma->value), text);
        return false;
    }
    return true;
}

oct_tensor *oct_batch_norm(oct_context *cx, oct_tensor *x, const oct_bn_args *args)
{
    if (!oct_inputs_ok(cx, &x, 1)) return NULL;
    if (!oct_needs_f32(cx, "batch_norm", x) || !oct_needs_batch(cx, "batch_norm", x)) return NULL;
    bn_saved v = {.gamma = args->gamma,
                  .beta = args->beta,
                  .groups = oct_norm_groups_of(cx, args->batch_stats),
                  .batch_stats = args->batch_stats};
    if (!args_fit(cx, x, args)) return NULL;

    const int64_t positions = positions_of(x), c = oct_dim(x, x->shape.ndim - 1);
    const int64_t numel = v.groups.count * c;
    oct_tensor *y = oct_tensor_new(cx, OCT_F32, x->shape);
    bn_saved *saved = oct_save(cx, sizeof *saved);
    float *work = oct_save(cx, (size_t)(3 * numel) * sizeof(float));
    if (!y || !saved || !work) return NULL;
    v.mean = work;
    v.inv = work + numel;
    if (v.batch_stats) {
        if (!use_batch_stats(cx, x, args, &v)) return NULL;
    } else {
        oct_bn_running(args, c, v.mean, v.inv);
    }
    *saved = v;

    float *scale = work + 2 * numel;
    for (int64_t k = 0; k < numel; k++)
        scale[k] = oct_f32(&args->gamma->value)[k % c] * v.inv[k];
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < oct_dim(x, 0); i++) {
        const int64_t g = oct_norm_group_at(&v.groups, i / cx->leaves.leaf);
        const oct_bn_terms terms = {
            .mean = v.mean + g * c, .scale = scale + g * c, .shift = oct_f32(&args->beta->value)};
        oct_bn_normalize(positions, c, oct_f32(x) + i * positions * c, &terms,
                         oct_f32(y) + i * positions * c);
    }

    oct_node *node = oct_record(cx, "batch_norm", batch_norm_backward, &x, 1, true, y);
    if (node) {
        node->saved = saved;
        oct_param_used(cx, args->gamma);
        oct_param_used(cx, args->beta);
    }
    return y;
}
