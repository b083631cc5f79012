/* Flattening makes (N, F) of (N, ...) and keeps the memory. */
#include "core/op/op_impl.h"
#include "core/op/ops.h"

oct_tensor *oct_flatten(oct_context *cx, oct_tensor *x)
{
    oct_tensor *y;
    if (oct_call_site(cx, "flatten", OCT_NO_ARGS, &x, 1, &y)) return y;
    if (!oct_inputs_ok(cx, &x, 1)) return NULL;
    if (x->shape.ndim < 1)
        return oct_context_fail(cx, OCT_USAGE, "flatten needs a batch dimension, but has a scalar");
    int64_t features = 1;
    for (int i = 1; i < x->shape.ndim; i++)
        features *= oct_dim(x, i);
    return oct_view_as(cx, "flatten", x, OCT_SHAPE(oct_dim(x, 0), features));
}
