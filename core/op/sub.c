/* Tensors are subtracted element by element. */
#include "core/base/cpu.h"
#include "core/op/binary.h"
#include "core/op/ops.h"

OCT_CLONES
static void subtract(int64_t n, const float *a, const float *b, float *restrict y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] - b[i];
}

/* It is the output's, which y holds. */
static void grad_of_first(int64_t n, const float *a, const float *b, float *restrict y)
{
    (void)n, (void)a, (void)b, (void)y;
}

OCT_CLONES
static void grad_of_second(int64_t n, const float *a, const float *b, float *restrict y)
{
    (void)a, (void)b;
    for (int64_t i = 0; i < n; i++)
        y[i] = -y[i];
}

const oct_binary oct_binary_sub = {
    .name = "sub", .value = subtract, .grad = {grad_of_first, grad_of_second}};

oct_tensor *oct_sub(oct_context *cx, oct_tensor *a, oct_tensor *b)
{
    return oct_binary_apply(cx, &oct_binary_sub, a, b);
}
