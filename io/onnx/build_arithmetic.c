/* Arithmetic of two values wants both in one layout; with constants it is a layer. */
#include "io/onnx/build_impl.h"

#include <string.h>

/* Sums come first: a difference is one of them with a sign, a quotient a product with an inverse. */
typedef struct arithmetic {
    const char *type; /* of the module for two values: add, sub, mul, div */
    bool sum, inverse;
    bool frozen; /* the constants are not learned: they normalize images */
} arithmetic;

/* What a constant adds, or what it multiplies with: to the value it is for, x - c is x + (-c). */
static float applied_value(const arithmetic *a, float c)
{
    if (!a->inverse) return c;
    return a->sum ? -c : 1.0F / c;
}

/* x op c: x - c is x + (-c), x / c is x (1 / c). */
static oct_status apply_number(oct_onnx_builder *b, const arithmetic *a, oct_onnx_view *x, double c)
{
    if (a->inverse) {
        OCT_CHECK(a->sum || c != 0, OCT_DATA, "it divides by 0; export the network again");
        c = a->sum ? -c : 1.0 / c;
    }
    const bool nothing = a->sum ? c == 0 : c == 1;
    if (!nothing)
        OCT_TRY(oct_build_call_unary(b, a->sum ? "add_scalar" : "mul_scalar", OCT_OP_ARGS(c), x));
    return oct_build_set_result(b, x);
}

/* The one dimension, among `dims` that align at the last, along which a constant has several numbers; -1: none, or
 * more. */
static int find_only_dimension(const oct_onnx_value *c, int dims)
{
    int found = -1;
    for (int d = 0; d < c->ndim; d++) {
        if (c->dim[d] == 1) continue;
        if (found >= 0) return -1;
        found = dims - c->ndim + d;
    }
    return found;
}

/* Is the value the network's input, at most moved and scaled by constants, which normalize it and are not trained? */
static bool is_moved_input(const oct_onnx_builder *b, int32_t value)
{
    static const char *const types[] = {
        "Add",    "Cast",  "Clip",  "Concat", "Div",     "Gather",    "Mul",       "Pad", "Reshape",
        "Resize", "Slice", "Split", "Sub",    "Squeeze", "Transpose", "Unsqueeze", NULL};
    while (b->producer[value] >= 0) {
        const oct_onnx_node *n = &b->graph->nodes[b->producer[value]];
        int i = 0;
        while (i < n->inputs && (n->input[i] < 0 || b->graph->values[n->input[i]].data))
            i++;
        if (!oct_list_has(types, n->type) || i == n->inputs) return false;
        value = n->input[i];
    }
    return true;
}

/* Fills a depthwise convolution of 1 x 1, weight x + bias for each channel: of a sum the weight is 1 and c the bias, of
 * a product c is the weight and `addend` (NULL: none) the bias. */
static oct_status fill_channels(oct_onnx_builder *b, int32_t output, const arithmetic *a,
                                const oct_onnx_value *c, const oct_onnx_value *addend)
{
    int64_t size, none;
    float *weight = oct_build_data(b, output, "weight", &size);
    float *bias = oct_build_data(b, output, "bias", &none);
    const float *values = c->data, *more = addend ? addend->data : NULL;
    for (int64_t i = 0; i < size; i++) {
        weight[i] = a->sum ? 1.0F : applied_value(a, values[i]);
        if (bias) bias[i] = a->sum ? applied_value(a, values[i]) : more[i];
    }
    OCT_CHECK(oct_all_finite(weight, size) && (!bias || oct_all_finite(bias, size)), OCT_DATA,
              "%s makes numbers that are infinite; export the network again", c->name);
    /* Whatever the file has as it is keeps its name. */
    if (!a->inverse) OCT_TRY(oct_build_fill_flat(b, output, a->sum ? "bias" : "weight", c));
    if (addend) OCT_TRY(oct_build_fill_flat(b, output, "bias", addend));
    oct_build_freeze(b, output, "weight", a->frozen || a->sum || !c->learned);
    if (bias) oct_build_freeze(b, output, "bias", a->frozen || !(a->sum ? c : addend)->learned);
    return OCT_OK;
}

/* x op c with a number for each channel, which lie innermost: a depthwise convolution of 1 x 1, which is quantized like
 * any other. An Add of such a constant after a product becomes its bias. */
