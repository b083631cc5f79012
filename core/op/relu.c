/* ReLU is max(x, 0). A NaN stays a NaN, so that a broken run is seen. */
#include "core/base/cpu.h"
#include "core/op/activation_impl.h"
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

oct_tensor *oct_relu(oct_context *cx, oct_tensor *x)
{
    oct_tensor *y;
    if (oct_call_site(cx, "relu", OCT_NO_ARGS, &x, 1, &y)) return y;
    static const oct_activation_loops relu = {"relu", forward_values, mask_grad};
    return oct_activate(cx, x, &relu);
}
