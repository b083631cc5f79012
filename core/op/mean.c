/* The mean is taken along one dimension of each sample, or along both of an image's plane. */
#include "core/op/op_impl.h"

/* x is seen as (outer, count, inner), y as (outer, inner). */
typedef struct mean_view {
    int64_t outer, count, inner;
} mean_view;

/* Each value gets an equal share of the gradient of its mean. */
static void mean_backward(oct_context *cx, oct_node *node)
{
    const mean_view v = *(const mean_view *)node->saved;
    const float *grad_y = node->output->grad;
    if (!node->input[0]->needs_grad) return;
    float *grad = oct_grad_new(cx, node->input[0]);
    if (!grad) return;
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < v.outer * v.count; row++) {
        const float *from = grad_y + row / v.count * v.inner;
        for (int64_t i = 0; i < v.inner; i++)
            grad[row * v.inner + i] = (float)((double)from[i] / (double)v.count);
    }
    oct_add_grad(cx, node->input[0], grad);
}

/* Views x as (outer, count, inner); the mean is over count, dimensions [first, last]. *shape: of the output. */
static mean_view split_dims(const oct_tensor *x, int first, int last, bool keep, oct_shape *shape)
{
    mean_view v = {1, 1, 1};
    *shape = (oct_shape){0};
    for (int i = 0; i < x->shape.ndim; i++) {
        const bool reduced = i >= first && i <= last;
        *(i < first ? &v.outer : reduced ? &v.count : &v.inner) *= oct_dim(x, i);
        if (!reduced || keep) shape->dim[shape->ndim++] = reduced ? 1 : oct_dim(x, i);
    }
    return v;
}

oct_tensor *oct_mean(oct_context *cx, oct_tensor *x, int axis, bool keep)
{
    oct_tensor *y;
    if (oct_op_intercepted(cx, "mean", OCT_ARGS(mean, axis, keep), &x, 1, &y)) return y;
    if (!oct_inputs_ok(cx, &x, 1) || !oct_needs_f32(cx, "mean", x)) return NULL;
    const bool plane = axis == OCT_MEAN_PLANE;
    const int first = plane ? 1 : axis, last = plane ? 2 : axis;
    if (first < 1 || last >= x->shape.ndim || (plane && x->shape.ndim != 4))
        return oct_context_fail(
            cx, OCT_USAGE, "mean over dimension %d: the input %s has no such %s", axis,
            oct_text_shape(&x->shape).text, plane ? "plane; it takes images (N, H, W, C)" : "one");
    oct_shape shape;
    const mean_view v = split_dims(x, first, last, keep, &shape);
    y = oct_tensor_new(cx, OCT_F32, shape);
    if (!y) return NULL;
#pragma omp parallel for schedule(static)
    for (int64_t o = 0; o < v.outer; o++) {
        for (int64_t i = 0; i < v.inner; i++) {
            const float *from = oct_f32(x) + o * v.count * v.inner + i;
            double sum = 0;
            for (int64_t k = 0; k < v.count; k++)
                sum += (double)from[k * v.inner];
            oct_f32(y)[o * v.inner + i] = (float)(sum / (double)v.count);
        }
    }
    oct_node *node = oct_record(cx, "mean", mean_backward, &x, 1, false, y);
    return oct_node_save(cx, node, &v, sizeof v) ? y : NULL;
}

oct_tensor *oct_mean_hw(oct_context *cx, oct_tensor *x, bool keep)
{
    return oct_mean(cx, x, OCT_MEAN_PLANE, keep);
}
