/* Squeezing drops dimensions of size 1 and keeps the memory. */
#include "core/op/op_impl.h"
#include "core/op/ops.h"

/* dim 0: all but the batch. */
static oct_shape squeezed(const oct_shape *shape, int dim)
{
    oct_shape rest = {.ndim = 0};
    for (int i = 0; i < shape->ndim; i++)
        if (i == 0 || shape->dim[i] != 1 || (dim != 0 && dim != i))
            rest.dim[rest.ndim++] = shape->dim[i];
    return rest;
}

static oct_tensor *squeeze(oct_context *cx, oct_tensor *x, int dim)
{
    oct_tensor *y;
    if (oct_call_site(cx, "squeeze", OCT_ARGS(squeeze, dim), &x, 1, &y)) return y;
    if (!oct_inputs_ok(cx, &x, 1)) return NULL;
    char text[96];
    if (x->shape.ndim < 1 || dim < 0 || dim >= x->shape.ndim)
        return oct_context_fail(cx, OCT_USAGE,
                                "squeeze cannot drop dimension %d of %s; dimension 0 is the batch, "
                                "which stays",
                                dim, oct_shape_text(&x->shape, text));
    return oct_view_as(cx, "squeeze", x, squeezed(&x->shape, dim));
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
