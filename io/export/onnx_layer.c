/* Float layers as operators: what they share, layers with windows or weights, and those that move or concatenate values;
 * onnx_layer_math.c has the others. */
#include "io/export/onnx_form.h"

#include "core/base/mem.h"

#include <math.h>
#include <string.h>

/* Adds an array of the layer as a constant in PyTorch's layout. channels: (C) beside (N, C, H, W) becomes (C, 1, 1). */
static const char *add_array(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c,
                             const char *name, bool channels)
{
    const oct_layer_array *array = oct_layer_array_find(c->layer, name);
    oct_torch_array made;
    if (!array)
        return oct_to_onnx_fail(w, OCT_PREPARE, "%s: this %s has no %s", c->layer->name,
                                c->layer->type, name);
    if (oct_torch_array_make(&made, c->layer, array, &c->input[0].tensor) != OCT_OK)
        return oct_to_onnx_fail(w, OCT_RESOURCE, "%s: no memory for its %s", c->layer->name, name);
    if (channels && made.ndim == 1 && c->input[0].tensor.shape.ndim == 4 && made.dim[0] > 1) {
        made.ndim = 3;
        made.dim[1] = made.dim[2] = 1;
    }
    const char *own_name = c->own_names ? oct_to_onnx_name(w, "%s.%s", c->layer->name, name) : NULL;
    const char *constant =
        oct_to_onnx_constant(w, own_name, OCT_F32, made.ndim, made.dim, made.data);
    oct_free(&made.data);
    return constant;
}

const char *oct_to_onnx_channel_array(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c,
                                      const char *array)
{
    return add_array(w, c, array, true);
}

/* Layers with windows or weights: convolutions, pools, linear layers, norms. */

/* The shape of a layer with these windows over its input. */
static oct_conv_shape shape_over(const oct_to_onnx_layer_call *c, oct_conv_geometry g, int64_t out)
{
    const oct_shape *in = &c->input[0].tensor.shape;
    return oct_conv_shape_of(in->dim[1], in->dim[2], in->dim[3], out, g);
}

/* A tensor of the layer's batch with another plane. */
static oct_to_onnx_ref plane_tensor(const char *name, const oct_shape *in, int64_t h, int64_t w,
                                    int64_t c)
{
    return (oct_to_onnx_ref){name, {.shape = OCT_SHAPE(in->dim[0], h, w, c)}};
}

static bool has_bias(const oct_to_onnx_layer_call *c)
{
    return oct_layer_array_find(c->layer, "bias") != NULL;
}

/* Adds the operator of a layer on its input, its weight and, where it has one, its bias. */
static const char *add_weighted(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c,
                                const char *type)
{
    const bool bias = has_bias(c);
    const char *input[] = {c->input[0].name, add_array(w, c, "weight", false),
                           bias ? add_array(w, c, "bias", false) : NULL};
    return oct_to_onnx_node_add(w, type, bias ? 3 : 2, input);
}

static oct_to_onnx_ref write_conv2d(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const oct_conv2d_args *a = c->args;
    const oct_conv_shape s = shape_over(c, a->geometry, a->out_channels);
    const char *y = add_weighted(w, c, "Conv");
    oct_to_onnx_conv_set(w, &s);
    return plane_tensor(y, &c->input[0].tensor.shape, s.out_h, s.out_w, s.out_c);
}

static oct_to_onnx_ref write_conv_transpose2d(oct_to_onnx_writer *w,
                                              const oct_to_onnx_layer_call *c)
{
    const oct_shape *in = &c->input[0].tensor.shape;
    const oct_conv_transpose2d_args *a = c->args;
    const oct_conv_geometry g = a->geometry;
    const oct_conv_shape s = shape_over(c, g, a->out_channels);
    const char *y = add_weighted(w, c, "ConvTranspose");
    oct_to_onnx_conv_set(w, &s);
    OCT_TO_ONNX_INTS(w, "output_padding", g.output_padding_h, g.output_padding_w);
    return plane_tensor(y, in,
                        (in->dim[1] - 1) * g.stride_h - g.pad_top - g.pad_bottom +
                            oct_conv_extent(g.kernel_h, g.dilation_h) + g.output_padding_h,
                        (in->dim[2] - 1) * g.stride_w - g.pad_left - g.pad_right +
                            oct_conv_extent(g.kernel_w, g.dilation_w) + g.output_padding_w,
                        s.out_c);
}

