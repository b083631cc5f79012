/* Normalizations, means and softmax go over some dimensions, which are laid out after the others. */
#include "io/onnx/build_impl.h"

#include "core/base/int_math.h"

#include <string.h>

/* Sets the node's result, whose reduced dimensions have size 1 or are left out as the file declares. */
static oct_status set_reduced_result(oct_onnx_builder *b, oct_onnx_view *y)
{
    const oct_onnx_value *to = &b->graph->values[b->result];
    OCT_CHECK(to->known && oct_view_reshape(y, to->ndim, to->dim, y), OCT_DATA,
              "its shape does not follow from its input; export the network again");
    return oct_build_set_result(b, y);
}

/* Takes the mean or the maximum over dimensions, whose size becomes 1. A mean over those that lie innermost is a module
 * `mean`; all else is a pool over an image (h, w, rest) whose pixels they are. */
static oct_status reduce_dimensions(oct_onnx_builder *b, oct_onnx_view *x,
                                    const bool reduced[OCT_ONNX_DIMS], bool max)
{
    int natural[OCT_VIEW_ATOMS], order[OCT_VIEW_ATOMS], kept[OCT_VIEW_ATOMS];
    int pixels = 0, rows = 0;
    bool last[OCT_VIEW_ATOMS] = {false};
    int64_t size[OCT_ONNX_DIMS], taken = 1;
    oct_shape shape;
    int32_t output;
    const int n = oct_view_order(x, natural), batch = oct_view_batch(x);
    OCT_CHECK(batch >= 0 && x->num_atoms[batch] == 1 && !reduced[batch], OCT_PREPARE,
              "it reduces over samples; reduce within a sample");
    for (int i = 0; i < n; i++) {
        const int d = natural[i];
        if (reduced[d])
            order[pixels++] = d, taken *= oct_view_size(x, d);
        else
            kept[rows++] = d;
    }
    for (int d = 0; d < x->dims; d++) {
        last[d] = reduced[d];
        size[d] = reduced[d] ? 1 : oct_view_size(x, d);
    }
    const int64_t rest = oct_view_numel(x) / taken;
    if (!max && rest > 1 && reduced[natural[n - 1]] && oct_view_is_whole(x)) {
        OCT_TRY(oct_build_lay_out_last(b, x, last));
        OCT_TRY(oct_build_call(b, "mean", OCT_ARGS(mean, .axis = x->shape.ndim - 1), &x->value, 1,
                               &output));
        shape = x->shape;
        shape.ndim--;
    } else {
        const int64_t h = pixels == 2 ? oct_view_size(x, order[0]) : 1, w = taken / h;
        memcpy(&order[pixels], kept, (size_t)rows * sizeof *kept);
        OCT_TRY(oct_build_lay_out(b, x, order, n, OCT_SHAPE(1, h, w, rest)));
        const int rows_max = (int)oct_min_i64(h, INT32_MAX), /* such sides are refused */
            columns_max = (int)oct_min_i64(w, INT32_MAX);
        const oct_op_args *window =
            OCT_ARGS(max_pool, .kernel_h = rows_max, .kernel_w = columns_max, .stride_h = rows_max,
                     .stride_w = columns_max);
        OCT_TRY(oct_build_call(b, max ? "max_pool" : "global_avg_pool", max ? window : OCT_NO_ARGS,
                               &x->value, 1, &output));
        shape = max ? OCT_SHAPE(1, 1, 1, rest) : OCT_SHAPE(1, rest);
    }
    *x = oct_view_in_order(output, shape, x->dims, size, kept, rows);
    return OCT_OK;
}

/* What a reduction computes of each number before, what of the mean or maximum, and what of the result. */
static const struct reduction {
    const char *type, *before, *after;
    bool max, sum;
} reductions[] = {
    {.type = "ReduceL1", .before = "abs", .sum = true},
    {.type = "ReduceL2", .before = "square", .sum = true, .after = "sqrt"},
    {.type = "ReduceMax", .max = true},
    {.type = "ReduceMean"},
    {.type = "ReduceMin", .before = "neg", .max = true, .after = "neg"},
    {.type = "ReduceSum", .sum = true},
    {.type = "ReduceSumSquare", .before = "square", .sum = true},
};

