/* ReLU is max(x, 0), ReLU6 is min(max(x, 0), 6), whose gradient passes strictly between the bounds. The output alone
 * decides about the gradient. Of deferred values, as of a batch norm, they are computed at once. */
#include "core/base/cpu.h"
#include "core/op/op_impl.h"

typedef struct activation {
    const char *name;
    oct_bound bound;
    void (*forward)(int64_t n, const float *x, float *restrict y);
    /* Clears the gradient where the output says that none passes. */
    void (*mask_grad)(int64_t n, const float *y, float *restrict grad);
} activation;

static void activation_backward(oct_context *cx, oct_node *node)
{
    const activation *const *function = node->saved;
    const float *y = oct_f32(node->output);
    const int64_t n = oct_sample_numel(&node->output->shape);
    float *grad = oct_detach_grad(node->output);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < oct_samples(node->output); i++)
        (*function)->mask_grad(n, y + i * n, grad + i * n);
    oct_add_grad(cx, node->input[0], grad);
}

/* Applies an activation to x and records it; the backward needs the output alone. */
static oct_tensor *activate(oct_context *cx, oct_tensor *x, const activation *function)
{
    oct_tensor *y;
    if (oct_op_intercepted(cx, function->name, OCT_NO_ARGS, &x, 1, &y)) return y;
    if (!oct_inputs_alive(cx, &x, 1) || !oct_needs_f32(cx, function->name, x)) return NULL;
    y = oct_tensor_new(cx, OCT_F32, x->shape);
    if (!y) return NULL;
    const bool deferred = x->deferred;
    int64_t samples = deferred ? 0 : oct_samples(x), n = samples ? oct_numel(x) / samples : 0;
    if (deferred) x->deferred->write(x->deferred, function->bound, NULL, oct_f32(y));
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < samples; i++)
        function->forward(n, oct_f32(x) + i * n, oct_f32(y) + i * n);
    oct_node *node = oct_record(cx, function->name, activation_backward, &x, 1, false, y);
    return oct_node_save(cx, node, &function, sizeof(const activation *)) ? y : NULL;
}

OCT_CLONES
static void relu_values(int64_t n, const float *x, float *restrict y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = oct_bounded(OCT_BOUND_RELU, x[i]);
}

OCT_CLONES
static void relu_mask_grad(int64_t n, const float *y, float *restrict grad)
{
    for (int64_t i = 0; i < n; i++)
        grad[i] = y[i] <= 0.0F ? 0.0F : grad[i];
}

oct_tensor *oct_relu(oct_context *cx, oct_tensor *x)
{
    static const activation relu = {"relu", OCT_BOUND_RELU, relu_values, relu_mask_grad};
    return activate(cx, x, &relu);
}

OCT_CLONES
static void relu6_values(int64_t n, const float *x, float *restrict y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = oct_bounded(OCT_BOUND_RELU6, x[i]);
}

OCT_CLONES
static void relu6_mask_grad(int64_t n, const float *y, float *restrict grad)
{
    for (int64_t i = 0; i < n; i++) {
        float g = y[i] <= 0.0F ? 0.0F : grad[i];
        grad[i] = y[i] >= 6.0F ? 0.0F : g;
    }
}

oct_tensor *oct_relu6(oct_context *cx, oct_tensor *x)
{
    static const activation relu6 = {"relu6", OCT_BOUND_RELU6, relu6_values, relu6_mask_grad};
    return activate(cx, x, &relu6);
}
