/* Tensors are divided element by element. The gradient of the divisor is that of PyTorch, -g * ((a / b) / b). */
#include "core/base/cpu.h"
#include "core/op/binary.h"
#include "core/op/ops.h"

OCT_CLONES
static void divide(int64_t n, const float *a, const float *b, float *restrict y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] / b[i];
}

OCT_CLONES
static void grad_of_first(int64_t n, const float *a, const float *b, float *restrict y)
{
    (void)a;
    for (int64_t i = 0; i < n; i++)
        y[i] = y[i] / b[i];
}

OCT_CLONES
static void grad_of_second(int64_t n, const float *a, const float *b, float *restrict y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = -y[i] * ((a[i] / b[i]) / b[i]);
}

const oct_binary oct_binary_div = {
    .name = "div", .value = divide, .grad = {grad_of_first, grad_of_second}};

oct_tensor *oct_div(oct_context *cx, oct_tensor *a, oct_tensor *b)
{
    return oct_binary_apply(cx, &oct_binary_div, a, b);
}
