/* Constants that are moved, and numbers about shapes. */
#include "io/onnx/operator.h"

#include <string.h>

/* Records which parameter a reshaped or transposed constant comes from, and whether its elements are in that one's order,
 * transposed, or in another order. transposed: the call changes the order of dimensions. */
static void set_origin(const oct_onnx_call *c, bool transposed)
{
    const oct_onnx_value *x = oct_onnx_in(c, 0);
    oct_onnx_value *y = oct_onnx_result(c, 0);
    const bool same_rows = y->ndim > 0 && x->ndim > 0 && y->dim[0] == x->dim[0];
    y->origin = x->parameter ? c->node->input[0] : x->origin;
    y->turn = x->turn;
    if (transposed && x->ndim == 2 && x->turn != OCT_ONNX_MOVED)
        y->turn = x->turn == OCT_ONNX_TRANSPOSED ? OCT_ONNX_AS_IT_IS : OCT_ONNX_TRANSPOSED;
    else if (transposed || (x->turn == OCT_ONNX_TRANSPOSED && !same_rows))
        y->turn = OCT_ONNX_MOVED;
}

/* Fills a result from input 0, from offset `from` on, with these strides along the result's dimensions. */
static oct_status copy_strided(oct_onnx_call *c, int result, int64_t from,
                               const int64_t stride[OCT_ONNX_DIMS])
{
    oct_onnx_value *y = oct_onnx_result(c, result);
    oct_onnx_walk w = {.shape = y, .offset = {from}};
    OCT_TRY(oct_onnx_allocate_result(c, result));
    const int64_t numel = oct_onnx_numel(y);
    memcpy(w.stride[0], stride, sizeof w.stride[0]);
    for (int64_t i = 0; i < numel; i++, oct_onnx_walk_step(&w))
        oct_onnx_copy_element(y, i, oct_onnx_in(c, 0), w.offset[0]);
    return OCT_OK;
}

/* Identity, Reshape and others that keep the elements in their order. */
oct_status oct_onnx_evaluate_same(oct_onnx_call *c)
{
    const oct_onnx_value *x = oct_onnx_in(c, 0);
    const oct_onnx_value *y = oct_onnx_result(c, 0);
    const size_t numel = (size_t)oct_onnx_numel(x);
    OCT_TRY(oct_onnx_allocate_result(c, 0));
    if (numel > 0) memcpy(y->data, x->data, numel * oct_dtype_bytes(x->dtype));
    if (numel > 0 && x->times) memcpy(y->times, x->times, numel * sizeof *x->times);
    set_origin(c, false);
    return OCT_OK;
}

oct_status oct_onnx_evaluate_transpose(oct_onnx_call *c)
{
    const oct_onnx_value *x = oct_onnx_in(c, 0);
    int64_t x_stride[OCT_ONNX_DIMS] = {0}, stride[OCT_ONNX_DIMS] = {0};
    const int *perm = c->node->args.perm;
    bool transposed = false;
    oct_onnx_broadcast_strides(x, x, x_stride);
    for (int i = 0; i < x->ndim; i++) {
        stride[i] = x_stride[perm[i]];
        transposed |= perm[i] != i;
    }
    OCT_TRY(copy_strided(c, 0, 0, stride));
    set_origin(c, transposed);
    return OCT_OK;
}

oct_status oct_onnx_evaluate_expand(oct_onnx_call *c)
{
    int64_t stride[OCT_ONNX_DIMS] = {0};
    oct_onnx_broadcast_strides(oct_onnx_in(c, 0), oct_onnx_result(c, 0), stride);
    return copy_strided(c, 0, 0, stride);
}

oct_status oct_onnx_evaluate_slice(oct_onnx_call *c)
{
    const oct_onnx_value *x = oct_onnx_in(c, 0);
    int64_t x_stride[OCT_ONNX_DIMS] = {0}, stride[OCT_ONNX_DIMS] = {0}, from = 0;
    const oct_onnx_arguments *args = &c->node->args;
    oct_onnx_broadcast_strides(x, x, x_stride);
    for (int i = 0; i < x->ndim; i++) {
        from += args->start[i] * x_stride[i];
        stride[i] = args->step[i] * x_stride[i];
    }
    return copy_strided(c, 0, from, stride);
}

oct_status oct_onnx_evaluate_split(oct_onnx_call *c)
{
    const oct_onnx_value *x = oct_onnx_in(c, 0);
    int64_t stride[OCT_ONNX_DIMS] = {0}, from = 0;
    const int axis = c->node->args.axis;
    oct_onnx_broadcast_strides(x, x, stride);
    for (int i = 0; i < c->node->outputs; i++) {
        const oct_onnx_value *y = oct_onnx_result(c, i);
        OCT_TRY(copy_strided(c, i, from, stride));
        from += y->dim[axis] * stride[axis];
    }
    return OCT_OK;
}