static oct_status apply_to_channels(oct_onnx_builder *b, const arithmetic *a, oct_onnx_view *x,
                                    int dim, const oct_onnx_value *c)
{
    const int64_t size = oct_view_size(x, dim), rest = oct_view_numel(x) / size;
    const oct_onnx_value *addend = NULL;
    int32_t output;
    if (!a->sum) addend = oct_build_take_constant(b, "Add", x->dims, &size, 1, x->dims - 1 - dim);
    int order[OCT_VIEW_ATOMS]; /* `dim` is the last of them */
    const int n = oct_view_order(x, order);
    const bool image = x->shape.ndim == 4 && x->shape.dim[3] == size;
    OCT_TRY(oct_build_lay_out(b, x, order, n, image ? x->shape : OCT_SHAPE(1, 1, rest, size)));
    OCT_TRY(oct_build_call(
        b, "conv2d",
        OCT_ARGS(conv2d, size, size, oct_conv_geometry_of(1, 1, 1, 0, (int)size), a->sum || addend),
        &x->value, 1, &output));
    OCT_TRY(fill_channels(b, output, a, c, addend));
    x->value = output;
    return oct_build_set_result(b, x);
}

/* x op c for any other constant: a module with a parameter of a sample's shape, of size 1 where it is broadcast. */
static oct_status apply_parameter(oct_onnx_builder *b, const arithmetic *a, oct_onnx_view *x,
                                  const oct_onnx_value *c)
{
    oct_op_args args;
    oct_parameter_args parameter_shape = {0};
    oct_file_order order = {0};
    int natural[OCT_VIEW_ATOMS];
    oct_shape shape = {.ndim = 1, .dim = {1, 1, 1, 1}};
    int32_t output;
    int64_t count;
    const int n = oct_view_order(x, natural), batch = oct_view_batch(x);
    OCT_CHECK(n <= 3 && batch >= 0 && x->num_atoms[batch] == 1, OCT_PREPARE,
              "its constant has more dimensions than are supported; reshape both first");
    for (int i = 0; i < n; i++)
        shape.dim[shape.ndim++] = oct_view_size(x, natural[i]);
    OCT_TRY(oct_build_lay_out(b, x, natural, n, shape));
    parameter_shape.ndim = n;
    int64_t stride = 1, parameter_stride[OCT_VIEW_ATOMS] = {0};
    for (int i = n - 1; i >= 0; i--) {
        const int d = natural[i] - (x->dims - c->ndim);
        const int64_t size = d >= 0 ? c->dim[d] : 1;
        OCT_CHECK(size == 1 || size == shape.dim[i + 1], OCT_DATA,
                  "%s does not fit its input; export the network again", c->name);
        parameter_shape.dim[i] = size;
        parameter_stride[natural[i]] = stride;
        stride *= size;
    }
    oct_args_write(&oct_parameter_arg_list, &parameter_shape, &args);
    OCT_CHECK(stride == oct_onnx_numel(c), OCT_PREPARE,
              "%s differs from sample to sample; use one for all", c->name);
    for (int d = 0; d < c->ndim; d++)
        if (c->dim[d] > 1) {
            order.size[order.dims] = c->dim[d];
            order.stride[order.dims++] = parameter_stride[d + x->dims - c->ndim];
        }
    OCT_TRY(oct_build_call(b, a->sum ? "add_parameter" : "mul_parameter", &args, &x->value, 1,
                           &output));
    /* The file has c, not -c or 1 / c: a factor of -1 keeps its name from being recorded. */
    OCT_TRY(oct_build_fill(b, output, "weight", c, &order, a->inverse ? -1 : 1));
    if (a->frozen) oct_build_freeze(b, output, "weight", true);
    if (a->inverse) {
        float *values = oct_build_data(b, output, "weight", &count);
        for (int64_t i = 0; i < count; i++)
            values[i] = applied_value(a, -values[i]);
        OCT_CHECK(oct_all_finite(values, count), OCT_DATA,
                  "%s makes numbers that are infinite; export the network again", c->name);
    }
    x->value = output;
    return oct_build_set_result(b, x);
}

/* Puts dimensions of size 1 in front, as ONNX reads shapes that are shorter. */
static oct_status add_leading_dimensions(oct_onnx_view *x, int dims)
{
    int64_t size[OCT_ONNX_DIMS];
    const int front = dims - x->dims;
    OCT_CHECK(front >= 0 && dims <= OCT_ONNX_DIMS, OCT_DATA,
              "its inputs do not fit each other; "
              "export the network again");
    for (int d = 0; d < dims; d++)
        size[d] = d < front ? 1 : oct_view_size(x, d - front);
    OCT_CHECK(oct_view_expand(x, dims, size, x), OCT_PREPARE,
              "its inputs have too many dimensions; write it in steps");
    return OCT_OK;
}