/* Rows (N, C) are multiplied by a Gemm; other tensors by a MatMul, which takes channels last. */
static oct_to_onnx_ref write_linear(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    oct_shape out = c->input[0].tensor.shape;
    const bool row = out.ndim == 2;
    out.dim[out.ndim - 1] = ((const oct_linear_args *)c->args)->out_features;
    if (row) {
        const char *y = add_weighted(w, c, "Gemm");
        oct_to_onnx_int_set(w, "transB", 1);
        return (oct_to_onnx_ref){y, {.shape = out}};
    }
    const char *x = oct_to_onnx_channels_last(w, c->input[0]);
    const char *weight =
        oct_to_onnx_transpose(w, add_array(w, c, "weight", false), 2, (int64_t[]){1, 0});
    const char *y = OCT_TO_ONNX(w, "MatMul", x, weight);
    if (has_bias(c)) y = OCT_TO_ONNX(w, "Add", y, add_array(w, c, "bias", false));
    return oct_to_onnx_channels_first(w, y, out);
}

static oct_to_onnx_ref write_batch_norm(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const oct_to_onnx_ref x = oct_to_onnx_ordered(w, c->input[0]);
    const char *y =
        OCT_TO_ONNX(w, "BatchNormalization", x.name, add_array(w, c, "weight", false),
                    add_array(w, c, "bias", false), add_array(w, c, "running_mean", false),
                    add_array(w, c, "running_var", false));
    oct_to_onnx_float_set(w, "epsilon", ((const oct_batch_norm_args *)c->args)->eps);
    return (oct_to_onnx_ref){y, x.tensor};
}

static oct_to_onnx_ref write_pool(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const oct_shape *in = &c->input[0].tensor.shape;
    const oct_pool_geometry *g = c->args;
    const oct_conv_shape s = oct_pool_shape_of(in->dim[1], in->dim[2], in->dim[3], *g);
    const char *y = OCT_TO_ONNX(w, c->op, c->input[0].name);
    oct_to_onnx_windows_set(w, &s);
    oct_to_onnx_int_set(w, "ceil_mode", g->ceil);
    return plane_tensor(y, in, s.out_h, s.out_w, s.out_c);
}

static oct_to_onnx_ref write_avg_pool(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const oct_to_onnx_ref y = write_pool(w, c);
    oct_to_onnx_int_set(w, "count_include_pad",
                        ((const oct_avg_pool_args *)c->args)->count_include_pad);
    return y;
}

static oct_to_onnx_ref write_global_avg_pool(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const oct_shape *in = &c->input[0].tensor.shape;
    const char *y = OCT_TO_ONNX(w, "GlobalAveragePool", c->input[0].name);
    return (oct_to_onnx_ref){oct_to_onnx_reshape(w, y, 1, (int64_t[]){in->dim[3]}),
                             {.shape = OCT_SHAPE(in->dim[0], in->dim[3])}};
}

/* (x - mean) / sqrt(variance + eps) * weight + bias: operator sets below 17 have no LayerNormalization. */
static oct_to_onnx_ref write_layer_norm(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const oct_to_onnx_ref x = oct_to_onnx_ordered(w, c->input[0]);
    const int64_t axis = oct_to_onnx_axis(x.tensor.shape.ndim, x.tensor.shape.ndim - 1);
    const char *mean = oct_to_onnx_mean(w, x.name, 1, &axis);
    const char *centred = OCT_TO_ONNX(w, "Sub", x.name, mean);
    const char *variance = oct_to_onnx_mean(w, OCT_TO_ONNX(w, "Mul", centred, centred), 1, &axis);
    const char *eps = oct_to_onnx_scalar(w, (float)((const oct_layer_norm_args *)c->args)->eps);
    const char *deviation = OCT_TO_ONNX(w, "Sqrt", OCT_TO_ONNX(w, "Add", variance, eps));
    const char *y = OCT_TO_ONNX(w, "Mul", OCT_TO_ONNX(w, "Div", centred, deviation),
                                oct_to_onnx_channel_array(w, c, "weight"));
    return (oct_to_onnx_ref){OCT_TO_ONNX(w, "Add", y, oct_to_onnx_channel_array(w, c, "bias")),
                             x.tensor};
}

