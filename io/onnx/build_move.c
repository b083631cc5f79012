/* What only moves values changes views. Where a view cannot say it, values are laid out first. */
#include "io/onnx/build_impl.h"

#include "core/base/int_math.h"

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
        OCT_TRY(oct_build_lay_last(b, &x, all));
        OCT_CHECK(oct_view_reshape(&x, to->ndim, to->dim, &y), OCT_PREPARE,
                  "it mixes the samples of a batch; export it with the batch as a dimension of its "
                  "own");
    }
    return oct_build_result(b, &y);
}

oct_status oct_build_identity(oct_onnx_builder *b, const oct_onnx_node *n)
{
    oct_onnx_view x;
    OCT_TRY(oct_build_view(b, n, 0, &x));
    return oct_build_result(b, &x);
}

oct_status oct_build_dropout(oct_onnx_builder *b, const oct_onnx_node *n)
{
    oct_onnx_view x;
    double ratio = (double)oct_onnx_float(n, "ratio", 0.5F);
    OCT_TRY(oct_build_view(b, n, 0, &x));
    if (n->inputs > 1 && n->input[1] >= 0)
        OCT_CHECK(oct_build_scalar(b, n->input[1], &ratio), OCT_PREPARE,
                  "its ratio is computed; export it with a constant");
    OCT_TRY(oct_build_apply(b, "dropout", OCT_OP_ARGS(ratio), &x));
    return oct_build_result(b, &x);
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
    int64_t count;
    int order[OCT_ONNX_DIMS];
    const int64_t *perm = oct_onnx_ints(n, "perm", &count);
    OCT_TRY(oct_build_view(b, n, 0, &x));
    OCT_CHECK(!perm || count == x.dims, OCT_DATA,
              "perm has %lld numbers, but its input %d "
              "dimensions; export the network again",
              (long long)count, x.dims);
    for (int d = 0; d < x.dims; d++) {
        order[d] = perm ? (int)perm[d] : x.dims - 1 - d;
        OCT_CHECK(!perm || (perm[d] >= 0 && perm[d] < x.dims), OCT_DATA,
                  "perm has a %lld; export the network again", (long long)perm[d]);
        for (int e = 0; e < d; e++)
            OCT_CHECK(order[e] != order[d], OCT_DATA, "perm has %d twice; export the network again",
                      order[d]);
    }
    const oct_onnx_view y = oct_view_transpose(&x, order);
    return oct_build_result(b, &y);
}

static oct_status axis_of(int64_t axis, int dims, int *dim)
{
    *dim = 0;
    OCT_CHECK(axis >= -dims && axis < dims, OCT_DATA,
              "axis %lld of %d dimensions; export the network again", (long long)axis, dims);
    *dim = (int)(axis < 0 ? axis + dims : axis);
    return OCT_OK;
}

/* Cuts a part out of one dimension. */
static oct_status slice(oct_onnx_builder *b, oct_onnx_view *x, int dim, int64_t start,
                        int64_t count, int64_t step)
{
    if (oct_view_slice(x, dim, start, count, step, x)) return OCT_OK;
    bool last[OCT_VIEW_ATOMS] = {false};
    OCT_CHECK(oct_view_size(x, dim) > 0, OCT_PREPARE,
              "it takes samples out of the batch; take "
              "parts of a sample only");
    last[dim] = true;
    OCT_TRY(oct_build_lay_last(b, x, last));
    oct_view_merge(x, dim, 1);
    OCT_CHECK(oct_view_slice(x, dim, start, count, step, x), OCT_DATA,
              "it cuts from %lld on %lld of dimension %d; export the network again",
              (long long)start, (long long)count, dim);
    return OCT_OK;
}

/* Brings a start or end of Slice into the dimension. */
static int64_t clamp_end(int64_t at, int64_t size, int64_t step)
{
    if (at < 0) at += size;
    return step > 0 ? oct_min_i64(oct_max_i64(at, 0), size)
                    : oct_min_i64(oct_max_i64(at, -1), size - 1);
}

