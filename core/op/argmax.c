/* Argmax gives class numbers (s32): the index of the largest value of the last dimension. It takes codes
 * too, whose order is that of their values. An index has no derivative, so no gradient goes back through
 * it. */
#include "core/op/op_impl.h"
#include "core/tensor/tensor.h"

oct_tensor *oct_argmax(oct_context *cx, oct_tensor *x)
{
    oct_tensor *y;
    if (oct_op_intercepted(cx, "argmax", OCT_NO_ARGS, &x, 1, &y)) return y;
    if (!oct_inputs_ok(cx, &x, 1)) return NULL;
    if (!oct_needs_values_or_codes(cx, "argmax", x)) return NULL;
    oct_shape shape = x->shape;
    int last = --shape.ndim;
    if (last < 1 || oct_dim(x, last) < 1 || oct_dim(x, last) > INT32_MAX)
        return oct_context_fail(
            cx, OCT_USAGE, "argmax takes samples with one or more values each, but its input is %s",
            oct_text_shape(&x->shape).text);
    y = oct_tensor_new(cx, OCT_S32, shape);
    if (!y) return NULL;
    int64_t samples = oct_dim(x, 0), n = oct_dim(x, last);
    int64_t rows = samples > 0 ? oct_numel(y) / samples : 0;
    size_t row = (size_t)n * oct_dtype_bytes(x->dtype);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < samples; i++)
        oct_argmax_rows(x->dtype, rows, n, (const char *)x->data + (size_t)(i * rows) * row,
                        (int32_t *)y->data + i * rows);
    oct_record_no_grad(cx, "argmax", &x, 1, y);
    return y;
}