/* InstanceNormalization of (N, G, rest) with factors of exp(0) = 1 normalises groups; channels' factors come after. */
static oct_to_onnx_ref write_group_norm(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    enum { MOST = 65536 };
    const oct_to_onnx_ref x = oct_to_onnx_ordered(w, c->input[0]);
    const oct_shape file_shape = oct_to_onnx_shape(&x.tensor.shape);
    const oct_group_norm_args *a = c->args;
    const int64_t groups = a->groups;
    if (groups > MOST)
        return OCT_TO_ONNX_REFUSE(w, "%s: it has more than %d groups", c->layer->name, MOST);
    const float *zeros = oct_to_onnx_alloc(w, (size_t)groups * sizeof *zeros);
    const char *zero = oct_to_onnx_kept_constant(w, NULL, OCT_F32, 1, &groups, zeros);
    const char *one = OCT_TO_ONNX(w, "Exp", zero);
    const char *rows = oct_to_onnx_reshape(w, x.name, 2, (int64_t[]){groups, -1});
    const char *y = OCT_TO_ONNX(w, "InstanceNormalization", rows, one, zero);
    oct_to_onnx_float_set(w, "epsilon", (float)a->eps);
    y = oct_to_onnx_reshape(w, y, file_shape.ndim - 1, file_shape.dim + 1);
    y = OCT_TO_ONNX(w, "Mul", y, oct_to_onnx_channel_array(w, c, "weight"));
    return (oct_to_onnx_ref){OCT_TO_ONNX(w, "Add", y, oct_to_onnx_channel_array(w, c, "bias")),
                             x.tensor};
}

/* Layers that move or concatenate values. */

static oct_to_onnx_ref write_flatten(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const oct_shape *in = &c->input[0].tensor.shape;
    return oct_to_onnx_view(w, c->input[0],
                            OCT_SHAPE(in->dim[0], oct_shape_numel(in) / in->dim[0]));
}

static oct_to_onnx_ref write_reshape(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    return oct_to_onnx_view(w, c->input[0], *(const oct_reshape_args *)c->args);
}

static oct_to_onnx_ref write_squeeze(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const oct_shape *in = &c->input[0].tensor.shape;
    const int dim = ((const oct_squeeze_args *)c->args)->dim;
    oct_shape shape = {.ndim = 0};
    for (int i = 0; i < in->ndim; i++)
        if (i == 0 || in->dim[i] != 1 || (dim != 0 && dim != i))
            shape.dim[shape.ndim++] = in->dim[i];
    return oct_to_onnx_view(w, c->input[0], shape);
}

static oct_to_onnx_ref write_move(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    return oct_to_onnx_move(w, c->input[0], c->args);
}

static oct_to_onnx_ref write_concat(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const char *name[OCT_MAX_INPUTS];
    oct_shape shape = c->input[0].tensor.shape;
    const int last = shape.ndim - 1;
    shape.dim[last] = 0;
    for (int i = 0; i < c->num_inputs; i++) {
        name[i] = oct_to_onnx_ordered(w, c->input[i]).name;
        shape.dim[last] += c->input[i].tensor.shape.dim[last];
    }
    const char *y = oct_to_onnx_node_add(w, "Concat", c->num_inputs, name);
    oct_to_onnx_int_set(w, "axis", oct_to_onnx_axis(shape.ndim, last));
    return (oct_to_onnx_ref){y, {.shape = shape}};
}

/* Class numbers are s64 in ONNX. */
static oct_to_onnx_ref write_argmax(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const oct_to_onnx_ref x = oct_to_onnx_ordered(w, c->input[0]);
    oct_shape shape = x.tensor.shape;
    const char *y = OCT_TO_ONNX(w, "ArgMax", x.name);
    oct_to_onnx_int_set(w, "axis", oct_to_onnx_axis(shape.ndim, shape.ndim - 1));
    oct_to_onnx_int_set(w, "keepdims", 0);
    shape.ndim--;
    return (oct_to_onnx_ref){y, {.shape = shape}};
}

/* A mean over one dimension, or over rows and columns. */
static oct_to_onnx_ref write_mean(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const oct_shape *in = &c->input[0].tensor.shape;
    const oct_mean_args *a = c->args;
    const bool both = a->axis == OCT_MEAN_PLANE;
    const int axis = both ? 1 : a->axis;
    oct_shape shape = {.ndim = 0};
    for (int i = 0; i < in->ndim; i++) {
        const bool taken = i == axis || (both && i == 2);
        if (!taken || a->keep) shape.dim[shape.ndim++] = taken ? 1 : in->dim[i];
    }
    const char *y = oct_to_onnx_mean(w, oct_to_onnx_channels_last(w, c->input[0]), both ? 2 : 1,
                                     (int64_t[]){axis, 2});
    oct_to_onnx_int_set(w, "keepdims", a->keep);
    return oct_to_onnx_channels_first(w, y, shape);
}

