/* Shapes of operators that keep a shape, broadcast shapes or reduce them. */
#include "io/onnx/operator.h"

#include <math.h>
#include <string.h>

oct_status oct_onnx_shape_same(oct_onnx_call *c)
{
    const oct_onnx_value *x = oct_onnx_in(c, 0);
    return oct_onnx_declare(c, 0, x->dtype, x);
}

oct_status oct_onnx_shape_dropout(oct_onnx_call *c)
{
    OCT_TRY(oct_onnx_shape_same(c));
    return oct_onnx_declare(c, 1, OCT_U8, oct_onnx_in(c, 0));
}

oct_status oct_onnx_shape_batch_norm(oct_onnx_call *c)
{
    OCT_TRY(oct_onnx_need_ndim(c, 0, 2, OCT_ONNX_DIMS));
    const oct_onnx_value *x = oct_onnx_in(c, 0);
    for (int i = 1; i < 5; i++) {
        const oct_onnx_value *v = oct_onnx_in(c, i);
        if (v->ndim != 1 || v->dim[0] != x->dim[1])
            return oct_onnx_problem(c, "its input %d has not one number for each of %s channels", i,
                                    oct_onnx_show_dim(x->dim[1]).text);
        (void)oct_onnx_declare(c, i, x->dtype, v); /* statistics, in training */
    }
    return oct_onnx_shape_same(c);
}

oct_status oct_onnx_shape_softmax(oct_onnx_call *c)
{
    const int64_t otherwise = c->pass->graph->opset >= 13 ? -1 : 1;
    OCT_TRY(oct_onnx_shape_same(c));
    return oct_onnx_read_axis(c, otherwise);
}

/* Outputs 1 and 2 are mean and 1 / deviation, with 1 in place of the normalized dimensions. */
oct_status oct_onnx_shape_layer_norm(oct_onnx_call *c)
{
    OCT_TRY(oct_onnx_shape_same(c));
    oct_onnx_value shape = *oct_onnx_in(c, 0);
    OCT_TRY(oct_onnx_read_axis(c, -1));
    for (int i = c->node->args.axis; i < shape.ndim; i++)
        shape.dim[i] = 1;
    (void)oct_onnx_declare(c, 1, OCT_F32, &shape);
    return oct_onnx_declare(c, 2, OCT_F32, &shape);
}

static oct_status broadcast_inputs(oct_onnx_call *c, int inputs, oct_dtype dtype)
{
    oct_onnx_value shape = *oct_onnx_in(c, 0);
    for (int i = 1; i < inputs; i++)
        OCT_TRY(oct_onnx_broadcast_shape(c, &shape, oct_onnx_in(c, i)));
    return oct_onnx_declare(c, 0, dtype, &shape);
}

oct_status oct_onnx_shape_binary(oct_onnx_call *c)
{
    return broadcast_inputs(c, 2, oct_onnx_in(c, 0)->dtype);
}

oct_status oct_onnx_shape_compare(oct_onnx_call *c)
{
    return broadcast_inputs(c, 2, OCT_U8);
}

oct_status oct_onnx_shape_variadic(oct_onnx_call *c)
{
    return broadcast_inputs(c, c->node->inputs, oct_onnx_in(c, 0)->dtype);
}

oct_status oct_onnx_shape_where(oct_onnx_call *c)
{
    return broadcast_inputs(c, 3, oct_onnx_in(c, 1)->dtype);
}

