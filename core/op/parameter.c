/* A parameter is a value of its own (a token), or is added to or multiplied with each sample. */
#include "core/base/cpu.h"
#include "core/op/op_impl.h"

#include <string.h>

enum { AFTER_BATCH = OCT_MAX_DIMS - 1 };

/* The dimensions of a sample, and how far the parameter moves along each: not at all where it is repeated. */
typedef struct spread {
    int64_t size[AFTER_BATCH], step[AFTER_BATCH];
    int64_t numel; /* of a sample */
} spread;

typedef struct parameter_saved {
    oct_param *weight;
    spread spread;
} parameter_saved;

/* Computes the steps of `weight` along the dimensions of a sample, 0 where it repeats; false: it does not fit. */
static bool spread_over_samples(const oct_shape *shape, const oct_shape *weight, spread *s)
{
    const int dims = shape->ndim - 1, before = AFTER_BATCH - dims;
    int64_t step = 1;
    if (dims < 1 || weight->ndim != dims) return false;
    *s = (spread){.numel = 1};
    for (int i = 0; i < before; i++)
        s->size[i] = 1;
    for (int i = dims - 1; i >= 0; i--) {
        const int64_t size = shape->dim[i + 1], weight_size = weight->dim[i];
        if (weight_size != size && weight_size != 1) return false;
        s->size[before + i] = size;
        s->step[before + i] = weight_size == 1 ? 0 : step;
        step *= weight_size;
        s->numel *= size;
    }
    return true;
}

/* Values are gone through row by row: the last dimension. */
static int64_t rows_of(const spread *s)
{
    return s->size[0] * s->size[1];
}

/* Where the parameter of a row begins. */
static int64_t parameter_row(const spread *s, int64_t row)
{
    return row / s->size[1] * s->step[0] + row % s->size[1] * s->step[1];
}

/* Adds one sample's gradient of the parameter to sums. x: what each gradient is multiplied with, or NULL. */
static void add_sample_grad(const spread *s, const float *grad, const float *x, double *sums)
{
    const int64_t width = s->size[2], step = s->step[2];
    for (int64_t r = 0; r < rows_of(s); r++) {
        double *to = sums + parameter_row(s, r);
        for (int64_t i = 0; i < width; i++) {
            const int64_t at = r * width + i;
            to[i * step] += (double)grad[at] * (x ? (double)x[at] : 1.0);
        }
    }
}

/* Adds the gradient of the parameter, a row for each leaf: summed in double, in the order of samples and values. */
static void add_weight_grad(oct_context *cx, const parameter_saved *v, const float *grad,
                            const float *x)
{
    const int64_t n = oct_numel(&v->weight->value), leaves = cx->leaves.local;
    double *sums = oct_scratch(cx, (size_t)(leaves * n) * sizeof *sums);
    float *rows = sums ? oct_leaf_grads_begin(cx, v->weight) : NULL;
    if (rows) {
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < leaves; i++) {
            const int64_t first = oct_leaf_begin(&cx->leaves, i);
            double *leaf_sums = sums + i * n;
            memset(leaf_sums, 0, (size_t)n * sizeof *leaf_sums);
            for (int64_t k = 0; k < oct_leaf_size(&cx->leaves, i); k++) {
                const int64_t at = (first + k) * v->spread.numel;
                add_sample_grad(&v->spread, grad + at, x ? x + at : NULL, leaf_sums);
            }
            for (int64_t k = 0; k < n; k++)
                rows[i * n + k] += (float)leaf_sums[k];
        }
        oct_leaf_grads_end(cx, v->weight);
    }
    oct_scratch_end(cx, sums);
}

/* Defines y = x (operation) parameter, of a sample; x and y may be the same. */
#define SAMPLE_LOOP(name, operation)                                                               \
    OCT_CLONES                                                                                     \
    static void name(const spread *s, const float *x, const float *w, float *y)                    \
    {                                                                                              \
        const int64_t width = s->size[2];                                                          \
        for (int64_t r = 0; r < rows_of(s); r++) {                                                 \
            const float *weights = w + parameter_row(s, r);                                        \
            for (int64_t i = 0; i < width; i++)                                                    \
                y[r * width + i] = x[r * width + i] operation weights[i * s->step[2]];             \
        }                                                                                          \
    }
SAMPLE_LOOP(add_to_sample, +)
SAMPLE_LOOP(multiply_sample, *)

static void parameter_backward(oct_context *cx, oct_node *node)
{
    add_weight_grad(cx, node->saved, node->output->grad, NULL);
}