oct_to_onnx_ref oct_to_onnx_pad(oct_to_onnx_writer *w, oct_to_onnx_ref x, const oct_pad_shape *pad,
                                const char *constant)
{
    static const char *const modes[OCT_PAD_MODES] = {"constant", "reflect", "edge"};
    oct_shape shape = x.tensor.shape;
    int64_t pads[2 * OCT_MAX_DIMS] = {0}; /* before each dimension, then after each */
    for (int i = 1; i < shape.ndim; i++) {
        const int k = 3 + i - shape.ndim; /* among H, W, C */
        const int64_t axis = oct_to_onnx_axis(shape.ndim, i);
        pads[axis] = pad->before[k];
        pads[shape.ndim + axis] = pad->out[k] - pad->in[k] - pad->before[k];
        shape.dim[i] = pad->out[k];
    }
    const char *y = OCT_TO_ONNX(w, "Pad", x.name, oct_to_onnx_list(w, 2 * shape.ndim, pads),
                                pad->mode == OCT_PAD_CONSTANT ? constant : "");
    oct_to_onnx_text_set(w, "mode", modes[pad->mode]);
    return (oct_to_onnx_ref){y, {.shape = shape}};
}

static oct_to_onnx_ref write_pad(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const oct_to_onnx_ref x = oct_to_onnx_ordered(w, c->input[0]);
    const oct_padding *padding = c->args;
    oct_pad_shape shape;
    oct_shape out;
    if (!x.name) return x;
    if (oct_pad_tensor_shape(&shape, padding, &x.tensor.shape, &out) != OCT_OK) {
        oct_fail_clear();
        return OCT_TO_ONNX_REFUSE(w, "%s: its padding does not fit its input", c->layer->name);
    }
    return oct_to_onnx_pad(w, x, &shape, oct_to_onnx_scalar(w, (float)padding->value));
}

/* The scale of a Resize: ONNX takes size * scale, rounded down, for the new size. */
static float resize_scale(int64_t in, int64_t out)
{
    float scale = (float)out / (float)in;
    while ((int64_t)floorf((float)in * scale) < out)
        scale = nextafterf(scale, INFINITY);
    return scale;
}

/* Gathers for each of `out` positions on an axis the nearest of its `in`. */
static const char *gather_nearest(oct_to_onnx_writer *w, const char *x, oct_interpolation mode,
                                  int64_t axis, int64_t in, int64_t out)
{
    if (in == out) return x;
    int32_t *places = oct_to_onnx_alloc(w, (size_t)out * sizeof *places);
    for (int64_t i = 0; places && i < out; i++)
        places[i] = (int32_t)oct_resize_place_of(mode, i, in, out).low;
    const char *y =
        OCT_TO_ONNX(w, "Gather", x, oct_to_onnx_kept_constant(w, NULL, OCT_S32, 1, &out, places));
    oct_to_onnx_int_set(w, "axis", axis);
    return y;
}

/* Resize interpolates and repeats pixels by whole factors, on which all runtimes agree; other pixels are gathered. */
static oct_to_onnx_ref write_interpolate(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    static const char *const transformations[OCT_INTERPOLATIONS] = {"asymmetric", "half_pixel",
                                                                    "align_corners", "asymmetric"};
    const oct_shape *in = &c->input[0].tensor.shape;
    const oct_interpolate_args *a = c->args;
    const int64_t h = a->out_h, width = a->out_w;
    const oct_interpolation mode = a->mode;
    oct_to_onnx_ref y = {c->input[0].name, {.shape = OCT_SHAPE(in->dim[0], h, width, in->dim[3])}};
    const bool whole = mode == OCT_NEAREST && h % in->dim[1] == 0 && width % in->dim[2] == 0;
    if (!oct_is_bilinear(mode) && !whole) {
        y.name = gather_nearest(w, y.name, mode, 2, in->dim[1], h);
        y.name = gather_nearest(w, y.name, mode, 3, in->dim[2], width);
        return y;
    }
    const float scales[] = {1, 1, resize_scale(in->dim[1], h), resize_scale(in->dim[2], width)};
    y.name = OCT_TO_ONNX(w, "Resize", y.name, "",
                         oct_to_onnx_constant(w, NULL, OCT_F32, 1, &(int64_t){4}, scales));
    oct_to_onnx_text_set(w, "mode", whole ? "nearest" : "linear");
    oct_to_onnx_text_set(w, "coordinate_transformation_mode", transformations[mode]);
    if (whole) oct_to_onnx_text_set(w, "nearest_mode", "floor");
    return y;
}

