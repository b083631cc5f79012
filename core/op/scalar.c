/* A tensor and one number are added or multiplied, element by element. */
#include "core/base/cpu.h"
#include "core/op/op_impl.h"

#include <math.h>

OCT_CLONES
static void add_value(int64_t n, float value, const float *x, float *restrict y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] + value;
}

OCT_CLONES
static void multiply(int64_t n, float value, const float *x, float *restrict y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] * value;
}

static void add_scalar_backward(oct_context *cx, oct_node *node)
{
    oct_add_grad(cx, node->input[0], oct_detach_grad(node->output));
}

static void mul_scalar_backward(oct_context *cx, oct_node *node)
{
    const float *value = node->saved;
    const int64_t n = oct_sample_numel(&node->output->shape);
    float *grad = oct_detach_grad(node->output);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < oct_samples(node->output); i++)
        oct_scale_values(n, *value, grad + i * n);
    oct_add_grad(cx, node->input[0], grad);
}

/* Makes the output by `loop`, recorded as the op; NULL with the context failed. */
static oct_tensor *combine_with_scalar(oct_context *cx, const char *op, oct_tensor *x, double value,
                                       void (*loop)(int64_t n, float value, const float *x,
                                                    float *restrict y),
                                       void (*backward)(oct_context *cx, oct_node *node))
{
    oct_tensor *y;
    if (oct_op_intercepted(cx, op, OCT_ARGS(scalar, value), &x, 1, &y)) return y;
    if (!oct_inputs_ok(cx, &x, 1) || !oct_needs_f32(cx, op, x)) return NULL;
    if (!isfinite((float)value))
        return oct_context_fail(cx, OCT_USAGE, "%s takes a finite number, but has %g", op, value);
    y = oct_tensor_new(cx, OCT_F32, x->shape);
    if (!y) return NULL;
    int64_t samples = oct_samples(x), n = samples ? oct_numel(x) / samples : 0;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < samples; i++)
        loop(n, (float)value, oct_f32(x) + i * n, oct_f32(y) + i * n);
    oct_node *node = oct_record(cx, op, backward, &x, 1, false, y);
    return oct_node_save(cx, node, &(float){(float)value}, sizeof(float)) ? y : NULL;
}

oct_tensor *oct_add_scalar(oct_context *cx, oct_tensor *x, double value)
{
    return combine_with_scalar(cx, "add_scalar", x, value, add_value, add_scalar_backward);
}

oct_tensor *oct_mul_scalar(oct_context *cx, oct_tensor *x, double value)
{
    return combine_with_scalar(cx, "mul_scalar", x, value, multiply, mul_scalar_backward);
}