oct_status oct_build_slice(oct_onnx_builder *b, const oct_onnx_node *n)
{
    oct_onnx_view x;
    int64_t start[2 * OCT_ONNX_DIMS], end[2 * OCT_ONNX_DIMS], axis[2 * OCT_ONNX_DIMS];
    int64_t step[2 * OCT_ONNX_DIMS];
    int starts, ends, axes, steps;
    const bool old = n->inputs == 1;
    OCT_TRY(oct_build_view(b, n, 0, &x));
    OCT_TRY(oct_build_integers(b, n, old ? -1 : 1, "starts", start, &starts));
    OCT_TRY(oct_build_integers(b, n, old ? -1 : 2, "ends", end, &ends));
    OCT_TRY(oct_build_integers(b, n, old ? -1 : 3, "axes", axis, &axes));
    OCT_TRY(oct_build_integers(b, n, old ? -1 : 4, "steps", step, &steps));
    OCT_CHECK(starts >= 0 && starts == ends && (axes < 0 || axes == starts) &&
                  (steps < 0 || steps == starts),
              OCT_DATA, "its starts and ends do not fit each other; export the network again");
    for (int i = 0; i < starts; i++) {
        int dim;
        OCT_TRY(axis_of(axes < 0 ? i : axis[i], x.dims, &dim));
        const int64_t size = oct_view_size(&x, dim), by = steps < 0 ? 1 : step[i];
        if (size < 0 && start[i] == 0 && end[i] >= INT32_MAX && by == 1) continue;
        OCT_CHECK(size > 0, OCT_PREPARE,
                  "it takes samples out of the batch; take parts of a "
                  "sample only");
        OCT_CHECK(by != 0 && by >= -size && by <= INT32_MAX, OCT_DATA,
                  "its step is %lld; export the network again", (long long)by);
        int64_t from = end[i], to = end[i];
        /* INT64_MIN as an end means: to the first element, in a slice that goes backwards. */
        to = by < 0 && end[i] < -size ? -1 : clamp_end(end[i], size, by);
        from = clamp_end(start[i], size, by);
        const int64_t reach = by > 0 ? to - from : from - to, stride = by > 0 ? by : -by;
        OCT_CHECK(reach > 0, OCT_DATA, "it cuts out nothing; export the network again");
        OCT_TRY(slice(b, &x, dim, from, (reach + stride - 1) / stride, by));
    }
    return oct_build_result(b, &x);
}

oct_status oct_build_split(oct_onnx_builder *b, const oct_onnx_node *n)
{
    oct_onnx_view x;
    int64_t at = 0;
    int dim;
    OCT_TRY(oct_build_view(b, n, 0, &x));
    OCT_TRY(axis_of(oct_onnx_int(n, "axis", 0), x.dims, &dim));
    OCT_CHECK(oct_view_size(&x, dim) > 0, OCT_PREPARE,
              "it takes samples out of the batch; take "
              "parts of a sample only");
    for (int i = 0; i < n->outputs; i++) {
        if (n->output[i] < 0) continue;
        const oct_onnx_value *y = &b->graph->values[n->output[i]];
        OCT_CHECK(y->known && y->ndim == x.dims && y->dim[dim] > 0 &&
                      y->dim[dim] <= oct_view_size(&x, dim) - at,
                  OCT_DATA, "its parts do not fit its input; export the network again");
        oct_onnx_view part = x;
        OCT_TRY(slice(b, &part, dim, at, y->dim[dim], 1));
        OCT_TRY(oct_build_output(b, n->output[i], &part));
        at += y->dim[dim];
    }
    return OCT_OK;
}

