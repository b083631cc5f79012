/* Products: of a value with weights, which is a linear layer over its last dimension, and of two values. */
#include "io/onnx/build_impl.h"

/* The view after a product with weights: its dimension `dim`, innermost in memory, now has `size` values in place of
 * those before, and the strides of all others grow with it. False: it has too many atoms. */
static bool resize_dimension(const oct_onnx_view *v, int dim, int32_t value, int64_t size,
                             oct_onnx_view *out)
{
    const oct_view_atom one = {size, 1};
    const int64_t old_size = oct_view_size(v, dim);
    *out = *v;
    for (int i = 0; i < oct_view_first_atom(v, v->dims); i++)
        out->atom[i].stride = v->atom[i].stride / old_size * size;
    out->value = value;
    out->shape.dim[out->shape.ndim - 1] = size;
    return oct_view_set_atoms(out, dim, &one, size > 1 ? 1 : 0);
}

/* A product with weights, as its node says it. */
typedef struct product {
    const oct_onnx_value *weight, *bias;
    bool transposed;    /* the file has (O, I), else (I, O) */
    double alpha, beta; /* factors of weights and bias */
    oct_onnx_view x;
    int dim; /* of x, over which it goes */
} product;

/* A view of (C, H, W) that the file flattens in this order lies in memory as (H, W, C). Rather than move x, the columns
 * of the weights are taken in memory order: writes their sizes and strides. False: x must be moved. */
static bool columns_in_memory_order(const product *p, oct_file_order *columns)
{
    const oct_onnx_view *x = &p->x;
    const int first = oct_view_first_atom(x, p->dim), count = x->num_atoms[p->dim];
    const int64_t size = oct_view_size(x, p->dim);
    if (count < 2 || count > OCT_FILE_ORDER_DIMS - 1 || !oct_view_is_whole(x)) return false;
    *columns = (oct_file_order){.dims = count};
    int64_t last = 0; /* place of the last column */
    for (int i = 0; i < count; i++) {
        columns->size[i] = x->atom[first + i].size;
        columns->stride[i] = x->atom[first + i].stride;
        last += (columns->size[i] - 1) * columns->stride[i];
    }
    return last < size; /* else others lie between them */
}

/* Lays x out as (N, rest, I), and writes how the file's weights, (O, I) or (I, O), go into the module's (O, I). */
static oct_status lay_out_input(oct_onnx_builder *b, product *p, oct_file_order *order)
{
    bool last[OCT_VIEW_ATOMS] = {false};
    oct_file_order columns;
    const int64_t in = oct_view_size(&p->x, p->dim);
    const int64_t out = oct_onnx_numel(p->weight) / in;
    last[p->dim] = true;
    if (columns_in_memory_order(p, &columns)) {
        oct_view_merge(&p->x, p->dim, 1); /* as it lies */
    } else {
        columns = oct_file_order_of(1, &in);
    }
    OCT_TRY(oct_build_lay_out_last(b, &p->x, last));
    *order = (oct_file_order){.dims = columns.dims + 1};
    const int at = p->transposed ? 1 : 0;
    for (int i = 0; i < columns.dims; i++) {
        order->size[at + i] = columns.size[i];
        order->stride[at + i] = columns.stride[i];
    }
    const int64_t row = p->transposed ? 0 : columns.dims;
    order->size[row] = out;
    order->stride[row] = in;
    return OCT_OK;
}

/* Copies the file's bias, times beta, into the module's: one number for all outputs, or one for each. */
static oct_status fill_bias(oct_onnx_builder *b, const product *p, int32_t output, int64_t out)
{
    int64_t count;
    float *bias = oct_build_data(b, output, "bias", &count);
    if (oct_onnx_numel(p->bias) == out) {
        const oct_file_order order = oct_file_order_of(1, &out);
        return oct_build_fill(b, output, "bias", p->bias, &order, p->beta);
    }
    OCT_CHECK(oct_onnx_numel(p->bias) == 1, OCT_PREPARE,
              "its bias differs from row to row; only one for each output is supported");
    for (int64_t i = 0; i < count; i++)
        bias[i] = (float)((double)*(const float *)p->bias->data * p->beta);
    oct_build_freeze(b, output, "bias", !p->bias->learned);
    return OCT_OK;
}

