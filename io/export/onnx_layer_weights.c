/* Layers with windows or weights: convolutions, pools, linear layers, norms. */
#include "io/export/onnx_form.h"

#include <math.h>
#include <string.h>

/* The shape of a layer with these windows over its input. */
static oct_conv_shape shape_over(const oct_to_onnx_layer_call *c, oct_conv_geometry g, int64_t out)
{
    const oct_shape *in = &c->input[0].tensor.shape;
    return oct_conv_shape_of(in->dim[1], in->dim[2], in->dim[3], out, g);
}

static void set_conv(oct_to_onnx_writer *w, const oct_conv_shape *s)
{
    oct_to_onnx_windows_set(w, s);
    OCT_TO_ONNX_INTS(w, "dilations", s->dilation_h, s->dilation_w);
    oct_to_onnx_int_set(w, "group", s->groups);
}

static oct_to_onnx_ref plane(const char *name, const oct_shape *in, int64_t h, int64_t w, int64_t c)
{
    return (oct_to_onnx_ref){name, {.shape = OCT_SHAPE(in->dim[0], h, w, c)}};
}

static const char *layer_node(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c,
                              const char *type, bool bias)
{
    const char *input[] = {c->input[0].name, oct_to_onnx_array(w, c, "weight"),
                           bias ? oct_to_onnx_array(w, c, "bias") : NULL};
    return oct_to_onnx_node_add(w, type, bias ? 3 : 2, input);
}

static bool has_bias(const oct_to_onnx_layer_call *c)
{
    return oct_layer_array_find(c->layer, "bias") != NULL;
}

static oct_to_onnx_ref conv2d(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const oct_conv2d_args *a = c->args;
    const oct_conv_shape s = shape_over(c, a->geometry, a->out_channels);
    const char *y = layer_node(w, c, "Conv", has_bias(c));
    set_conv(w, &s);
    return plane(y, &c->input[0].tensor.shape, s.out_h, s.out_w, s.out_c);
}

static oct_to_onnx_ref conv_transpose2d(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const oct_shape *in = &c->input[0].tensor.shape;
    const oct_conv_transpose2d_args *a = c->args;
    const oct_conv_geometry g = a->geometry;
    const oct_conv_shape s = shape_over(c, g, a->out_channels);
    const char *y = layer_node(w, c, "ConvTranspose", has_bias(c));
    set_conv(w, &s);
    OCT_TO_ONNX_INTS(w, "output_padding", g.output_padding_h, g.output_padding_w);
    return plane(y, in,
                 (in->dim[1] - 1) * g.stride_h - g.pad_top - g.pad_bottom +
                     oct_conv_extent(g.kernel_h, g.dilation_h) + g.output_padding_h,
                 (in->dim[2] - 1) * g.stride_w - g.pad_left - g.pad_right +
                     oct_conv_extent(g.kernel_w, g.dilation_w) + g.output_padding_w,
                 s.out_c);
}

/* A row of numbers: one product. Otherwise a product for each position, over channels as they lie last. */
static oct_to_onnx_ref linear(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    oct_shape out = c->input[0].tensor.shape;
    const bool row = out.ndim == 2;
    out.dim[out.ndim - 1] = ((const oct_linear_args *)c->args)->out_features;
    if (row) {
        const char *y = layer_node(w, c, "Gemm", has_bias(c));
        oct_to_onnx_int_set(w, "transB", 1);
        return (oct_to_onnx_ref){y, {.shape = out}};
    }
    const char *x = oct_to_onnx_channels_last(w, c->input[0]);
    const char *weight = OCT_TO_ONNX(w, "Transpose", oct_to_onnx_array(w, c, "weight"));
    oct_to_onnx_ints_set(w, "perm", 2, (int64_t[]){1, 0});
    const char *y = OCT_TO_ONNX(w, "MatMul", x, weight);
    if (has_bias(c)) y = OCT_TO_ONNX(w, "Add", y, oct_to_onnx_array(w, c, "bias"));
    return oct_to_onnx_channels_first(w, y, out);
}

