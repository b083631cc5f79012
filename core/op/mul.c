/* Tensors are multiplied element by element. */
#include "core/base/cpu.h"
#include "core/op/op_impl.h"
#include "core/op/ops.h"

OCT_CLONES
static void multiply(int64_t n, const float *a, const float *b, float *restrict y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] * b[i];
}

/* Gives x its gradient: the output's gradient times the other factor. */
static void give_product(oct_context *cx, const oct_node *node, oct_tensor *x,
                         const oct_tensor *other)
{
    if (!x->needs_grad) return;
    float *grad = oct_grad_new(cx, x);
    if (!grad) return;
    int64_t samples = oct_samples(x), n = samples ? oct_numel(x) / samples : 0;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < samples; i++)
        multiply(n, node->output->grad + i * n, oct_f32(other) + i * n, grad + i * n);
    oct_give_grad(cx, x, grad);
}

static void mul_backward(oct_context *cx, oct_node *node)
{
    oct_tensor *a = node->input[0], *b = node->input[1];
    give_product(cx, node, a, b);
    give_product(cx, node, b, a);
}

oct_tensor *oct_mul(oct_context *cx, oct_tensor *a, oct_tensor *b)
{
    oct_tensor *inputs[] = {a, b}, *y;
    if (oct_call_site(cx, "mul", OCT_NO_ARGS, inputs, 2, &y)) return y;
    if (!oct_inputs_ok(cx, inputs, 2)) return NULL;
    if (!oct_needs_f32(cx, "mul", a) || !oct_needs_f32(cx, "mul", b)) return NULL;
    if (!oct_needs_one_shape(cx, "mul", a, b)) return NULL;
    y = oct_tensor_new(cx, OCT_F32, a->shape);
    if (!y) return NULL;
    int64_t samples = oct_samples(a), n = samples ? oct_numel(a) / samples : 0;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < samples; i++)
        multiply(n, oct_f32(a) + i * n, oct_f32(b) + i * n, oct_f32(y) + i * n);
    oct_record(cx, "mul", mul_backward, inputs, 2, false, y);
    return y;
}
