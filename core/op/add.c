/* Tensors are added element by element. */
#include "core/base/cpu.h"
#include "core/op/op_impl.h"
#include "core/op/ops.h"

OCT_CLONES
static void sum_values(int64_t n, const float *a, const float *b, float *restrict y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] + b[i];
}

static void add_backward(oct_context *cx, oct_node *node)
{
    oct_give_grad_to_both(cx, node->input[0], node->input[1], oct_take_grad(node->output));
}

oct_tensor *oct_add(oct_context *cx, oct_tensor *a, oct_tensor *b)
{
    oct_tensor *inputs[] = {a, b}, *y;
    if (oct_call_site(cx, "add", OCT_NO_ARGS, inputs, 2, &y)) return y;
    if (!oct_inputs_ok(cx, inputs, 2)) return NULL;
    if (!oct_needs_f32(cx, "add", a) || !oct_needs_f32(cx, "add", b)) return NULL;
    if (!oct_needs_one_shape(cx, "add", a, b)) return NULL;
    y = oct_tensor_new(cx, OCT_F32, a->shape);
    if (!y) return NULL;
    int64_t samples = oct_samples(a), n = samples ? oct_numel(a) / samples : 0;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < samples; i++)
        sum_values(n, oct_f32(a) + i * n, oct_f32(b) + i * n, oct_f32(y) + i * n);
    oct_record(cx, "add", add_backward, inputs, 2, false, y);
    return y;
}