oct_status oct_onnx_shape_matmul(oct_onnx_call *c)
{
    OCT_TRY(oct_onnx_need_ndim(c, 0, 1, OCT_ONNX_DIMS));
    OCT_TRY(oct_onnx_need_ndim(c, 1, 1, OCT_ONNX_DIMS));
    oct_onnx_value a = *oct_onnx_in(c, 0), b = *oct_onnx_in(c, 1);
    const bool row = a.ndim == 1,
               column = b.ndim == 1; /* lists, which are matrices while it lasts */
    if (row) a.ndim = 2, a.dim[1] = a.dim[0], a.dim[0] = 1;
    if (column) b.ndim = 2, b.dim[1] = 1;
    const int64_t rows = a.dim[a.ndim - 2], columns = b.dim[b.ndim - 1];
    if (a.dim[a.ndim - 1] != b.dim[b.ndim - 2])
        return oct_onnx_problem(c, "rows of %s numbers do not fit columns of %s",
                                oct_onnx_show_dim(a.dim[a.ndim - 1]).text,
                                oct_onnx_show_dim(b.dim[b.ndim - 2]).text);
    a.ndim -= 2;
    b.ndim -= 2;
    OCT_TRY(oct_onnx_broadcast_shape(c, &a, &b));
    if (!row) a.dim[a.ndim++] = rows;
    if (!column) a.dim[a.ndim++] = columns;
    return oct_onnx_declare(c, 0, oct_onnx_in(c, 0)->dtype, &a);
}

oct_status oct_onnx_shape_gemm(oct_onnx_call *c)
{
    OCT_TRY(oct_onnx_need_ndim(c, 0, 2, 2));
    OCT_TRY(oct_onnx_need_ndim(c, 1, 2, 2));
    const oct_onnx_value *a = oct_onnx_in(c, 0), *b = oct_onnx_in(c, 1), *add = oct_onnx_in(c, 2);
    const int ta = oct_onnx_int(c->node, "transA", 0) != 0;
    const int tb = oct_onnx_int(c->node, "transB", 0) != 0;
    oct_onnx_value shape = {.ndim = 2, .dim = {a->dim[ta], b->dim[1 - tb]}}, all = shape;
    if (a->dim[1 - ta] != b->dim[tb])
        return oct_onnx_problem(c, "it takes %s numbers and gets %s",
                                oct_onnx_show_dim(b->dim[tb]).text,
                                oct_onnx_show_dim(a->dim[1 - ta]).text);
    if (add) OCT_TRY(oct_onnx_broadcast_shape(c, &all, add));
    if (all.ndim != 2 || all.dim[0] != shape.dim[0] || all.dim[1] != shape.dim[1])
        return oct_onnx_problem(c, "its bias is larger than its product");
    return oct_onnx_declare(c, 0, a->dtype, &shape);
}

/* Sets the result's shape: 1 in place of the reduced dimensions, or nothing where keepdims is 0. */
static oct_status set_reduced_shape(oct_onnx_call *c, oct_dtype dtype)
{
    const oct_onnx_value *x = oct_onnx_in(c, 0);
    const bool *reduced = c->node->args.reduced, keep = oct_onnx_int(c->node, "keepdims", 1) != 0;
    oct_onnx_value shape = {0};
    for (int i = 0; i < x->ndim; i++)
        if (!reduced[i] || keep) shape.dim[shape.ndim++] = reduced[i] ? 1 : x->dim[i];
    return oct_onnx_declare(c, 0, dtype, &shape);
}

/* Sets args.reduced: the given axes, or all where none are given, unless noop_with_empty_axes is set. */
oct_status oct_onnx_shape_reduce(oct_onnx_call *c)
{
    oct_onnx_list axes;
    bool *reduced = c->node->args.reduced;
    const int ndim = oct_onnx_in(c, 0)->ndim;
    const bool all = oct_onnx_int(c->node, "noop_with_empty_axes", 0) == 0;
    OCT_TRY(oct_onnx_read_integer_list(c, "axes", 1, &axes));
    for (int i = 0; i < ndim; i++)
        reduced[i] = axes.count == 0 && all;
    for (int i = 0; i < axes.count; i++) {
        int axis;
        OCT_TRY(oct_onnx_wrap_axis(c, axes.fixed[i], ndim, &axis));
        reduced[axis] = true;
    }
    return set_reduced_shape(c, oct_onnx_in(c, 0)->dtype);
}

