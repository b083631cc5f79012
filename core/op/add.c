/* Tensors are added element by element. */
#include "core/base/cpu.h"
#include "core/op/binary.h"
#include "core/op/ops.h"

OCT_CLONES
static void sum_values(int64_t n, const float *a, const float *b, float *restrict y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] + b[i];
}

const oct_binary oct_binary_add = {.name = "add", .passes = true, .value = sum_values};

oct_tensor *oct_add(oct_context *cx, oct_tensor *a, oct_tensor *b)
{
    return oct_binary_apply(cx, &oct_binary_add, a, b);
}