/* after(count mean(before(x))) or after(max(before(x))), by the table of functions; ReduceMean has no count. */
oct_status oct_build_reduce(oct_onnx_builder *b, const oct_onnx_node *n)
{
    oct_onnx_view x;
    const struct reduction *r = reductions;
    while (strcmp(r->type, n->type) != 0)
        r++;
    OCT_TRY(oct_build_view(b, n, 0, &x));
    if (r->before) OCT_TRY(oct_build_call_unary(b, r->before, OCT_NO_ARGS, &x));
    const int64_t before = oct_view_numel(&x);
    OCT_TRY(reduce_dimensions(b, &x, n->args.reduced, r->max));
    const double taken = (double)before / (double)oct_view_numel(&x);
    if (r->sum) OCT_TRY(oct_build_call_unary(b, "mul_scalar", OCT_OP_ARGS(taken), &x));
    if (r->after) OCT_TRY(oct_build_call_unary(b, r->after, OCT_NO_ARGS, &x));
    return set_reduced_result(b, &x);
}

/* The mean or maximum over all dimensions but the batch and the channels */
oct_status oct_build_global_pool(oct_onnx_builder *b, const oct_onnx_node *n)
{
    oct_onnx_view x;
    const bool pixels[OCT_ONNX_DIMS] = {false, false, true, true, true, true, true, true};
    OCT_TRY(oct_build_view(b, n, 0, &x));
    OCT_TRY(reduce_dimensions(b, &x, pixels, strcmp(n->type, "GlobalMaxPool") == 0));
    return set_reduced_result(b, &x);
}

/* Softmax over one axis; before opset 13 over all dimensions from the axis on, as if they were one. */
oct_status oct_build_softmax(oct_onnx_builder *b, const oct_onnx_node *n)
{
    const bool old = b->graph->opset < 13;
    bool last[OCT_VIEW_ATOMS] = {false};
    oct_onnx_view x;
    OCT_TRY(oct_build_view(b, n, 0, &x));
    const int axis = n->args.axis;
    OCT_CHECK(oct_view_size(&x, axis) > 0, OCT_PREPARE,
              "it normalizes over the batch; let it normalize over classes");
    for (int d = axis; d < x.dims; d++)
        last[d] = old || d == axis;
    OCT_TRY(oct_build_lay_out_last(b, &x, last));
    OCT_TRY(oct_build_call(b, "softmax", OCT_NO_ARGS, &x.value, 1, &x.value));
    if (strcmp(n->type, "LogSoftmax") == 0)
        OCT_TRY(oct_build_call_unary(b, "logarithm", OCT_NO_ARGS, &x));
    return oct_build_set_result(b, &x);
}

/* Calls a normalization on x, whose layout fits, with the file's factors and addends (NULL: 1 and 0). */
static oct_status call_norm(oct_onnx_builder *b, const char *type, const oct_op_args *args,
                            oct_onnx_view *x, const oct_onnx_value *scale,
                            const oct_onnx_value *shift)
{
    OCT_TRY(oct_build_call(b, type, args, &x->value, 1, &x->value));
    /* Factors and addends that the file does not have are 1 and 0, and stay so. */
    int64_t size;
    float *weight = oct_build_data(b, x->value, "weight", &size);
    for (int64_t i = 0; i < size; i++)
        weight[i] = 1.0F;
    oct_build_freeze(b, x->value, "weight", true);
    oct_build_freeze(b, x->value, "bias", true);
    if (scale) OCT_TRY(oct_build_fill_flat(b, x->value, "weight", scale));
    if (shift) OCT_TRY(oct_build_fill_flat(b, x->value, "bias", shift));
    return oct_build_set_result(b, x);
}

