/* Softmax is exp(x) over the sum of them, along the last dimension, computed in double and rounded once; the
 * largest is subtracted first, so that nothing overflows. */
#include "core/op/op_impl.h"

#include <math.h>

/* The gradient of x is y * (grad - sum of grad * y), row by row. */
static void softmax_backward(oct_context *cx, oct_node *node)
{
    const int64_t n = oct_last_dim(node->output), rows = oct_numel(node->output) / n;
    const float *values = oct_f32(node->output);
    float *grad = oct_detach_grad(node->output);
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        double sum = 0;
        for (int64_t i = row * n; i < (row + 1) * n; i++)
            sum += (double)grad[i] * (double)values[i];
        for (int64_t i = row * n; i < (row + 1) * n; i++)
            grad[i] = (float)((double)values[i] * ((double)grad[i] - sum));
    }
    oct_add_grad(cx, node->input[0], grad);
}

oct_tensor *oct_softmax(oct_context *cx, oct_tensor *x)
{
    oct_tensor *y;
    if (oct_op_intercepted(cx, "softmax", OCT_NO_ARGS, &x, 1, &y)) return y;
    if (!oct_inputs_ok(cx, &x, 1) || !oct_needs_f32(cx, "softmax", x)) return NULL;
    if (x->shape.ndim < 2 || oct_last_dim(x) < 1)
        return oct_context_fail(cx, OCT_USAGE,
                                "softmax takes samples with one or more values each, but its input "
                                "is %s",
                                oct_text_shape(&x->shape).text);
    y = oct_tensor_new(cx, OCT_F32, x->shape);
    if (!y) return NULL;
    int64_t n = oct_last_dim(x), rows = oct_numel(x) / n;
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        const float *from = oct_f32(x) + row * n;
        double largest = (double)from[0], sum = 0;
        for (int64_t i = 1; i < n; i++)
            largest = fmax(largest, (double)from[i]);
        for (int64_t i = 0; i < n; i++)
            sum += exp((double)from[i] - largest);
        for (int64_t i = 0; i < n; i++)
            oct_f32(y)[row * n + i] = (float)(exp((double)from[i] - largest) / sum);
    }
    oct_record(cx, "softmax", softmax_backward, &x, 1, false, y);
    return y;
}
