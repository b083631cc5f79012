/* Clip is min(max(x, lo), hi); the gradient passes within the bounds and on them, as in PyTorch's clamp. A NaN stays
 * a NaN. */
#include "core/base/cpu.h"
#include "core/op/op_impl.h"

typedef struct bounds {
    float lo, hi;
} bounds;

OCT_CLONES
static void clip_values(int64_t n, bounds b, const float *x, float *restrict y)
{
    for (int64_t i = 0; i < n; i++) {
        const float v = x[i] < b.lo ? b.lo : x[i];
        y[i] = v > b.hi ? b.hi : v;
    }
}

OCT_CLONES
static void mask_grad(int64_t n, bounds b, const float *x, float *restrict grad)
{
    for (int64_t i = 0; i < n; i++) {
        const float g = x[i] < b.lo ? 0.0F : grad[i];
        grad[i] = x[i] > b.hi ? 0.0F : g;
    }
}

static void clip_backward(oct_context *cx, oct_node *node)
{
    const bounds b = *(const bounds *)node->saved;
    oct_tensor *x = node->input[0];
    const int64_t samples = oct_samples(x), n = samples ? oct_numel(x) / samples : 0;
    float *grad = oct_detach_grad(node->output);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < samples; i++)
        mask_grad(n, b, oct_f32(x) + i * n, grad + i * n);
    oct_add_grad(cx, x, grad);
}

oct_tensor *oct_clip(oct_context *cx, oct_tensor *x, double lo, double hi)
{
    oct_tensor *y;
    if (oct_op_intercepted(cx, "clip", OCT_ARGS(clip, lo, hi), &x, 1, &y)) return y;
    if (!oct_inputs_ok(cx, &x, 1) || !oct_needs_f32(cx, "clip", x)) return NULL;
    if (!(lo <= hi))
        return oct_context_fail(cx, OCT_USAGE, "clip cannot have the bounds %g and %g", lo, hi);
    y = oct_tensor_new(cx, OCT_F32, x->shape);
    if (!y) return NULL;
    const bounds b = {(float)lo, (float)hi};
    const int64_t samples = oct_samples(x), n = samples ? oct_numel(x) / samples : 0;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < samples; i++)
        clip_values(n, b, oct_f32(x) + i * n, oct_f32(y) + i * n);
    oct_node *node = oct_record(cx, "clip", clip_backward, &x, 1, false, y);
    return oct_node_save(cx, node, &b, sizeof b) ? y : NULL;
}