/* Constant places in a dimension: one, or some at equal distances. */
oct_status oct_build_gather(oct_onnx_builder *b, const oct_onnx_node *n)
{
    oct_onnx_view x;
    int64_t place[2 * OCT_ONNX_DIMS];
    int dim, count;
    OCT_TRY(oct_build_view(b, n, 0, &x));
    OCT_TRY(axis_of(oct_onnx_int(n, "axis", 0), x.dims, &dim));
    OCT_CHECK(oct_build_constant(b, n, 1), OCT_PREPARE,
              "which rows it takes is computed (an embedding); leave it out and give the rows "
              "themselves as the input");
    OCT_TRY(oct_build_integers(b, n, 1, "indices", place, &count));
    const oct_onnx_value *to = &b->graph->values[b->result];
    const int64_t size = oct_view_size(&x, dim);
    OCT_CHECK(size > 0 && count > 0, OCT_PREPARE,
              "it takes samples out of the batch; take parts of a sample only");
    for (int i = 0; i < count; i++) {
        if (place[i] < 0) place[i] += size;
        OCT_CHECK(place[i] >= 0 && place[i] < size, OCT_DATA,
                  "it takes element %lld of %lld; export the network again", (long long)place[i],
                  (long long)size);
        OCT_CHECK(i < 2 || place[i] - place[i - 1] == place[1] - place[0], OCT_PREPARE,
                  "it takes elements at unequal distances; use Slice and Concat");
    }
    const int64_t step = count > 1 ? place[1] - place[0] : 1;
    OCT_CHECK(step != 0, OCT_PREPARE, "it takes an element twice; use Concat");
    OCT_TRY(slice(b, &x, dim, place[0], count, step));
    OCT_CHECK(to->known && oct_view_reshape(&x, to->ndim, to->dim, &x), OCT_PREPARE,
              "its indices have a shape that is not supported; use Slice");
    return oct_build_result(b, &x);
}

oct_status oct_build_expand(oct_onnx_builder *b, const oct_onnx_node *n)
{
    oct_onnx_view x;
    const oct_onnx_value *to = &b->graph->values[b->result];
    OCT_TRY(oct_build_view(b, n, 0, &x));
    OCT_CHECK(to->known && oct_view_expand(&x, to->ndim, to->dim, &x), OCT_PREPARE,
              "it repeats samples; repeat parts of a sample only");
    return oct_build_result(b, &x);
}

oct_status oct_build_tile(oct_onnx_builder *b, const oct_onnx_node *n)
{
    oct_onnx_view x;
    int64_t times[2 * OCT_ONNX_DIMS];
    int count;
    OCT_TRY(oct_build_view(b, n, 0, &x));
    OCT_TRY(oct_build_integers(b, n, 1, "repeats", times, &count));
    OCT_CHECK(count == x.dims, OCT_DATA,
              "its repeats do not fit its input; export the network again");
    for (int d = 0; d < x.dims; d++)
        OCT_CHECK(times[d] >= 1 && times[d] <= INT32_MAX && oct_view_tile(&x, d, times[d], &x),
                  OCT_PREPARE, "it repeats samples; repeat parts of a sample only");
    return oct_build_result(b, &x);
}

/* (N, b b C, H, W) -> (N, C, b H, b W): DCR has the block before the channels, CRD after them. */
oct_status oct_build_depth_to_space(oct_onnx_builder *b, const oct_onnx_node *n)
{
    static const int dcr[] = {0, 3, 4, 1, 5, 2}, crd[] = {0, 1, 4, 2, 5, 3};
    oct_onnx_view x;
    OCT_TRY(oct_build_view(b, n, 0, &x));
    const int64_t block = oct_onnx_int(n, "blocksize", 0);
    const bool channels_after = strcmp(oct_onnx_string(n, "mode", "DCR"), "CRD") == 0;
    OCT_CHECK(x.dims == 4 && block >= 1 && block <= 64 &&
                  oct_view_size(&x, 1) % (block * block) == 0,
              OCT_DATA, "a block of %lld does not fit its input; export the network again",
              (long long)block);
    const int64_t h = oct_view_size(&x, 2), w = oct_view_size(&x, 3);
    const int64_t c = oct_view_size(&x, 1) / (block * block);
    const int64_t before[] = {OCT_ONNX_BATCH, block, block, c, h, w};
    const int64_t after[] = {OCT_ONNX_BATCH, c, block, block, h, w};
    const int64_t size[] = {OCT_ONNX_BATCH, c, h * block, w * block};
    OCT_CHECK(oct_view_reshape(&x, 6, channels_after ? after : before, &x), OCT_PREPARE,
              "its input is too much rearranged; write it in steps");
    x = oct_view_transpose(&x, channels_after ? crd : dcr);
    OCT_CHECK(oct_view_reshape(&x, 4, size, &x), OCT_DEFECT, "a block has no view");
    return oct_build_result(b, &x);
}