/* Gives `x` the memory layout of `lead`, which has the same dimensions and sees each element of its tensor once. */
static oct_status lay_out_like(oct_onnx_builder *b, oct_onnx_view *x, const oct_onnx_view *lead)
{
    int64_t size[OCT_VIEW_ATOMS];
    int order[OCT_VIEW_ATOMS];
    const oct_onnx_view split = oct_view_split(lead);
    oct_onnx_view same;
    for (int d = 0; d < split.dims; d++)
        size[d] = oct_view_size(&split, d);
    const int n = oct_view_order(&split, order);
    if (!oct_view_reshape(x, split.dims, size, &same)) {
        OCT_TRY(oct_build_lay_out_natural(b, x));
        OCT_CHECK(oct_view_reshape(x, split.dims, size, &same), OCT_PREPARE,
                  "its inputs are too differently arranged; write it in steps");
    }
    OCT_TRY(oct_build_lay_out(b, &same, order, n, lead->shape));
    *x = *lead;
    x->value = same.value;
    return OCT_OK;
}

/* Lays two operands out for a module that broadcasts the smaller one itself: `small` has a number for each channel, (1,
 * 1, 1, C), or for each pixel, (1, H, W, 1). *done is false where it has neither. */
static oct_status lay_out_broadcast(oct_onnx_builder *b, oct_onnx_view *lead, oct_onnx_view *small,
                                    bool *done)
{
    int order[OCT_VIEW_ATOMS], count = 0, first = 0;
    int inner[OCT_VIEW_ATOMS]; /* dimensions of more than 1, in memory order */
    const int n = oct_view_order(lead, order);
    int64_t kept = 1;
    *done = false;
    const int batch = oct_view_batch(lead);
    if (batch < 0 || lead->num_atoms[batch] > 1) return OCT_OK;
    for (int i = 0; i < n; i++)
        if (oct_view_size(lead, order[i]) > 1) inner[count++] = order[i];
    while (first < count && oct_view_size(small, inner[first]) == 1)
        first++;
    /* `small` has the size of `lead` along the dimensions from `first` to `end`, and 1 along the others. */
    int end = first;
    while (end < count && oct_view_size(small, inner[end]) == oct_view_size(lead, inner[end]))
        kept *= oct_view_size(lead, inner[end++]);
    const int64_t all = oct_view_numel(lead);
    const bool channels = end == count && first > 0;
    int rest = end;
    while (rest < count && oct_view_size(small, inner[rest]) == 1)
        rest++;
    const bool pixels = first == 0 && end < count && rest == count;
    if ((!channels && !pixels) || oct_view_numel(small) != kept) return OCT_OK;
    const int64_t size = channels ? kept : all / kept; /* of the last dimension */
    const bool image = lead->shape.ndim == 4 && lead->shape.dim[3] == size;
    const oct_shape shape = image ? lead->shape : OCT_SHAPE(1, 1, all / size, size);
    OCT_TRY(oct_build_lay_out(b, lead, order, n, shape));
    OCT_TRY(oct_build_lay_out(b, small, order, n,
                              channels ? OCT_SHAPE(1, 1, 1, size)
                                       : OCT_SHAPE(1, shape.dim[1], shape.dim[2], 1)));
    *done = true;
    return OCT_OK;
}

static bool has_result_shape(const oct_onnx_view *x, const oct_onnx_value *y)
{
    for (int d = 0; d < y->ndim; d++)
        if (oct_view_size(x, d) != y->dim[d]) return false;
    return true;
}

oct_status oct_build_call_binary(oct_onnx_builder *b, const char *type, const oct_onnx_view *left,
                                 const oct_onnx_view *right, oct_onnx_view *output)
{
    oct_onnx_view x[2] = {*left, *right};
    const oct_onnx_value *y = &b->graph->values[b->graph->nodes[b->current].output[0]];
    int32_t value[2];
    OCT_CHECK(y->known, OCT_PREPARE,
              "its shape is not known before the network runs; export it "
              "with fixed sizes");
    for (int m = 0; m < 2; m++)
        OCT_TRY(add_leading_dimensions(&x[m], y->ndim));
    /* The operand that has the result's shape already, best without being moved, sets the layout. */
    int lead = has_result_shape(&x[0], y) && (!has_result_shape(&x[1], y) ||
                                              oct_view_is_whole(&x[0]) || !oct_view_is_whole(&x[1]))
                   ? 0
                   : 1;
    if (!has_result_shape(&x[lead], y))
        OCT_CHECK(oct_view_expand(&x[lead], y->ndim, y->dim, &x[lead]), OCT_PREPARE,
                  "its inputs do not fit each other; export the network again");
    OCT_TRY(oct_build_lay_out_natural(b, &x[lead]));
    oct_onnx_view *other = &x[1 - lead];
    bool done = false;
    if (!has_result_shape(other, y)) OCT_TRY(lay_out_broadcast(b, &x[lead], other, &done));
    if (!done) {
        OCT_CHECK(oct_view_expand(other, y->ndim, y->dim, other), OCT_PREPARE,
                  "its inputs do not fit each other; export the network again");
        OCT_TRY(lay_out_like(b, other, &x[lead]));
    }
    value[0] = x[0].value;
    value[1] = x[1].value;
    *output = x[lead];
    return oct_build_call(b, type, OCT_NO_ARGS, value, 2, &output->value);
}

