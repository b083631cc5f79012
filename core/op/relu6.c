/* ReLU6 is min(max(x, 0), 6); the gradient passes strictly between the bounds. A NaN stays a NaN. */
#include "core/base/cpu.h"
#include "core/op/activation_impl.h"
#include "core/op/ops.h"

OCT_CLONES
static void forward_values(int64_t n, const float *x, float *restrict y)
{
    for (int64_t i = 0; i < n; i++) {
        float v = x[i] <= 0.0F ? 0.0F : x[i];
        y[i] = v >= 6.0F ? 6.0F : v;
    }
}

OCT_CLONES
static void mask_grad(int64_t n, const float *y, float *restrict grad)
{
    for (int64_t i = 0; i < n; i++) {
        float g = y[i] <= 0.0F ? 0.0F : grad[i];
        grad[i] = y[i] >= 6.0F ? 0.0F : g;
    }
}

oct_tensor *oct_relu6(oct_context *cx, oct_tensor *x)
{
    oct_tensor *y;
    if (oct_call_site(cx, "relu6", OCT_NO_ARGS, &x, 1, &y)) return y;
    static const oct_activation_loops relu6 = {"relu6", forward_values, mask_grad};
    return oct_activate(cx, x, &relu6);
}
