/* max(x, 0). A NaN stays a NaN, so that a broken run is seen. */
#include "core/base/cpu.h"
#include "core/op/op_impl.h"
#include "core/op/ops.h"

OCT_CLONES
static void forward_values(int64_t n, const float *x, float *restrict y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] <= 0.0F ? 0.0F : x[i];
}

OCT_CLONES
static void mask_grad(int64_t n, const float *y, float *restrict grad)
{
    for (int64_t i = 0; i < n; i++)
        grad[i] = y[i] <= 0.0F ? 0.0F : grad[i];
}

static void relu_backward(oct_context *cx, oct_node *node)
{
    const float *y = oct_f32(node->output);
    int64_t samples = oct_dim(node->output, 0), n = samples ? oct_numel(node->output) / samples : 0;
    float *grad = oct_take_grad(node->output);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < samples; i++)
        mask_grad(n, y + i * n, grad + i * n);
    oct_give_grad(cx, node->input[0], grad);
}

oct_tensor *oct_relu(oct_context *cx, oct_tensor *x)
{
    if (!oct_ready(cx, &x, 1) || !oct_needs_f32(cx, "relu", x)) return NULL;
    oct_tensor *y = oct_tensor_new(cx, OCT_F32, x->shape);
    if (!y) return NULL;
    int64_t samples = oct_dim(x, 0), n = samples ? oct_numel(x) / samples : 0;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < samples; i++)
        forward_values(n, oct_f32(x) + i * n, oct_f32(y) + i * n);
    oct_record(cx, "relu", relu_backward, &x, 1, false, y);
    return y;
}
