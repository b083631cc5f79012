/* Softmax is exp(x) over the sum of them, along the last dimension; the largest is subtracted first, so
 * that nothing overflows. */
#include "core/op/op_impl.h"
#include "core/op/ops.h"

#include <math.h>

static void softmax_row(int64_t n, const float *x, float *y)
{
    double largest = (double)x[0], sum = 0;
    for (int64_t i = 1; i < n; i++)
        largest = fmax(largest, (double)x[i]);
    for (int64_t i = 0; i < n; i++)
        sum += exp((double)x[i] - largest);
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)(exp((double)x[i] - largest) / sum);
}

/* grad = y * (grad - sum of grad * y) */
static void backward_row(int64_t n, const float *y, float *grad)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)grad[i] * (double)y[i];
    for (int64_t i = 0; i < n; i++)
        grad[i] = (float)((double)y[i] * ((double)grad[i] - sum));
}

static int64_t width(const oct_tensor *t)
{
    return oct_dim(t, t->shape.ndim - 1);
}

static void softmax_backward(oct_context *cx, oct_node *node)
{
    const oct_tensor *y = node->output;
    int64_t n = width(y), rows = oct_numel(y) / n;
    float *grad = oct_detach_grad(node->output);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < rows; i++)
        backward_row(n, oct_f32(y) + i * n, grad + i * n);
    oct_add_grad(cx, node->input[0], grad);
}

oct_tensor *oct_softmax(oct_context *cx, oct_tensor *x)
{
    oct_tensor *y;
    if (oct_call_site(cx, "softmax", OCT_NO_ARGS, &x, 1, &y)) return y;
    if (!oct_inputs_ok(cx, &x, 1) || !oct_needs_f32(cx, "softmax", x)) return NULL;
    char text[96];
    if (x->shape.ndim < 2 || width(x) < 1)
        return oct_context_fail(cx, OCT_USAGE,
                                "softmax takes samples with one or more values each, but its input "
                                "is %s",
                                oct_shape_text(&x->shape, text));
    y = oct_tensor_new(cx, OCT_F32, x->shape);
    if (!y) return NULL;
    int64_t n = width(x), rows = oct_numel(x) / n;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < rows; i++)
        softmax_row(n, oct_f32(x) + i * n, oct_f32(y) + i * n);
    oct_record(cx, "softmax", softmax_backward, &x, 1, false, y);
    return y;
}
