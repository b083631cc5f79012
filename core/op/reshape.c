/* Views keep the memory: reshape gives the values of each sample another shape, squeeze drops dimensions of size 1,
 * flatten makes (N, F) of (N, ...). */
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
    if (shape.ndim < 1 || shape.ndim > OCT_MAX_DIMS)
        return oct_context_fail(cx, OCT_USAGE, "reshape to %d dimensions; it makes 1 to %d",
                                shape.ndim, OCT_MAX_DIMS);
    oct_args_write(&oct_reshape_arg_list, &shape, &args);
    if (oct_op_intercepted(cx, "reshape", &args, &x, 1, &y)) return y;
    if (!oct_inputs_ok(cx, &x, 1)) return NULL;
    bool fits = x->shape.ndim >= 1 && shape.ndim >= 1 &&
                oct_sample_numel(&x->shape) == oct_sample_numel(&shape);
    shape.dim[0] = oct_dim(x, 0);
    if (!fits)
        return oct_context_fail(cx, OCT_USAGE,
                                "reshape keeps the values of each sample, but %s and %s hold "
                                "different numbers of them",
                                oct_text_shape(&x->shape).text, oct_text_shape(&shape).text);
    return oct_view_as(cx, "reshape", x, shape);
}

/* Drops dimension `dim` if its size is 1; dim 0: all dimensions of size 1 but the batch. */
static oct_tensor *squeeze(oct_context *cx, oct_tensor *x, int dim)
{
    oct_tensor *y;
    if (oct_op_intercepted(cx, "squeeze", OCT_ARGS(squeeze, dim), &x, 1, &y)) return y;
    if (!oct_inputs_ok(cx, &x, 1)) return NULL;
    if (x->shape.ndim < 1 || dim < 0 || dim >= x->shape.ndim)
        return oct_context_fail(cx, OCT_USAGE,
                                "squeeze cannot drop dimension %d of %s; dimension 0 is the batch, "
                                "which stays",
                                dim, oct_text_shape(&x->shape).text);
    oct_shape shape = {.ndim = 0};
    for (int i = 0; i < x->shape.ndim; i++)
        if (i == 0 || oct_dim(x, i) != 1 || (dim != 0 && dim != i))
            shape.dim[shape.ndim++] = oct_dim(x, i);
    return oct_view_as(cx, "squeeze", x, shape);
}

oct_tensor *oct_squeeze(oct_context *cx, oct_tensor *x)
{
    return squeeze(cx, x, 0);
}

oct_tensor *oct_squeeze_dim(oct_context *cx, oct_tensor *x, int dim)
{
    /* 0 stands for all of them at the call site. */
    return squeeze(cx, x, dim == 0 ? -1 : dim);
}

oct_tensor *oct_flatten(oct_context *cx, oct_tensor *x)
{
    oct_tensor *y;
    if (oct_op_intercepted(cx, "flatten", OCT_NO_ARGS, &x, 1, &y)) return y;
    if (!oct_inputs_ok(cx, &x, 1)) return NULL;
    if (x->shape.ndim < 1)
        return oct_context_fail(cx, OCT_USAGE, "flatten needs a batch dimension, but has a scalar");
    int64_t features = 1;
    for (int i = 1; i < x->shape.ndim; i++)
        features *= oct_dim(x, i);
    return oct_view_as(cx, "flatten", x, OCT_SHAPE(oct_dim(x, 0), features));
}