oct_status oct_onnx_shape_arg(oct_onnx_call *c)
{
    OCT_TRY(oct_onnx_read_axis(c, 0));
    c->node->args.reduced[c->node->args.axis] = true;
    return set_reduced_shape(c, OCT_S64);
}

oct_status oct_onnx_shape_cast(oct_onnx_call *c)
{
    const bool like = strcmp(c->node->type, "CastLike") == 0;
    oct_dtype dtype;
    if (like)
        dtype = oct_onnx_in(c, 1)->dtype;
    else if (!oct_onnx_dtype_of(oct_onnx_int(c->node, "to", 0), &dtype))
        return oct_onnx_problem(c, "it makes elements of a type that is not known");
    return oct_onnx_declare(c, 0, dtype, oct_onnx_in(c, 0));
}

oct_status oct_onnx_shape_shape(oct_onnx_call *c)
{
    const int64_t ndim = oct_onnx_in(c, 0)->ndim;
    int64_t start = oct_onnx_int(c->node, "start", 0), end = oct_onnx_int(c->node, "end", ndim);
    if (start < 0) start += ndim;
    if (end < 0) end += ndim;
    start = start < 0 ? 0 : start > ndim ? ndim : start;
    end = end < start ? start : end > ndim ? ndim : end;
    c->node->args.start[0] = start;
    return oct_onnx_declare(c, 0, OCT_S64, &(oct_onnx_value){.ndim = 1, .dim = {end - start}});
}

oct_status oct_onnx_shape_size(oct_onnx_call *c)
{
    return oct_onnx_declare(c, 0, OCT_S64, &(oct_onnx_value){0});
}

oct_status oct_onnx_shape_constant_of_shape(oct_onnx_call *c)
{
    oct_onnx_list dims;
    oct_onnx_value shape = {0};
    const oct_onnx_attribute *value = oct_onnx_attribute_find(c->node, "value");
    OCT_TRY(oct_onnx_read_affine_list(c, NULL, 0, &dims));
    if (dims.count > OCT_ONNX_DIMS)
        return oct_onnx_problem(c, "it makes %d dimensions; up to %d are known", dims.count,
                                OCT_ONNX_DIMS);
    for (int i = 0; i < dims.count; i++)
        OCT_TRY(oct_onnx_set_dim(c, oct_onnx_list_affine(&dims, i), &shape.dim[shape.ndim++]));
    if (value && (value->kind != OCT_ONNX_TENSOR || oct_onnx_numel(&value->tensor) != 1))
        return oct_onnx_problem(c, "its value is no single number");
    return oct_onnx_declare(c, 0, value ? value->tensor.dtype : OCT_F32, &shape);
}

/* max(0, ceil((limit - start) / step)) elements */
oct_status oct_onnx_shape_range(oct_onnx_call *c)
{
    oct_onnx_affine bound[3]; /* start, limit, step */
    oct_onnx_value shape = {.ndim = 1};
    const oct_dtype dtype = oct_onnx_in(c, 0)->dtype;
    for (int i = 0; i < 3; i++) {
        const oct_onnx_value *v = oct_onnx_in(c, i);
        if (!v->data || oct_onnx_numel(v) != 1 || v->dtype != dtype)
            return oct_onnx_problem(c, "its input %d is no number that is known", i);
        bound[i] = oct_onnx_affine_of(v, 0);
    }
    oct_onnx_affine steps = oct_onnx_affine_div(oct_onnx_affine_sub(bound[1], bound[0]), bound[2]);
    if (steps.times == 0 && !(steps.fixed < INT32_MAX))
        return oct_onnx_problem(c, "it makes too many numbers");
    steps =
        oct_onnx_affine_max((oct_onnx_affine){ceil(steps.fixed), steps.times}, oct_onnx_plain(0));
    OCT_TRY(oct_onnx_set_dim(c, steps, &shape.dim[0]));
    return oct_onnx_declare(c, 0, dtype, &shape);
}