/* Calls a linear layer along dimension `dim` of x, whose size I becomes O. */
static oct_status add_linear(oct_onnx_builder *b, product *p, oct_onnx_view *y)
{
    int32_t value;
    bool is_new;
    const int64_t in = oct_view_size(&p->x, p->dim);
    OCT_CHECK(
        p->weight->ndim == 2 && p->weight->dim[p->transposed ? 1 : 0] == in, OCT_DATA,
        "its weights do not fit an input of %lld; use images of the size that the network was "
        "made for, or export it again",
        (long long)in);
    const int64_t out = p->weight->dim[p->transposed ? 0 : 1];
    oct_onnx_layer layer = {
        .weight = p->weight, .bias = p->bias, .alpha = p->alpha, .beta = p->beta};
    OCT_TRY(lay_out_input(b, p, &layer.order));
    OCT_TRY(oct_build_call_layer(b, "linear", OCT_ARGS(linear, in, out, p->bias != NULL), &layer,
                                 p->x.value, &value, &is_new));
    if (is_new && p->bias) OCT_TRY(fill_bias(b, p, value, out));
    OCT_CHECK(resize_dimension(&p->x, p->dim, value, out, y), OCT_PREPARE,
              "its input is too much rearranged; write it in steps");
    return OCT_OK;
}

/* The layer's bias: what the next node adds, when that is a constant with one number for each output; else NULL. */
static const oct_onnx_value *find_bias(oct_onnx_builder *b, const product *p, int dims)
{
    return oct_build_take_constant(b, "Add", dims, &p->weight->dim[p->transposed ? 0 : 1], 1, 0);
}

/* alpha x W + beta bias, with constant weights (transB: W is (O, I)): a linear layer */
oct_status oct_build_gemm(oct_onnx_builder *b, const oct_onnx_node *n)
{
    product p = {.dim = 1,
                 .transposed = oct_onnx_int(n, "transB", 0) != 0,
                 .alpha = (double)oct_onnx_float(n, "alpha", 1),
                 .beta = (double)oct_onnx_float(n, "beta", 1)};
    oct_onnx_view y;
    OCT_TRY(oct_build_weights(b, n, 1, &p.weight));
    if (n->inputs > 2 && n->input[2] >= 0) OCT_TRY(oct_build_weights(b, n, 2, &p.bias));
    OCT_TRY(oct_build_view(b, n, 0, &p.x));
    OCT_CHECK(oct_onnx_int(n, "transA", 0) == 0 && p.x.dims == 2 && oct_view_batch(&p.x) == 0,
              OCT_PREPARE, "its first input is transposed; export it as MatMul");
    if (!p.bias) p.bias = find_bias(b, &p, 2);
    OCT_TRY(add_linear(b, &p, &y));
    return oct_build_set_result(b, &y);
}

/* Reshapes x from (..., rows, columns) so that each leading dimension is a single atom: the batch is then one of them
 * by itself. Lays it out as (N, lead, rows, columns), `lead` being the product of the others, or as (N, rows, columns)
 * where that is 1. Writes the new dimensions to `size` and `dims`. */
