/* What only moves values changes views. Where a view cannot say it, values are laid out first. */
#include "io/onnx/build_impl.h"
#include "io/onnx/operator.h"

#include <string.h>

/* Gives the value the dimensions that the file's shapes say. */
oct_status oct_build_reshape(oct_onnx_builder *b, const oct_onnx_node *n)
{
    oct_onnx_view x, y;
    const oct_onnx_value *to = &b->graph->values[b->result];
    OCT_TRY(oct_build_view(b, n, 0, &x));
    OCT_CHECK(to->known, OCT_PREPARE,
              "its shape is not known before the network runs; export it "
              "with fixed sizes");
    if (!oct_view_reshape(&x, to->ndim, to->dim, &y)) {
        bool all[OCT_VIEW_ATOMS];
        memset(all, true, sizeof all);
        OCT_TRY(oct_build_lay_out_last(b, &x, all));
        OCT_CHECK(oct_view_reshape(&x, to->ndim, to->dim, &y), OCT_PREPARE,
                  "it mixes the samples of a batch; export it with the batch as a dimension of its "
                  "own");
    }
    return oct_build_set_result(b, &y);
}

oct_status oct_build_identity(oct_onnx_builder *b, const oct_onnx_node *n)
{
    oct_onnx_view x;
    OCT_TRY(oct_build_view(b, n, 0, &x));
    return oct_build_set_result(b, &x);
}

oct_status oct_build_dropout(oct_onnx_builder *b, const oct_onnx_node *n)
{
    oct_onnx_view x;
    double ratio = (double)oct_onnx_float(n, "ratio", 0.5F);
    OCT_TRY(oct_build_view(b, n, 0, &x));
    if (n->inputs > 1 && n->input[1] >= 0)
        OCT_CHECK(oct_build_scalar(b, n->input[1], &ratio), OCT_PREPARE,
                  "its ratio is computed; export it with a constant");
    OCT_TRY(oct_build_call_unary(b, "dropout", OCT_OP_ARGS(ratio), &x));
    return oct_build_set_result(b, &x);
}

oct_status oct_build_cast(oct_onnx_builder *b, const oct_onnx_node *n)
{
    const oct_onnx_value *y = &b->graph->values[b->result];
    OCT_CHECK(y->dtype == OCT_F32, OCT_PREPARE,
              "it makes %s of real numbers; take it out of the network, or stop before it",
              oct_dtype_name(y->dtype));
    return oct_build_identity(b, n);
}

oct_status oct_build_transpose(oct_onnx_builder *b, const oct_onnx_node *n)
{
    oct_onnx_view x;
    OCT_TRY(oct_build_view(b, n, 0, &x));
    const oct_onnx_view y = oct_view_transpose(&x, n->args.perm, x.dims);
    return oct_build_set_result(b, &y);
}

/* Narrows a view to `count` elements of a dimension, from `start` on by `step`; lays it out anew where it must. */
static oct_status slice_view(oct_onnx_builder *b, oct_onnx_view *x, int dim, int64_t start,
                             int64_t count, int64_t step)
{
    if (oct_view_slice(x, dim, start, count, step, x)) return OCT_OK;
    bool last[OCT_VIEW_ATOMS] = {false};
    OCT_CHECK(oct_view_size(x, dim) > 0, OCT_PREPARE,
              "it takes samples out of the batch; take "
              "parts of a sample only");
    last[dim] = true;
    OCT_TRY(oct_build_lay_out_last(b, x, last));
    oct_view_merge(x, dim, 1);
    OCT_CHECK(oct_view_slice(x, dim, start, count, step, x), OCT_DATA,
              "it cuts from %lld on %lld of dimension %d; export the network again",
              (long long)start, (long long)count, dim);
    return OCT_OK;
}

oct_status oct_build_slice(oct_onnx_builder *b, const oct_onnx_node *n)
{
    oct_onnx_view x;
    const oct_onnx_value *to = &b->graph->values[b->result];
    OCT_TRY(oct_build_view(b, n, 0, &x));
    for (int d = 0; d < x.dims; d++) {
        const bool whole = to->dim[d] == oct_view_size(&x, d) && n->args.step[d] == 1;
        if (!whole) OCT_TRY(slice_view(b, &x, d, n->args.start[d], to->dim[d], n->args.step[d]));
    }
    return oct_build_set_result(b, &x);
}

