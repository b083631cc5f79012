/* Activations are run sample by sample by the loops of one of them. */
#include "core/op/activation_impl.h"

#include "core/op/op_impl.h"

static void activation_backward(oct_context *cx, oct_node *node)
{
    const oct_activation_loops *const *activation = node->saved;
    const float *y = oct_f32(node->output);
    int64_t samples = oct_samples(node->output),
            n = samples ? oct_numel(node->output) / samples : 0;
    float *grad = oct_detach_grad(node->output);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < samples; i++)
        (*activation)->mask_grad(n, y + i * n, grad + i * n);
    oct_add_grad(cx, node->input[0], grad);
}

oct_tensor *oct_activate(oct_context *cx, oct_tensor *x, const oct_activation_loops *activation)
{
    if (!oct_inputs_ok(cx, &x, 1) || !oct_needs_f32(cx, activation->name, x)) return NULL;
    oct_tensor *y = oct_tensor_new(cx, OCT_F32, x->shape);
    const oct_activation_loops **saved = oct_save(cx, sizeof *saved);
    if (!y || !saved) return NULL;
    *saved = activation;
    int64_t samples = oct_samples(x), n = samples ? oct_numel(x) / samples : 0;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < samples; i++)
        activation->forward(n, oct_f32(x) + i * n, oct_f32(y) + i * n);
    oct_node *node = oct_record(cx, activation->name, activation_backward, &x, 1, false, y);
    if (node) node->saved = saved;
    return y;
}