/* x op y: a module of two inputs, or with a constant what fits one number, one for each channel, or any other shape. */
static oct_status build_binary(oct_onnx_builder *b, const oct_onnx_node *n, const arithmetic *plain)
{
    arithmetic operation = *plain, *a = &operation;
    OCT_CHECK(n->inputs == 2, OCT_DATA, "it has %d inputs; export the network again", n->inputs);
    const int number = oct_build_constant(b, n, 1) ? 1 : 0;
    const oct_onnx_value *c = oct_build_constant(b, n, number);
    double x;
    if (!c) {
        oct_onnx_view y[2];
        for (int i = 0; i < 2; i++)
            OCT_TRY(oct_build_view(b, n, i, &y[i]));
        OCT_TRY(oct_build_call_binary(b, a->type, &y[0], &y[1], &y[0]));
        return oct_build_set_result(b, &y[0]);
    }
    OCT_TRY(oct_build_weights(b, n, number, &c));
    const int32_t input = n->input[1 - number];
    OCT_CHECK(input >= 0 && b->has_view[input], OCT_DATA,
              "both its inputs are constants; export the network again");
    oct_onnx_view v = b->view[input];
    const bool scalar = c->ndim <= v.dims && oct_build_scalar(b, n->input[number], &x);
    if (number == 0 && a->inverse) { /* c - x is -x + c, and c / x is 1 / x times c */
        if (!a->sum)
            OCT_TRY(oct_build_call_unary(b, "reciprocal", OCT_NO_ARGS, &v));
        else if (scalar && x == 0) /* and stays -x */
            OCT_TRY(oct_build_call_unary(b, "neg", OCT_NO_ARGS, &v));
        else
            OCT_TRY(oct_build_call_unary(b, "mul_scalar", OCT_OP_ARGS(-1), &v));
        a->inverse = false;
    }
    if (scalar) return apply_number(b, a, &v, x);
    OCT_CHECK(c->ndim <= v.dims && (c->ndim < v.dims || c->dim[0] == 1 || oct_view_batch(&v) != 0),
              OCT_PREPARE, "%s makes its result larger than its input; expand the input first",
              c->name);
    a->frozen = v.dims == 4 && is_moved_input(b, input);
    const int dim = find_only_dimension(c, v.dims);
    int order[OCT_VIEW_ATOMS];
    if (v.dims == 4 && dim == 1) OCT_TRY(oct_build_lay_out_image(b, &v));
    const int count = oct_view_order(&v, order), batch = oct_view_batch(&v);
    if (dim >= 0 && batch >= 0 && v.num_atoms[batch] == 1 && count > 0 && order[count - 1] == dim &&
        oct_onnx_numel(c) == oct_view_size(&v, dim) && oct_view_is_whole(&v))
        return apply_to_channels(b, a, &v, dim, c);
    return apply_parameter(b, a, &v, c);
}

static const struct {
    const char *type;
    arithmetic as;
} operators[] = {
    {"Add", {.type = "add", .sum = true}},
    {"Sub", {.type = "sub", .sum = true, .inverse = true}},
    {"Mul", {.type = "mul"}},
    {"Div", {.type = "div", .inverse = true}},
};

oct_status oct_build_arithmetic(oct_onnx_builder *b, const oct_onnx_node *n)
{
    size_t i = 0;
    while (strcmp(operators[i].type, n->type) != 0)
        i++;
    oct_onnx_view x;
    if (strcmp(n->type, "Mul") != 0 || n->inputs != 2 || n->input[0] != n->input[1])
        return build_binary(b, n, &operators[i].as);
    OCT_TRY(oct_build_view(b, n, 0, &x));
    OCT_TRY(oct_build_call_unary(b, "square", OCT_NO_ARGS, &x));
    return oct_build_set_result(b, &x);
}

/* Sum adds any number of values, one after another; Mean divides by their number. */
oct_status oct_build_sum(oct_onnx_builder *b, const oct_onnx_node *n)
{
    const bool mean = strcmp(n->type, "Mean") == 0;
    oct_onnx_view y, x;
    if (n->inputs == 2 && !mean) return build_binary(b, n, &operators[0].as);
    OCT_TRY(oct_build_operand(b, n, 0, &y));
    for (int i = 1; i < n->inputs; i++) {
        OCT_TRY(oct_build_operand(b, n, i, &x));
        OCT_TRY(oct_build_call_binary(b, "add", &y, &x, &y));
    }
    if (mean) OCT_TRY(oct_build_call_unary(b, "mul_scalar", OCT_OP_ARGS(1.0 / n->inputs), &y));
    return oct_build_set_result(b, &y);
}
