/* Layer and group normalization bring sets of values of each sample to mean 0 and variance 1 (Ba et al. 2016,
 * Wu and He 2018).
 *
 * A plane of a sample is `positions` rows of all channels, and a set is `width` neighbouring channels of it:
 * of a layer norm a plane is one row and a set all of it; of a group norm a plane is the sample. Sums are
 * taken in double, in the order of the values, so no bit depends on what else is in the batch. */
#include "core/op/op_impl.h"

#include <math.h>

typedef struct norm_sets {
    int64_t channels, width;
    int64_t planes, positions; /* of a sample, of a plane */
    double eps;
} norm_sets;

/* Mean and 1/sigma of a set. */
typedef struct norm_moments {
    double mean, inv;
} norm_moments;

typedef struct norm_saved {
    oct_param *gamma, *beta;
    norm_sets sets;
    norm_moments *moments;
} norm_saved;

static int64_t sets_of_sample(const norm_sets *s)
{
    return s->planes * (s->channels / s->width);
}

static int64_t first_channel(const norm_sets *s, int64_t set)
{
    return set % (s->channels / s->width) * s->width;
}

/* The first value of a set, after the sample's first. */
static int64_t first_value(const norm_sets *s, int64_t set)
{
    return set / (s->channels / s->width) * s->positions * s->channels + first_channel(s, set);
}

/* Mean and 1/sigma of a set: `width` neighbouring channels of `positions` rows, from x on. */
static norm_moments moments_of_set(const norm_sets *s, const float *x)
{
    const double count = (double)(s->positions * s->width);
    double sum = 0, squares = 0;
    for (int64_t p = 0; p < s->positions; p++)
        for (int64_t c = 0; c < s->width; c++)
            sum += (double)x[p * s->channels + c];
    const double mean = sum / count;
    for (int64_t p = 0; p < s->positions; p++) {
        for (int64_t c = 0; c < s->width; c++) {
            const double deviation = (double)x[p * s->channels + c] - mean;
            squares += deviation * deviation;
        }
    }
    return (norm_moments){mean, 1.0 / sqrt(squares / count + s->eps)};
}

/* y = (x - mean) / sigma * gamma + beta for the values of one set; x and y point to its first. */
static void normalize_set(const norm_saved *v, int64_t set, const float *x, float *y)
{
    const norm_sets *s = &v->sets;
    const float *gamma = oct_f32(&v->gamma->value) + first_channel(s, set);
    const float *beta = oct_f32(&v->beta->value) + first_channel(s, set);
    const norm_moments m = v->moments[set];
    for (int64_t p = 0; p < s->positions; p++) {
        for (int64_t c = 0; c < s->width; c++) {
            const double value = ((double)x[p * s->channels + c] - m.mean) * m.inv;
            y[p * s->channels + c] = (float)(value * (double)gamma[c] + (double)beta[c]);
        }
    }
}

/* Adds grad_y and grad_y * normal, where normal = (x - mean) * inv, to the sums (2, C) of beta and gamma, and makes
 * grad_y the gradient of x: inv * (g - mean(g) - normal * mean(g * normal)) with g = grad_y * gamma. */
static void set_backward(const norm_saved *v, norm_moments m, int64_t channel, const float *x,
                         float *grad, double *sums)
{
    const norm_sets *s = &v->sets;
    const float *gamma = oct_f32(&v->gamma->value) + channel;
    const double count = (double)(s->positions * s->width);
    double mean = 0, slope = 0;
    for (int64_t p = 0; p < s->positions; p++) {
        for (int64_t c = 0; c < s->width; c++) {
            const int64_t at = p * s->channels + c;
            const double normal = ((double)x[at] - m.mean) * m.inv, g = (double)grad[at];
            sums[channel + c] += g;
            sums[s->channels + channel + c] += g * normal;
            mean += g * (double)gamma[c];
            slope += g * (double)gamma[c] * normal;
        }
    }
    mean /= count;
    slope /= count;
    for (int64_t p = 0; p < s->positions; p++) {
        for (int64_t c = 0; c < s->width; c++) {
            const int64_t at = p * s->channels + c;
            const double normal = ((double)x[at] - m.mean) * m.inv;
            grad[at] =
                (float)(m.inv * ((double)grad[at] * (double)gamma[c] - mean - normal * slope));
        }
    }
}

/* Adds the sums of each leaf, (leaves, 2, C), to its rows of the gradients of beta and gamma. */
static void add_param_grads(oct_context *cx, const norm_saved *v, const double *sums)
{
    const int64_t channels = v->sets.channels;
    float *gamma = oct_leaf_grads_begin(cx, v->gamma), *beta = oct_leaf_grads_begin(cx, v->beta);
    if (cx->status != OCT_OK) return;
    for (int64_t i = 0; i < cx->leaves.local * channels; i++) {
        const double *of_leaf = sums + i / channels * 2 * channels + i % channels;
        beta[i] += (float)of_leaf[0];
        gamma[i] += (float)of_leaf[channels];
    }
    oct_leaf_grads_end(cx, v->gamma);
    oct_leaf_grads_end(cx, v->beta);
}

