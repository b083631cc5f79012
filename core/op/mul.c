/* Tensors are multiplied element by element. */
#include "core/base/cpu.h"
#include "core/op/binary.h"
#include "core/op/ops.h"

OCT_CLONES
static void multiply(int64_t n, const float *a, const float *b, float *restrict y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] * b[i];
}

OCT_CLONES
static void grad_of_first(int64_t n, const float *a, const float *b, float *restrict y)
{
    (void)a;
    for (int64_t i = 0; i < n; i++)
        y[i] = y[i] * b[i];
}

OCT_CLONES
static void grad_of_second(int64_t n, const float *a, const float *b, float *restrict y)
{
    (void)b;
    for (int64_t i = 0; i < n; i++)
        y[i] = y[i] * a[i];
}

const oct_binary oct_binary_mul = {
    .name = "mul", .value = multiply, .grad = {grad_of_first, grad_of_second}};

oct_tensor *oct_mul(oct_context *cx, oct_tensor *a, oct_tensor *b)
{
    return oct_binary_apply(cx, &oct_binary_mul, a, b);
}
