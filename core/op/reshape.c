/* Views keep the memory. Reshaping gives the values of each sample another shape. */
#include "core/op/op_impl.h"
#include "core/op/ops.h"

static void view_backward(oct_context *cx, oct_node *node)
{
    oct_add_grad(cx, node->input[0], oct_detach_grad(node->output));
}

oct_tensor *oct_view_as(oct_context *cx, const char *op, oct_tensor *x, oct_shape shape)
{
    oct_tensor *y = oct_tensor_view(cx, x->dtype, shape, x->data);
    if (!y) return NULL;
    y->q = x->q;
    oct_record(cx, op, view_backward, &x, 1, false, y);
    return y;
}

oct_tensor *oct_reshape(oct_context *cx, oct_tensor *x, oct_shape shape)
{
    oct_tensor *y;
    oct_op_args args;
    oct_args_write(&oct_reshape_arg_list, &shape, &args);
    if (oct_call_site(cx, "reshape", &args, &x, 1, &y)) return y;
    if (!oct_inputs_ok(cx, &x, 1)) return NULL;
    char from[96], to[96];
    bool fits = x->shape.ndim >= 1 && shape.ndim >= 1 &&
                oct_sample_numel(&x->shape) == oct_sample_numel(&shape);
    shape.dim[0] = oct_dim(x, 0);
    if (!fits)
        return oct_context_fail(cx, OCT_USAGE,
                                "reshape keeps the values of each sample, but %s and %s hold "
                                "different numbers of them",
                                oct_shape_text(&x->shape, from), oct_shape_text(&shape, to));
    return oct_view_as(cx, "reshape", x, shape);
}