static oct_status lay_out_matrix(oct_onnx_builder *b, oct_onnx_view *x,
                                 int64_t size[OCT_VIEW_ATOMS], int *dims)
{
    int order[OCT_VIEW_ATOMS], count = 0;
    const int64_t rows = oct_view_size(x, x->dims - 2), columns = oct_view_size(x, x->dims - 1);
    const int leading = oct_view_first_atom(x, x->dims - 2);
    OCT_CHECK(leading + 2 <= OCT_VIEW_ATOMS, OCT_PREPARE,
              "its inputs are too much rearranged; write it in steps");
    for (*dims = 0; *dims < leading; (*dims)++) {
        size[*dims] = x->atom[*dims].size;
        if (size[*dims] > 0) order[count++] = *dims; /* the batch is negative */
    }
    order[count++] = *dims;
    size[(*dims)++] = rows;
    order[count++] = *dims;
    size[(*dims)++] = columns;
    const int64_t lead = oct_view_numel(x) / (rows * columns);
    OCT_CHECK(oct_view_reshape(x, *dims, size, x), OCT_PREPARE,
              "its inputs are too much rearranged; write it in steps");
    return oct_build_lay_out(b, x, order, count,
                             lead > 1 ? OCT_SHAPE(1, lead, rows, columns)
                                      : OCT_SHAPE(1, rows, columns));
}

/* (..., M, K) x (..., K, L) of two computed values, matrix by matrix */
static oct_status multiply_values(oct_onnx_builder *b, const oct_onnx_node *n)
{
    oct_onnx_view x[2];
    int64_t size[2][OCT_VIEW_ATOMS];
    int dims[2];
    const oct_onnx_value *y = &b->graph->values[b->result];
    int32_t output;
    OCT_CHECK(y->known && y->ndim >= 3, OCT_PREPARE,
              "it multiplies two values of the network with %d dimensions; 3 or more are supported",
              y->ndim);
    for (int i = 0; i < 2; i++) {
        int64_t wide[OCT_ONNX_DIMS];
        OCT_TRY(oct_build_view(b, n, i, &x[i]));
        OCT_CHECK(x[i].dims >= 2, OCT_PREPARE, "its inputs are no matrices; reshape them");
        for (int d = 0; d < y->ndim; d++)
            wide[d] = d < y->ndim - 2 ? y->dim[d] : oct_view_size(&x[i], d - y->ndim + x[i].dims);
        OCT_CHECK(oct_view_expand(&x[i], y->ndim, wide, &x[i]), OCT_PREPARE,
                  "its inputs do not fit each other; export it again");
        OCT_TRY(lay_out_matrix(b, &x[i], size[i], &dims[i]));
    }
    OCT_TRY(
        oct_build_call(b, "matmul", OCT_NO_ARGS, (int32_t[]){x[0].value, x[1].value}, 2, &output));
    oct_shape shape = x[0].shape;
    size[0][dims[0] - 1] = shape.dim[shape.ndim - 1] = size[1][dims[1] - 1];
    oct_onnx_view z = oct_view_of(output, shape, dims[0], size[0]);
    OCT_CHECK(oct_view_reshape(&z, y->ndim, y->dim, &z), OCT_PREPARE,
              "its inputs do not fit each other; export it again");
    return oct_build_set_result(b, &z);
}

/* A linear layer where one input is a constant matrix; else the product of two computed values. */
oct_status oct_build_matmul(oct_onnx_builder *b, const oct_onnx_node *n)
{
    product p = {.alpha = 1, .beta = 1};
    oct_onnx_view y;
    const bool left = oct_build_constant(b, n, 0) != NULL; /* weights times a value */
    if (!left && !oct_build_constant(b, n, 1)) return multiply_values(b, n);
    OCT_TRY(oct_build_weights(b, n, left ? 0 : 1, &p.weight));
    OCT_TRY(oct_build_view(b, n, left ? 1 : 0, &p.x));
    OCT_CHECK(p.weight->ndim == 2, OCT_PREPARE,
              "its weights have %d dimensions; only matrices are supported", p.weight->ndim);
    OCT_CHECK(p.x.dims >= 2, OCT_PREPARE, "its input has one dimension; export it with a batch");
    p.dim = left ? p.x.dims - 2 : p.x.dims - 1;
    p.transposed = left;
    if (!left) p.bias = find_bias(b, &p, p.x.dims);
    OCT_TRY(add_linear(b, &p, &y));
    return oct_build_set_result(b, &y);
}