/* Runs the backward of all sets; threads share the leaves, each with its sums for gamma and beta. */
static void norm_backward(oct_context *cx, oct_node *node)
{
    const norm_saved *v = node->saved;
    const norm_sets *s = &v->sets;
    const float *x = oct_f32(node->input[0]);
    const int64_t width = 2 * s->channels, n = s->planes * s->positions * s->channels;
    const int64_t sets = sets_of_sample(s);
    double *sums = oct_scratch(cx, (size_t)(cx->leaves.local * width) * sizeof(double));
    if (!sums) return;
    float *grad = oct_detach_grad(node->output);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < cx->leaves.local; i++) {
        const int64_t first = oct_leaf_begin(&cx->leaves, i);
        const int64_t end = first + oct_leaf_size(&cx->leaves, i);
        for (int64_t k = 0; k < width; k++)
            sums[i * width + k] = 0;
        for (int64_t k = first * sets; k < end * sets; k++) { /* set k % sets of sample k / sets */
            const int64_t at = k / sets * n + first_value(s, k % sets);
            set_backward(v, v->moments[k], first_channel(s, k % sets), x + at, grad + at,
                         sums + i * width);
        }
    }
    add_param_grads(cx, v, sums);
    oct_scratch_end(cx, sums);
    oct_add_grad(cx, node->input[0], grad);
}

/* Runs and records either norm, whose sets `v` has. */
static oct_tensor *normalize(oct_context *cx, const char *op, oct_tensor *x, const norm_saved *v)
{
    const norm_sets *s = &v->sets;
    const int64_t sets = sets_of_sample(s), samples = oct_dim(x, 0);
    const int64_t n = s->planes * s->positions * s->channels;
    oct_tensor *y = oct_tensor_new(cx, OCT_F32, x->shape);
    norm_saved *saved = oct_save(cx, sizeof *saved);
    norm_moments *moments = oct_save(cx, (size_t)(samples * sets) * sizeof *moments);
    if (!y || !saved || !moments) return NULL;
    *saved = *v;
    saved->moments = moments;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < samples; i++) {
        norm_saved of_sample = *v;
        of_sample.moments = moments + i * sets;
        for (int64_t k = 0; k < sets; k++) {
            const int64_t at = i * n + first_value(s, k);
            of_sample.moments[k] = moments_of_set(s, oct_f32(x) + at);
            normalize_set(&of_sample, k, oct_f32(x) + at, oct_f32(y) + at);
        }
    }
    oct_node *node = oct_record(cx, op, norm_backward, &x, 1, true, y);
    if (node) node->saved = saved;
    oct_param_used(cx, v->gamma);
    oct_param_used(cx, v->beta);
    return y;
}

/* Fails the context unless x is a batch of rows of as many channels as the parameters have. */
static bool input_fits(oct_context *cx, const char *op, const oct_tensor *x, const norm_saved *v)
{
    if (!oct_needs_params(cx, op, v->gamma, v->beta)) return false;
    const int64_t channels = oct_numel(&v->gamma->value);
    if (!oct_needs_f32(cx, op, x) || !oct_needs_batch(cx, op, x)) return false;
    if (x->shape.ndim >= 2 && oct_last_dim(x) == channels && oct_numel(&v->beta->value) == channels)
        return true;
    return oct_context_fail(cx, OCT_USAGE, "%s of %lld channels cannot take the input %s", op,
                            (long long)channels, oct_text_shape(&x->shape).text);
}

oct_tensor *oct_layer_norm(oct_context *cx, oct_tensor *x, oct_param *gamma, oct_param *beta,
                           double eps)
{
    if (!oct_inputs_ok(cx, &x, 1)) return NULL;
    norm_saved v = {.gamma = gamma, .beta = beta};
    if (!input_fits(cx, "layer_norm", x, &v)) return NULL;
    const int64_t channels = oct_numel(&gamma->value);
    v.sets = (norm_sets){channels, channels, oct_sample_positions(x), 1, eps};
    return normalize(cx, "layer_norm", x, &v);
}

oct_tensor *oct_group_norm(oct_context *cx, oct_tensor *x, oct_param *gamma, oct_param *beta,
                           int64_t groups, double eps)
{
    if (!oct_inputs_ok(cx, &x, 1)) return NULL;
    norm_saved v = {.gamma = gamma, .beta = beta};
    if (!input_fits(cx, "group_norm", x, &v)) return NULL;
    const int64_t channels = oct_numel(&gamma->value);
    if (groups < 1 || channels % groups != 0)
        return oct_context_fail(cx, OCT_USAGE,
                                "group_norm: %lld channels are not %lld equal groups",
                                (long long)channels, (long long)groups);
    v.sets = (norm_sets){channels, channels / groups, 1, oct_sample_positions(x), eps};
    return normalize(cx, "group_norm", x, &v);
}
