/* Global average pooling is the mean over all positions of each channel. */
#include "core/base/cpu.h"
#include "core/op/op_impl.h"
#include "core/op/ops.h"

#include <string.h>

OCT_CLONES
static void average_image(int64_t positions, int64_t channels, const float *x, float *restrict y)
{
    memset(y, 0, (size_t)channels * sizeof(float));
    for (int64_t p = 0; p < positions; p++) {
        for (int64_t c = 0; c < channels; c++)
            y[c] += x[p * channels + c];
    }
    for (int64_t c = 0; c < channels; c++)
        y[c] /= (float)positions;
}

OCT_CLONES
static void spread_grad(int64_t positions, int64_t channels, const float *grad_y,
                        float *restrict grad_x)
{
    for (int64_t c = 0; c < channels; c++)
        grad_x[c] = grad_y[c] / (float)positions;
    for (int64_t p = 1; p < positions; p++)
        memcpy(grad_x + p * channels, grad_x, (size_t)channels * sizeof(float));
}

static void global_avg_pool_backward(oct_context *cx, oct_node *node)
{
    oct_tensor *x = node->input[0];
    const float *grad_y = node->output->grad;
    int64_t positions = oct_dim(x, 1) * oct_dim(x, 2), c = oct_dim(x, 3);
    float *grad_x = oct_grad_new(cx, x);
    if (!grad_x) return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < oct_dim(x, 0); i++)
        spread_grad(positions, c, grad_y + i * c, grad_x + i * positions * c);
    oct_add_grad(cx, x, grad_x);
}

oct_tensor *oct_global_avg_pool(oct_context *cx, oct_tensor *x)
{
    oct_tensor *y;
    if (oct_call_site(cx, "global_avg_pool", OCT_NO_ARGS, &x, 1, &y)) return y;
    if (!oct_inputs_ok(cx, &x, 1) || !oct_needs_f32(cx, "global_avg_pool", x)) return NULL;
    if (!oct_needs_images(cx, "global_avg_pool", x)) return NULL;
    int64_t positions = oct_dim(x, 1) * oct_dim(x, 2), c = oct_dim(x, 3);
    y = oct_tensor_new(cx, OCT_F32, OCT_SHAPE(oct_dim(x, 0), c));
    if (!y) return NULL;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < oct_dim(x, 0); i++)
        average_image(positions, c, oct_f32(x) + i * positions * c, oct_f32(y) + i * c);
    oct_record(cx, "global_avg_pool", global_avg_pool_backward, &x, 1, false, y);
    return y;
}