/* Normalizes x over its dimensions from `axis` on, as if they were one. */
static oct_status layer_norm(oct_onnx_builder *b, oct_onnx_view *x, int axis, double eps,
                             const oct_onnx_value *scale, const oct_onnx_value *shift)
{
    bool last[OCT_VIEW_ATOMS] = {false};
    for (int d = axis; d < x->dims; d++)
        last[d] = true;
    OCT_TRY(oct_build_lay_out_last(b, x, last));
    return call_norm(b, "layer_norm",
                     OCT_ARGS(layer_norm, .channels = x->shape.dim[x->shape.ndim - 1], .eps = eps),
                     x, scale, shift);
}

oct_status oct_build_layer_norm(oct_onnx_builder *b, const oct_onnx_node *n)
{
    oct_onnx_view x;
    const oct_onnx_value *scale, *shift = NULL;
    OCT_TRY(oct_build_weights(b, n, 1, &scale));
    if (n->inputs > 2 && n->input[2] >= 0) OCT_TRY(oct_build_weights(b, n, 2, &shift));
    OCT_TRY(oct_build_view(b, n, 0, &x));
    OCT_CHECK(n->args.axis > 0, OCT_PREPARE,
              "it normalizes over samples; normalize within a sample");
    return layer_norm(b, &x, n->args.axis, (double)oct_onnx_float(n, "epsilon", 1e-5F), scale,
                      shift);
}

/* Layer norm written as single nodes (fuse_layer_norm): `inner` is the ReduceMean, whose dimensions are normalized. */
oct_status oct_build_layer_norm_parts(oct_onnx_builder *b, const oct_onnx_node *n)
{
    const oct_onnx_fused *f = &b->fused[b->current];
    oct_onnx_view x = b->view[f->input[0]];
    const bool *reduced = f->inner->args.reduced;
    int64_t size[OCT_ONNX_DIMS];
    (void)n;
    int axis = x.dims;
    for (; axis > 0 && reduced[axis - 1]; axis--)
        size[axis - 1] = oct_view_size(&x, axis - 1);
    for (int d = 0; d < axis; d++)
        OCT_CHECK(!reduced[d], OCT_PREPARE,
                  "it normalizes over dimensions that are not the last ones; transpose before it");
    OCT_CHECK(axis > 0, OCT_PREPARE, "it normalizes over samples; normalize within a sample");
    const int count = x.dims - axis;
    const oct_onnx_value *scale = oct_build_take_constant(b, "Mul", x.dims, size + axis, count, 0);
    const oct_onnx_value *shift = oct_build_take_constant(b, "Add", x.dims, size + axis, count, 0);
    return layer_norm(b, &x, axis, f->number[0], scale, shift);
}

static oct_status group_norm(oct_onnx_builder *b, oct_onnx_view *x, int64_t groups, double eps,
                             const oct_onnx_value *scale, const oct_onnx_value *shift)
{
    OCT_TRY(oct_build_lay_out_image(b, x));
    return call_norm(b, "group_norm", OCT_ARGS(group_norm, groups, oct_view_size(x, 1), eps), x,
                     scale, shift);
}

/* A group norm of one channel in each group */
oct_status oct_build_instance_norm(oct_onnx_builder *b, const oct_onnx_node *n)
{
    oct_onnx_view x;
    const oct_onnx_value *scale, *shift;
    OCT_TRY(oct_build_weights(b, n, 1, &scale));
    OCT_TRY(oct_build_weights(b, n, 2, &shift));
    OCT_TRY(oct_build_view(b, n, 0, &x));
    OCT_CHECK(x.dims > 2, OCT_PREPARE, "its input is no image; use LayerNormalization");
    return group_norm(b, &x, oct_view_size(&x, 1), (double)oct_onnx_float(n, "epsilon", 1e-5F),
                      scale, shift);
}

/* Fills a parameter with a number for each channel from a constant with one for each group. */
static void fill_from_groups(oct_onnx_builder *b, int32_t output, const char *name,
                             const oct_onnx_value *v, int64_t channels_per_group)
{
    int64_t size;
    float *state = oct_build_data(b, output, name, &size);
    for (int64_t i = 0; i < size; i++)
        state[i] = ((const float *)v->data)[i / channels_per_group];
    oct_build_freeze(b, output, name, !v->learned);
}