/* The parameter once for each sample of the batch, which is input 0's. */
static oct_to_onnx_ref write_parameter(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const oct_parameter_args *a = c->args;
    oct_shape shape = {.ndim = a->ndim + 1, .dim = {1}};
    memcpy(shape.dim + 1, a->dim, (size_t)a->ndim * sizeof a->dim[0]);
    const oct_shape file_shape = oct_to_onnx_shape(&shape);
    const char *batch =
        OCT_TO_ONNX(w, "Gather", OCT_TO_ONNX(w, "Shape", c->input[0].name), OCT_TO_ONNX_LIST(w, 0));
    const char *size = OCT_TO_ONNX(w, "Concat", batch,
                                   oct_to_onnx_list(w, file_shape.ndim - 1, file_shape.dim + 1));
    oct_to_onnx_int_set(w, "axis", 0);
    return (oct_to_onnx_ref){OCT_TO_ONNX(w, "Expand", add_array(w, c, "weight", false), size),
                             {.shape = shape}};
}

static const oct_to_onnx_layer_type layers[] = {
    {"conv2d", 1, write_conv2d, NULL},
    {"conv_transpose2d", 1, write_conv_transpose2d, NULL},
    {"linear", 1, write_linear, NULL},
    {"batch_norm", 1, write_batch_norm, NULL},
    {"max_pool", 1, write_pool, "MaxPool"},
    {"avg_pool", 1, write_avg_pool, "AveragePool"},
    {"global_avg_pool", 1, write_global_avg_pool, NULL},
    {"layer_norm", 1, write_layer_norm, NULL},
    {"group_norm", 1, write_group_norm, NULL},
    {"flatten", 1, write_flatten, NULL},
    {"reshape", 1, write_reshape, NULL},
    {"squeeze", 1, write_squeeze, NULL},
    {"move", 1, write_move, NULL},
    {"concat", 0, write_concat, NULL},
    {"argmax", 1, write_argmax, NULL},
    {"mean", 1, write_mean, NULL},
    {"pad", 1, write_pad, NULL},
    {"interpolate", 1, write_interpolate, NULL},
    {"parameter", 1, write_parameter, NULL},
    {NULL, 0, NULL, NULL},
};

static const oct_to_onnx_layer_type *find_type(const char *name)
{
    const oct_to_onnx_layer_type *const tables[] = {layers, oct_to_onnx_math_layers};
    for (size_t t = 0; t < OCT_COUNT(tables); t++)
        for (const oct_to_onnx_layer_type *type = tables[t]; type->type; type++)
            if (strcmp(type->type, name) == 0) return type;
    return NULL;
}

oct_to_onnx_ref oct_to_onnx_layer_write(oct_to_onnx_writer *w, const oct_float_layer *layer,
                                        int num_inputs, const oct_to_onnx_ref *input,
                                        bool own_names)
{
    oct_args_buffer args;
    if (oct_layer_passes(layer->type)) return input[0];
    const oct_to_onnx_layer_type *type = find_type(layer->type);
    const oct_module_type *module = oct_module_type_find(layer->type);
    if (!type || !module)
        return OCT_TO_ONNX_REFUSE(w,
                                  "%s: ONNX has no operators for a %s; only Octet runs this model",
                                  layer->name, layer->type);
    if (type->inputs > 0 && num_inputs != type->inputs)
        return OCT_TO_ONNX_REFUSE(w, "%s: this %s has %d inputs, but a file has %d of it",
                                  layer->name, layer->type, num_inputs, type->inputs);
    if (oct_args_read(module->args, layer->type, &layer->args, &args) != OCT_OK) {
        oct_to_onnx_fail(w, OCT_PREPARE, "%s: %s", layer->name, oct_error_message(0));
        oct_fail_clear();
        return OCT_TO_ONNX_NOTHING;
    }
    for (int i = 0; i < num_inputs; i++)
        if (!input[i].name) return OCT_TO_ONNX_NOTHING;
    oct_to_onnx_layer_begin(w, layer->name);
    return type->write(w, &(oct_to_onnx_layer_call){.layer = layer,
                                                    .input = input,
                                                    .num_inputs = num_inputs,
                                                    .own_names = own_names,
                                                    .args = &args,
                                                    .op = type->op});
}
