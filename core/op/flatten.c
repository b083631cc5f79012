/* Flattening makes (N, F) of (N, ...) and keeps the memory. */
#include "core/op/op_impl.h"
#include "core/op/ops.h"

static void flatten_backward(oct_context *cx, oct_node *node)
{
    oct_give_grad(cx, node->input[0], oct_take_grad(node->output));
}

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
    y = oct_tensor_view(cx, x->dtype, OCT_SHAPE(oct_dim(x, 0), features), x->data);
    if (!y) return NULL;
    y->q = x->q;
    oct_record(cx, "flatten", flatten_backward, &x, 1, false, y);
    return y;
}