/* Factors and addends are one for each channel, or before opset 21 one for each group. */
oct_status oct_build_group_norm(oct_onnx_builder *b, const oct_onnx_node *n)
{
    oct_onnx_view x;
    const oct_onnx_value *scale, *shift;
    OCT_TRY(oct_build_weights(b, n, 1, &scale));
    OCT_TRY(oct_build_weights(b, n, 2, &shift));
    OCT_TRY(oct_build_view(b, n, 0, &x));
    const int64_t groups = oct_onnx_int(n, "num_groups", 1);
    const double eps = (double)oct_onnx_float(n, "epsilon", 1e-5F);
    OCT_CHECK(x.dims > 2 && oct_onnx_numel(scale) == oct_onnx_numel(shift), OCT_PREPARE,
              "its input is no image, or its factors and addends do not fit; export it again");
    if (oct_onnx_numel(scale) == oct_view_size(&x, 1))
        return group_norm(b, &x, groups, eps, scale, shift);
    OCT_CHECK(oct_onnx_numel(scale) == groups, OCT_DATA,
              "it has neither a factor for each group nor one for each channel; export it again");
    const int64_t channels = oct_view_size(&x, 1);
    OCT_TRY(group_norm(b, &x, groups, eps, NULL, NULL));
    fill_from_groups(b, b->view[b->result].value, "weight", scale, channels / groups);
    fill_from_groups(b, b->view[b->result].value, "bias", shift, channels / groups);
    return OCT_OK;
}

/* Group norm written as Reshape, InstanceNormalization, Reshape (fuse_group_norm): number has eps and the groups. */
oct_status oct_build_group_norm_parts(oct_onnx_builder *b, const oct_onnx_node *n)
{
    const oct_onnx_fused *f = &b->fused[b->current];
    oct_onnx_view x = b->view[f->input[0]];
    const int64_t channels = oct_view_size(&x, 1);
    (void)n;
    const oct_onnx_value *scale =
        oct_build_take_constant(b, "Mul", x.dims, &channels, 1, x.dims - 2);
    const oct_onnx_value *shift =
        oct_build_take_constant(b, "Add", x.dims, &channels, 1, x.dims - 2);
    return group_norm(b, &x, (int64_t)f->number[1], f->number[0], scale, shift);
}

/* x / (bias + alpha / size S)^beta: S, the sum of squares of the `size` channels around, is a convolution of 1 x 1. */
oct_status oct_build_lrn(oct_onnx_builder *b, const oct_onnx_node *n)
{
    oct_onnx_view x, y;
    int64_t none;
    OCT_TRY(oct_build_view(b, n, 0, &x));
    OCT_TRY(oct_build_lay_out_image(b, &x));
    const int64_t size = oct_onnx_int(n, "size", 0), c = oct_view_size(&x, 1);
    OCT_CHECK(size >= 1, OCT_DATA, "it has no size; export the network again");
    y = x;
    OCT_TRY(oct_build_call_unary(b, "square", OCT_NO_ARGS, &y));
    OCT_TRY(oct_build_call(
        b, "conv2d", OCT_ARGS(conv2d, c, c, oct_conv_geometry_of(1, 1, 1, 0, 1), .bias = true),
        &y.value, 1, &y.value));
    float *weight = oct_build_data(b, y.value, "weight", &none);
    float *bias = oct_build_data(b, y.value, "bias", &none);
    for (int64_t i = 0; i < c; i++) {
        bias[i] = oct_onnx_float(n, "bias", 1);
        for (int64_t k = 0; k < c; k++)
            weight[i * c + k] = k >= i - (size - 1) / 2 && k <= i + size / 2
                                    ? oct_onnx_float(n, "alpha", 1e-4F) / (float)size
                                    : 0;
    }
    oct_build_freeze(b, y.value, "weight", true);
    oct_build_freeze(b, y.value, "bias", true);
    OCT_TRY(oct_build_call_unary(b, "power", OCT_OP_ARGS(-(double)oct_onnx_float(n, "beta", 0.75F)),
                                 &y));
    OCT_TRY(oct_build_call_binary(b, "mul", &x, &y, &y));
    return oct_build_set_result(b, &y);
}