oct_status oct_build_space_to_depth(oct_onnx_builder *b, const oct_onnx_node *n)
{
    static const int order[] = {0, 3, 5, 1, 2, 4};
    oct_onnx_view x;
    OCT_TRY(oct_build_view(b, n, 0, &x));
    const int64_t block = oct_onnx_int(n, "blocksize", 0);
    OCT_CHECK(x.dims == 4 && block >= 1 && block <= 64 && oct_view_size(&x, 2) % block == 0 &&
                  oct_view_size(&x, 3) % block == 0,
              OCT_DATA, "a block of %lld does not fit its input; export the network again",
              (long long)block);
    const int64_t h = oct_view_size(&x, 2) / block, w = oct_view_size(&x, 3) / block;
    const int64_t c = oct_view_size(&x, 1);
    const int64_t split[] = {OCT_ONNX_BATCH, c, h, block, w, block};
    const int64_t size[] = {OCT_ONNX_BATCH, c * block * block, h, w};
    OCT_CHECK(oct_view_reshape(&x, 6, split, &x), OCT_PREPARE,
              "its input is too much rearranged; write it in steps");
    x = oct_view_transpose(&x, order);
    OCT_CHECK(oct_view_reshape(&x, 4, size, &x), OCT_DEFECT, "a block has no view");
    return oct_build_result(b, &x);
}

/* Concat of modules works along the last dimension: dimensions inside of the axis are made part of it. All inputs
 * are laid out in the order of the first. */
oct_status oct_build_concat(oct_onnx_builder *b, const oct_onnx_node *n)
{
    oct_onnx_view x[OCT_MAX_INPUTS];
    int32_t value[OCT_MAX_INPUTS], made;
    int order[OCT_VIEW_ATOMS], dim, at = 0;
    int64_t total = 0;
    OCT_CHECK(n->inputs >= 1 && n->inputs <= OCT_MAX_INPUTS, OCT_PREPARE,
              "it concatenates %d values, and at most %d are supported; use several Concat",
              n->inputs, OCT_MAX_INPUTS);
    const oct_onnx_value *to = &b->graph->values[b->result];
    OCT_TRY(axis_of(oct_onnx_int(n, "axis", 0), to->ndim, &dim));
    OCT_CHECK(to->known && to->dim[dim] > 0, OCT_PREPARE,
              "it concatenates samples; concatenate parts of a sample only");
    for (int i = 0; i < n->inputs; i++) {
        OCT_TRY(oct_build_view(b, n, i, &x[i]));
        bool fits = x[i].dims == to->ndim && oct_view_size(&x[i], dim) > 0;
        for (int d = 0; fits && d < to->ndim; d++)
            fits = d == dim || oct_view_size(&x[i], d) == to->dim[d];
        if (fits) total += oct_view_size(&x[i], dim);
        OCT_CHECK(fits && (i + 1 < n->inputs || total == to->dim[dim]), OCT_DATA,
                  "its inputs do not fit each other; export the network again");
    }
    if (n->inputs == 1) return oct_build_result(b, &x[0]);
    const int batch = oct_view_batch(&x[0]);
    OCT_CHECK(batch >= 0 && x[0].atoms[batch] == 1, OCT_PREPARE,
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
    OCT_TRY(oct_build_call(b, "concat", OCT_NO_ARGS, value, n->inputs, &made));
    oct_shape shape =
        outer == 1 ? OCT_SHAPE(1, to->dim[dim] * inner) : OCT_SHAPE(1, outer, to->dim[dim] * inner);
    if (is_image) shape = OCT_SHAPE(1, to->dim[2], to->dim[3], to->dim[1]);
    const oct_onnx_view y = oct_view_in_order(made, shape, to->ndim, to->dim, order, count);
    return oct_build_result(b, &y);
}