oct_status oct_build_split(oct_onnx_builder *b, const oct_onnx_node *n)
{
    oct_onnx_view x;
    int64_t at = 0;
    const int dim = n->args.axis;
    OCT_TRY(oct_build_view(b, n, 0, &x));
    for (int i = 0; i < n->outputs; i++) {
        const int64_t size = b->graph->values[n->output[i]].dim[dim];
        oct_onnx_view part = x;
        OCT_TRY(slice_view(b, &part, dim, at, size, 1));
        OCT_TRY(oct_build_set_view(b, n->output[i], &part));
        at += size;
    }
    return OCT_OK;
}

/* Takes constant indices out of a dimension, which must be one or at equal distances: a slice. */
oct_status oct_build_gather(oct_onnx_builder *b, const oct_onnx_node *n)
{
    oct_onnx_view x;
    int64_t first = 0, last = 0, step = 1;
    const oct_onnx_value *to = &b->graph->values[b->result];
    const oct_onnx_value *indices = oct_build_constant(b, n, 1);
    OCT_CHECK(indices && !indices->times, OCT_PREPARE,
              "its second input, the indices, is computed by the network, so that it is an "
              "embedding, which is not trained here; take it out of the network and give the rows "
              "that it takes as the input");
    OCT_TRY(oct_build_view(b, n, 0, &x));
    const int64_t size = oct_view_size(&x, n->args.axis), count = oct_onnx_numel(indices);
    OCT_CHECK(size > 0 && count > 0 && indices->dtype != OCT_F32, OCT_PREPARE,
              "it takes samples out of the batch; take parts of a sample only");
    for (int64_t i = 0; i < count; i++) {
        int64_t place = oct_onnx_get_int(indices, i);
        if (place < 0) place += size;
        OCT_CHECK(place >= 0 && place < size, OCT_DATA,
                  "it takes element %lld of %lld; export the network again", (long long)place,
                  (long long)size);
        if (i == 0) first = place;
        if (i == 1) step = place - first;
        OCT_CHECK(i < 2 || place - last == step, OCT_PREPARE,
                  "it takes elements at unequal distances; use Slice and Concat");
        last = place;
    }
    OCT_CHECK(step != 0, OCT_PREPARE, "it takes an element twice; use Concat");
    OCT_TRY(slice_view(b, &x, n->args.axis, first, count, step));
    OCT_CHECK(oct_view_reshape(&x, to->ndim, to->dim, &x), OCT_PREPARE,
              "its indices have a shape that is not supported; use Slice");
    return oct_build_set_result(b, &x);
}

oct_status oct_build_expand(oct_onnx_builder *b, const oct_onnx_node *n)
{
    oct_onnx_view x;
    const oct_onnx_value *to = &b->graph->values[b->result];
    OCT_TRY(oct_build_view(b, n, 0, &x));
    OCT_CHECK(to->known && oct_view_expand(&x, to->ndim, to->dim, &x), OCT_PREPARE,
              "it repeats samples; repeat parts of a sample only");
    return oct_build_set_result(b, &x);
}

oct_status oct_build_tile(oct_onnx_builder *b, const oct_onnx_node *n)
{
    oct_onnx_view x;
    const oct_onnx_value *to = &b->graph->values[b->result];
    OCT_TRY(oct_build_view(b, n, 0, &x));
    for (int d = 0; d < x.dims; d++) {
        const int64_t times = to->dim[d] / oct_view_size(&x, d);
        OCT_CHECK(times >= 1 && oct_view_tile(&x, d, times, &x), OCT_PREPARE,
                  "it repeats samples; repeat parts of a sample only");
    }
    return oct_build_set_result(b, &x);
}

/* Reshapes an image to 6 dimensions, permutes them, and merges them to the 4 of the result. */
static oct_status move_blocks(oct_onnx_builder *b, const oct_onnx_node *n, const int64_t split[6],
                              const int order[6])
{
    const oct_onnx_value *to = &b->graph->values[b->result];
    oct_onnx_view x;
    OCT_TRY(oct_build_view(b, n, 0, &x));
    OCT_CHECK(oct_view_reshape(&x, 6, split, &x), OCT_PREPARE,
              "its input is too much rearranged; write it in steps");
    x = oct_view_transpose(&x, order, 6);
    OCT_CHECK(oct_view_reshape(&x, 4, to->dim, &x), OCT_DEFECT, "a block has no view");
    return oct_build_set_result(b, &x);
}