oct_status oct_onnx_evaluate_tile(oct_onnx_call *c)
{
    const oct_onnx_value *x = oct_onnx_in(c, 0);
    oct_onnx_value *y = oct_onnx_result(c, 0);
    int64_t x_stride[OCT_ONNX_DIMS] = {0};
    oct_onnx_walk w = {.shape = y};
    OCT_TRY(oct_onnx_allocate_result(c, 0));
    const int64_t numel = oct_onnx_numel(y);
    oct_onnx_broadcast_strides(x, x, x_stride);
    for (int64_t i = 0; i < numel; i++, oct_onnx_walk_step(&w)) {
        int64_t from = 0;
        for (int k = 0; k < y->ndim; k++)
            from += w.index[k] % x->dim[k] * x_stride[k];
        oct_onnx_copy_element(y, i, x, from);
    }
    return OCT_OK;
}

/* Places the inputs one after another along an axis. */
oct_status oct_onnx_evaluate_concat(oct_onnx_call *c)
{
    oct_onnx_value *y = oct_onnx_result(c, 0);
    int64_t stride[OCT_ONNX_DIMS] = {0}, to = 0;
    const int axis = c->node->args.axis;
    OCT_TRY(oct_onnx_allocate_result(c, 0));
    oct_onnx_broadcast_strides(y, y, stride);
    for (int k = 0; k < c->node->inputs; k++) {
        const oct_onnx_value *x = oct_onnx_in(c, k);
        const int64_t numel = oct_onnx_numel(x);
        oct_onnx_walk w = {.shape = x, .offset = {to}};
        for (int i = 0; i < y->ndim; i++)
            if (x->dtype != y->dtype || (i != axis && x->dim[i] != y->dim[i]))
                return oct_onnx_problem(c, "its inputs are of different types or sizes");
        memcpy(w.stride[0], stride, sizeof stride);
        for (int64_t i = 0; i < numel; i++, oct_onnx_walk_step(&w))
            oct_onnx_copy_element(y, w.offset[0], x, i);
        to += x->dim[axis] * stride[axis];
    }
    return OCT_OK;
}

/* y = x with the axis replaced by the indices: (outer, size, inner) becomes (outer, count, inner). */
oct_status oct_onnx_evaluate_gather(oct_onnx_call *c)
{
    const oct_onnx_value *x = oct_onnx_in(c, 0), *indices = oct_onnx_in(c, 1);
    oct_onnx_value *y = oct_onnx_result(c, 0);
    int64_t x_stride[OCT_ONNX_DIMS] = {0};
    const int axis = c->node->args.axis;
    if (indices->dtype == OCT_F32) return oct_onnx_problem(c, "its indices are no integers");
    OCT_TRY(oct_onnx_allocate_result(c, 0));
    oct_onnx_broadcast_strides(x, x, x_stride);
    int64_t outer = 1, inner = 1;
    const int64_t count = oct_onnx_numel(indices), size = x->dim[axis];
    for (int i = 0; i < x->ndim; i++) {
        if (i < axis) outer *= x->dim[i];
        if (i > axis) inner *= x->dim[i];
    }
    for (int64_t o = 0, to = 0; o < outer; o++)
        for (int64_t k = 0; k < count; k++) {
            int64_t index = oct_onnx_get_int(indices, k);
            if (index < 0) index += size;
            if (oct_onnx_varies(indices, k))
                return oct_onnx_problem(c, "an index follows from the number of samples; export it "
                                           "with constants");
            if (index < 0 || index >= size)
                return oct_onnx_problem(c, "an index is beyond its dimension");
            for (int64_t i = 0; i < inner; i++)
                oct_onnx_copy_element(y, to++, x, (o * size + index) * inner + i);
        }
    return OCT_OK;
}

/* The offset in x at which a row of `indices`, one for each of its first dimensions, points; -1: outside of x. */
static int64_t offset_of_indices(const oct_onnx_value *x, const oct_onnx_value *indices,
                                 int64_t row, const int64_t x_stride[OCT_ONNX_DIMS])
{
    const int64_t depth = indices->dim[indices->ndim - 1];
    int64_t at = 0;
    for (int64_t i = 0; i < depth; i++) {
        int64_t index = oct_onnx_get_int(indices, row * depth + i);
        if (index < 0) index += x->dim[i];
        if (index < 0 || index >= x->dim[i]) return -1;
        at += index * x_stride[i];
    }
    return at;
}

/* ScatterND: a copy of x in which the slices that the rows of indices point at are replaced by input 2. */
oct_status oct_onnx_evaluate_scatter(oct_onnx_call *c)
{
    const oct_onnx_value *x = oct_onnx_in(c, 0), *indices = oct_onnx_in(c, 1);
    oct_onnx_value *y = oct_onnx_result(c, 0);
    int64_t x_stride[OCT_ONNX_DIMS] = {0}, inner = 1;
    const int64_t depth = indices->dim[indices->ndim - 1];
    const int64_t rows = oct_onnx_numel(indices) / depth;
    if (indices->dtype == OCT_F32 || indices->times)
        return oct_onnx_problem(c, "its indices are no constant integers");
    if (strcmp(oct_onnx_string(c->node, "reduction", "none"), "none") != 0)
        return oct_onnx_problem(c, "it adds to what is there, which is not known for constants");
    oct_onnx_broadcast_strides(x, x, x_stride);
    for (int i = (int)depth; i < x->ndim; i++)
        inner *= x->dim[i];
    OCT_TRY(oct_onnx_evaluate_same(c));
    OCT_TRY(oct_onnx_charge_work(c, rows * inner));
    y->origin = -1;
    for (int64_t row = 0; row < rows; row++) {
        const int64_t to = offset_of_indices(x, indices, row, x_stride);
        if (to < 0) return oct_onnx_problem(c, "an index is beyond its dimension");
        for (int64_t i = 0; i < inner; i++)
            oct_onnx_copy_element(y, to + i, oct_onnx_in(c, 2), row * inner + i);
    }
    return OCT_OK;
}