static void add_backward(oct_context *cx, oct_node *node)
{
    add_weight_grad(cx, node->saved, node->output->grad, NULL);
    oct_add_grad(cx, node->input[0], oct_detach_grad(node->output));
}

static void mul_backward(oct_context *cx, oct_node *node)
{
    const parameter_saved *v = node->saved;
    add_weight_grad(cx, v, node->output->grad, oct_f32(node->input[0]));
    float *grad = oct_detach_grad(node->output);
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < oct_samples(node->input[0]); n++)
        multiply_sample(&v->spread, grad + n * v->spread.numel, oct_f32(&v->weight->value),
                        grad + n * v->spread.numel);
    oct_add_grad(cx, node->input[0], grad);
}

/* Makes the output y, samples of `shape`, and *saved, what the backward needs; NULL with the context failed. */
static oct_tensor *make_output(oct_context *cx, const char *op, const oct_tensor *x,
                               oct_shape shape, parameter_saved **saved, oct_param *weight)
{
    spread s;
    if (!oct_needs_batch(cx, op, x)) return NULL;
    shape.dim[0] = oct_dim(x, 0);
    if (!spread_over_samples(&shape, &weight->value.shape, &s))
        return oct_context_fail(cx, OCT_USAGE,
                                "%s: a parameter %s does not fit samples of %s; each of its "
                                "dimensions is the sample's or 1",
                                op, oct_text_shape(&weight->value.shape).text,
                                oct_text_shape(&shape).text);
    oct_tensor *y = oct_tensor_new(cx, OCT_F32, shape);
    *saved = oct_save(cx, sizeof **saved);
    if (!y || !*saved) return NULL;
    **saved = (parameter_saved){weight, s};
    return y;
}

typedef void backward_fn(oct_context *cx, oct_node *node);

/* Records y on the tape as made from x and the parameter. */
static oct_tensor *record_parameter(oct_context *cx, const char *op, backward_fn *backward,
                                    oct_tensor *x, oct_tensor *y, parameter_saved *saved)
{
    oct_node *node = oct_record(cx, op, backward, &x, 1, true, y);
    if (node) node->saved = saved;
    oct_param_used(cx, saved->weight);
    return y;
}

oct_tensor *oct_parameter(oct_context *cx, oct_tensor *x, oct_param *weight)
{
    if (!oct_inputs_ok(cx, &x, 1) || !oct_needs_params(cx, "parameter", weight, weight))
        return NULL;
    const oct_shape *dims = &weight->value.shape;
    if (dims->ndim >= OCT_MAX_DIMS)
        return oct_context_fail(cx, OCT_USAGE, "parameter: it has %d dimensions; it may have %d",
                                dims->ndim, OCT_MAX_DIMS - 1);
    parameter_saved *v;
    oct_shape shape = {.ndim = dims->ndim + 1};
    memcpy(shape.dim + 1, dims->dim, (size_t)dims->ndim * sizeof dims->dim[0]);
    oct_tensor *y = make_output(cx, "parameter", x, shape, &v, weight);
    if (!y) return NULL;
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < oct_samples(y); n++)
        memcpy(oct_f32(y) + n * v->spread.numel, oct_f32(&weight->value),
               (size_t)v->spread.numel * sizeof(float));
    return record_parameter(cx, "parameter", parameter_backward, x, y, v);
}

typedef void sample_fn(const spread *s, const float *x, const float *w, float *y);

/* y = compute(x, parameter) for each sample, recorded as `op`. */
static oct_tensor *combine_samples(oct_context *cx, const char *op, oct_tensor *x,
                                   oct_param *weight, sample_fn *compute, backward_fn *backward)
{
    if (!oct_inputs_ok(cx, &x, 1) || !oct_needs_f32(cx, op, x)) return NULL;
    if (!oct_needs_params(cx, op, weight, weight)) return NULL;
    parameter_saved *v;
    oct_tensor *y = make_output(cx, op, x, x->shape, &v, weight);
    if (!y) return NULL;
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < oct_samples(x); n++)
        compute(&v->spread, oct_f32(x) + n * v->spread.numel, oct_f32(&weight->value),
                oct_f32(y) + n * v->spread.numel);
    return record_parameter(cx, op, backward, x, y, v);
}

oct_tensor *oct_add_parameter(oct_context *cx, oct_tensor *x, oct_param *weight)
{
    return combine_samples(cx, "add_parameter", x, weight, add_to_sample, add_backward);
}

oct_tensor *oct_mul_parameter(oct_context *cx, oct_tensor *x, oct_param *weight)
{
    return combine_samples(cx, "mul_parameter", x, weight, multiply_sample, mul_backward);
}