/* (N, b b C, H, W) -> (N, C, b H, b W): DCR has the block before the channels, CRD after them. */
oct_status oct_build_depth_to_space(oct_onnx_builder *b, const oct_onnx_node *n)
{
    static const int dcr[] = {0, 3, 4, 1, 5, 2}, crd[] = {0, 1, 4, 2, 5, 3};
    const int64_t *to = b->graph->values[b->result].dim, block = n->args.block;
    const bool channels_after = strcmp(oct_onnx_string(n, "mode", "DCR"), "CRD") == 0;
    const int64_t h = to[2] / block, w = to[3] / block;
    const int64_t before[] = {OCT_ONNX_BATCH, block, block, to[1], h, w};
    const int64_t after[] = {OCT_ONNX_BATCH, to[1], block, block, h, w};
    return move_blocks(b, n, channels_after ? after : before, channels_after ? crd : dcr);
}

/* (N, C, b H, b W) -> (N, b b C, H, W), with the block before the channels */
oct_status oct_build_space_to_depth(oct_onnx_builder *b, const oct_onnx_node *n)
{
    static const int order[] = {0, 3, 5, 1, 2, 4};
    const int64_t *to = b->graph->values[b->result].dim, block = n->args.block;
    const int64_t split[] = {OCT_ONNX_BATCH, to[1] / (block * block), to[2], block, to[3], block};
    return move_blocks(b, n, split, order);
}

/* The module concatenates along the last dimension. So each input is laid out as (N, outer, size inner), in the memory
 * order of the first: `inner` is the size of all dimensions inside the axis, `outer` that of the others. */
oct_status oct_build_concat(oct_onnx_builder *b, const oct_onnx_node *n)
{
    oct_onnx_view x[OCT_MAX_INPUTS];
    int32_t value[OCT_MAX_INPUTS], output;
    int order[OCT_VIEW_ATOMS], at = 0;
    const int dim = n->args.axis;
    OCT_CHECK(n->inputs >= 1 && n->inputs <= OCT_MAX_INPUTS, OCT_PREPARE,
              "it concatenates %d values, and at most %d are supported; use several Concat",
              n->inputs, OCT_MAX_INPUTS);
    const oct_onnx_value *to = &b->graph->values[b->result];
    OCT_CHECK(to->dim[dim] > 0, OCT_PREPARE,
              "it concatenates samples; concatenate parts of a sample only");
    for (int i = 0; i < n->inputs; i++) {
        OCT_TRY(oct_build_view(b, n, i, &x[i]));
        for (int d = 0; d < to->ndim; d++)
            OCT_CHECK(d == dim ? oct_view_size(&x[i], d) > 0
                               : oct_view_size(&x[i], d) == to->dim[d],
                      OCT_DATA, "its inputs do not fit each other; export the network again");
    }
    if (n->inputs == 1) return oct_build_set_result(b, &x[0]);
    const int batch = oct_view_batch(&x[0]);
    OCT_CHECK(batch >= 0 && x[0].num_atoms[batch] == 1, OCT_PREPARE,
              "its samples are mixed with another dimension; export it without merging the batch "
              "dimension");
    /* Images keep their layout: then the channels are concatenated in place. */
    static const int image[] = {2, 3, 1};
    const bool is_image = to->ndim == 4 && batch == 0 && dim == 1;
    const int count = is_image ? 3 : oct_view_order(&x[0], order);
    if (is_image) memcpy(order, image, sizeof image);
    while (order[at] != dim)
        at++;
    int64_t outer = 1, inner = 1;
    for (int i = 0; i < at; i++)
        outer *= to->dim[order[i]];
    for (int i = at + 1; i < count; i++)
        inner *= to->dim[order[i]];
    for (int i = 0; i < n->inputs; i++) {
        const int64_t size = oct_view_size(&x[i], dim);
        oct_shape shape =
            outer == 1 ? OCT_SHAPE(1, size * inner) : OCT_SHAPE(1, outer, size * inner);
        if (is_image) shape = OCT_SHAPE(1, to->dim[2], to->dim[3], size);
        OCT_TRY(oct_build_lay_out(b, &x[i], order, count, shape));
        value[i] = x[i].value;
    }
    OCT_TRY(oct_build_call(b, "concat", OCT_NO_ARGS, value, n->inputs, &output));
    oct_shape shape =
        outer == 1 ? OCT_SHAPE(1, to->dim[dim] * inner) : OCT_SHAPE(1, outer, to->dim[dim] * inner);
    if (is_image) shape = OCT_SHAPE(1, to->dim[2], to->dim[3], to->dim[1]);
    const oct_onnx_view y = oct_view_in_order(output, shape, to->ndim, to->dim, order, count);
    return oct_build_set_result(b, &y);
}