/* Constants are padded with a constant; exporters do not write the other modes for them. */
oct_status oct_onnx_evaluate_pad(oct_onnx_call *c)
{
    const oct_onnx_value *x = oct_onnx_in(c, 0), *value = oct_onnx_in(c, 2);
    oct_onnx_value *y = oct_onnx_result(c, 0);
    int64_t x_stride[OCT_ONNX_DIMS] = {0};
    oct_onnx_walk w = {.shape = y};
    const float fill = oct_onnx_float(c->node, "value", 0);
    if (strcmp(oct_onnx_string(c->node, "mode", "constant"), "constant") != 0)
        return oct_onnx_problem(c, "a constant is padded in another way than by a constant");
    if (value && (value->dtype != x->dtype || oct_onnx_numel(value) != 1))
        return oct_onnx_problem(c, "what it pads with is no number of its type");
    OCT_TRY(oct_onnx_allocate_result(c, 0));
    const int64_t numel = oct_onnx_numel(y);
    oct_onnx_broadcast_strides(x, x, x_stride);
    for (int64_t i = 0; i < numel; i++, oct_onnx_walk_step(&w)) {
        int64_t from = 0;
        bool inside = true;
        for (int k = 0; k < y->ndim; k++) {
            const int64_t at = w.index[k] - c->node->args.before[k];
            inside = inside && at >= 0 && at < x->dim[k];
            from += at * x_stride[k];
        }
        if (inside)
            oct_onnx_copy_element(y, i, x, from);
        else if (value)
            oct_onnx_copy_element(y, i, value, 0);
        else if (y->dtype == OCT_F32)
            oct_onnx_reals(y)[i] = fill;
    }
    return OCT_OK;
}

/* Shape, from `start` on, and Size, of a value that need not be a constant. */
oct_status oct_onnx_evaluate_shape(oct_onnx_call *c)
{
    const oct_onnx_value *x = oct_onnx_in(c, 0);
    oct_onnx_value *y = oct_onnx_result(c, 0);
    OCT_TRY(oct_onnx_allocate_result(c, 0));
    if (strcmp(c->node->type, "Size") == 0) {
        oct_onnx_affine numel = oct_onnx_plain(1);
        for (int i = 0; i < x->ndim; i++)
            numel = oct_onnx_affine_mul(numel, oct_onnx_extent(x->dim[i]));
        return oct_onnx_put_affine(c, y, 0, numel);
    }
    for (int64_t i = 0; i < y->dim[0]; i++)
        OCT_TRY(oct_onnx_put_affine(c, y, i, oct_onnx_extent(x->dim[c->node->args.start[0] + i])));
    return OCT_OK;
}

oct_status oct_onnx_evaluate_constant_of_shape(oct_onnx_call *c)
{
    const oct_onnx_attribute *value = oct_onnx_attribute_find(c->node, "value");
    oct_onnx_value *y = oct_onnx_result(c, 0);
    OCT_TRY(oct_onnx_allocate_result(c, 0)); /* zeros */
    const int64_t numel = oct_onnx_numel(y);
    for (int64_t i = 0; value && i < numel; i++)
        oct_onnx_copy_element(y, i, &value->tensor, 0);
    return OCT_OK;
}

/* y[i] = start + i delta */
oct_status oct_onnx_evaluate_range(oct_onnx_call *c)
{
    const oct_onnx_value *start = oct_onnx_in(c, 0), *delta = oct_onnx_in(c, 2);
    oct_onnx_value *y = oct_onnx_result(c, 0);
    OCT_TRY(oct_onnx_allocate_result(c, 0));
    for (int64_t i = 0; i < y->dim[0]; i++) {
        int64_t value;
        if (y->times)
            OCT_TRY(oct_onnx_put_affine(
                c, y, i,
                oct_onnx_affine_add(
                    oct_onnx_affine_of(start, 0),
                    oct_onnx_affine_mul(oct_onnx_plain((double)i), oct_onnx_affine_of(delta, 0)))));
        else if (y->dtype == OCT_F32)
            oct_onnx_reals(y)[i] = *oct_onnx_reals(start) + (float)i * *oct_onnx_reals(delta);
        else if (__builtin_mul_overflow(i, oct_onnx_get_int(delta, 0), &value) ||
                 __builtin_add_overflow(value, oct_onnx_get_int(start, 0), &value))
            return oct_onnx_problem(c, "an integer overflows");
        else
            OCT_TRY(oct_onnx_put_int(c, y, i, value));
    }
    return OCT_OK;
}