static oct_to_onnx_ref batch_norm(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const oct_to_onnx_ref x = oct_to_onnx_ordered(w, c->input[0]);
    const char *y =
        OCT_TO_ONNX(w, "BatchNormalization", x.name, oct_to_onnx_array(w, c, "weight"),
                    oct_to_onnx_array(w, c, "bias"), oct_to_onnx_array(w, c, "running_mean"),
                    oct_to_onnx_array(w, c, "running_var"));
    oct_to_onnx_float_set(w, "epsilon", ((const oct_batch_norm_args *)c->args)->eps);
    return (oct_to_onnx_ref){y, x.tensor};
}

static oct_to_onnx_ref pool(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c,
                            const char *type)
{
    const oct_shape *in = &c->input[0].tensor.shape;
    const oct_pool_geometry *g = c->args;
    const oct_conv_shape s = oct_pool_shape_of(in->dim[1], in->dim[2], in->dim[3], *g);
    const char *y = OCT_TO_ONNX(w, type, c->input[0].name);
    oct_to_onnx_windows_set(w, &s);
    oct_to_onnx_int_set(w, "ceil_mode", g->ceil);
    return plane(y, in, s.out_h, s.out_w, s.out_c);
}

static oct_to_onnx_ref max_pool(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    return pool(w, c, "MaxPool");
}

static oct_to_onnx_ref avg_pool(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const oct_to_onnx_ref y = pool(w, c, "AveragePool");
    oct_to_onnx_int_set(w, "count_include_pad",
                        ((const oct_avg_pool_args *)c->args)->count_include_pad);
    return y;
}

static oct_to_onnx_ref global_avg_pool(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const oct_shape *in = &c->input[0].tensor.shape;
    const char *y = OCT_TO_ONNX(w, "GlobalAveragePool", c->input[0].name);
    return (oct_to_onnx_ref){oct_to_onnx_reshape(w, y, 1, (int64_t[]){in->dim[3]}),
                             {.shape = OCT_SHAPE(in->dim[0], in->dim[3])}};
}

/* Operator sets below 17 have no LayerNormalization. */
static oct_to_onnx_ref layer_norm(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
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

/* Groups are instances of (N, G, rest) whose factor and shift are those of channels. */
static oct_to_onnx_ref group_norm(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    enum { MOST = 65536 };
    static const float zeros[MOST];
    const oct_to_onnx_ref x = oct_to_onnx_ordered(w, c->input[0]);
    const oct_shape there = oct_to_onnx_shape(&x.tensor.shape);
    const oct_group_norm_args *a = c->args;
    const int64_t groups = a->groups;
    if (groups > MOST) {
        oct_to_onnx_fail(w, OCT_PREPARE, "%s: it has more than %d groups", c->layer->name, MOST);
        return (oct_to_onnx_ref){.name = NULL};
    }
    const char *zero = oct_to_onnx_constant(w, NULL, OCT_F32, 1, &groups, zeros);
    const char *one = OCT_TO_ONNX(w, "Exp", zero);
    const char *rows = oct_to_onnx_reshape(w, x.name, 2, (int64_t[]){groups, -1});
    const char *y = OCT_TO_ONNX(w, "InstanceNormalization", rows, one, zero);
    oct_to_onnx_float_set(w, "epsilon", (float)a->eps);
    y = oct_to_onnx_reshape(w, y, there.ndim - 1, there.dim + 1);
    y = OCT_TO_ONNX(w, "Mul", y, oct_to_onnx_channel_array(w, c, "weight"));
    return (oct_to_onnx_ref){OCT_TO_ONNX(w, "Add", y, oct_to_onnx_channel_array(w, c, "bias")),
                             x.tensor};
}

const oct_to_onnx_layer_type oct_to_onnx_weight_layers[] = {
    {"conv2d", 1, conv2d},
    {"conv_transpose2d", 1, conv_transpose2d},
    {"linear", 1, linear},
    {"batch_norm", 1, batch_norm},
    {"max_pool", 1, max_pool},
    {"avg_pool", 1, avg_pool},
    {"global_avg_pool", 1, global_avg_pool},
    {"layer_norm", 1, layer_norm},
    {"group_norm", 1, group_norm},
};
const size_t oct_to_onnx_weight_layers_count = OCT_COUNT(oct_to_onnx_weight_layers);
