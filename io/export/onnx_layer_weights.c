/* Layers with windows or weights: convolutions, pools, linear layers, norms. */
#include "io/export/onnx_layer.h"

#include <math.h>
#include <string.h>

/* Windows as ONNX says them. */
typedef struct windows {
    int64_t kernel[2], stride[2], pads[4] /* top, left, bottom, right */, dilation[2];
} windows;

/* Reads kernel, one stride and one padding from argument `at` on; side: of a square kernel, whose size is one
 * number. */
static windows windows_at(const oct_to_onnx_layer_call *c, int at, bool square)
{
    windows win = {.dilation = {1, 1}};
    const int behind = at + (square ? 1 : 2);
    for (int i = 0; i < 2; i++) {
        win.kernel[i] = oct_to_onnx_arg(c, square ? at : at + i);
        win.stride[i] = oct_to_onnx_arg(c, behind);
    }
    for (int i = 0; i < 4; i++)
        win.pads[i] = oct_to_onnx_arg(c, behind + 1);
    return win;
}

static void set_windows(oct_to_onnx_writer *w, const windows *win)
{
    oct_to_onnx_ints_set(w, "kernel_shape", 2, win->kernel);
    oct_to_onnx_ints_set(w, "strides", 2, win->stride);
    oct_to_onnx_ints_set(w, "pads", 4, win->pads);
}

/* The output's size along side i. */
static int64_t positions(const windows *win, int i, int64_t size)
{
    const int64_t extent = (win->kernel[i] - 1) * win->dilation[i] + 1, stride = win->stride[i];
    const int64_t room = size + win->pads[i] + win->pads[i + 2] - extent;
    return room / stride + 1;
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

/* The arguments: in, out, kernel, stride, padding, dilation, groups, bias. */
static oct_to_onnx_ref conv2d(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const oct_shape *in = &c->input[0].tensor.shape;
    const windows win = windows_at(c, 2, false);
    const char *y = layer_node(w, c, "Conv", has_bias(c));
    set_windows(w, &win);
    oct_to_onnx_ints_set(w, "dilations", 2, win.dilation);
    oct_to_onnx_int_set(w, "group", oct_to_onnx_arg(c, 6));
    return plane(y, in, positions(&win, 0, in->dim[1]), positions(&win, 1, in->dim[2]),
                 oct_to_onnx_arg(c, 1));
}

/* The same with output_padding before the dilation. */
static oct_to_onnx_ref conv_transpose2d(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const oct_shape *in = &c->input[0].tensor.shape;
    const windows win = windows_at(c, 2, false);
    int64_t out[2];
    for (int i = 0; i < 2; i++)
        out[i] = (in->dim[i + 1] - 1) * win.stride[i] - win.pads[i] - win.pads[i + 2] +
                 (win.kernel[i] - 1) * win.dilation[i] + 1;
    const char *y = layer_node(w, c, "ConvTranspose", has_bias(c));
    set_windows(w, &win);
    oct_to_onnx_ints_set(w, "dilations", 2, win.dilation);
    oct_to_onnx_int_set(w, "group", oct_to_onnx_arg(c, 6));
    return plane(y, in, out[0], out[1], oct_to_onnx_arg(c, 1));
}

/* A row of numbers: one product. Otherwise a product for each position, over channels as they lie last. */
static oct_to_onnx_ref linear(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    oct_shape out = c->input[0].tensor.shape;
    const bool row = out.ndim == 2;
    out.dim[out.ndim - 1] = oct_to_onnx_arg(c, 1);
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
    oct_to_onnx_float_set(w, "epsilon", (float)c->layer->args.value[1]);
    return (oct_to_onnx_ref){y, x.tensor};
}

static oct_to_onnx_ref pool(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c,
                            const char *type)
{
    const oct_shape *in = &c->input[0].tensor.shape;
    windows win = windows_at(c, 0, true);
    if (c->layer->args.count == 2) memset(win.pads, 0, sizeof win.pads); /* of averages */
    const char *y = OCT_TO_ONNX(w, type, c->input[0].name);
    set_windows(w, &win);
    return plane(y, in, positions(&win, 0, in->dim[1]), positions(&win, 1, in->dim[2]), in->dim[3]);
}

static oct_to_onnx_ref max_pool(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    return pool(w, c, "MaxPool");
}

static oct_to_onnx_ref avg_pool(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    return pool(w, c, "AveragePool");
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
    const char *mean = OCT_TO_ONNX(w, "ReduceMean", x.name);
    oct_to_onnx_ints_set(w, "axes", 1, &axis);
    const char *centred = OCT_TO_ONNX(w, "Sub", x.name, mean);
    const char *variance = OCT_TO_ONNX(w, "ReduceMean", OCT_TO_ONNX(w, "Mul", centred, centred));
    oct_to_onnx_ints_set(w, "axes", 1, &axis);
    const char *eps = oct_to_onnx_scalar(w, (float)c->layer->args.value[1]);
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
    const int64_t groups = oct_to_onnx_arg(c, 0);
    if (groups > MOST) {
        oct_to_onnx_fail(w, OCT_PREPARE, "%s: it has more than %d groups", c->layer->name, MOST);
        return (oct_to_onnx_ref){.name = NULL};
    }
    const char *zero = oct_to_onnx_constant(w, NULL, OCT_F32, 1, &groups, zeros);
    const char *one = OCT_TO_ONNX(w, "Exp", zero);
    const char *rows = oct_to_onnx_reshape(w, x.name, 2, (int64_t[]){groups, -1});
    const char *y = OCT_TO_ONNX(w, "InstanceNormalization", rows, one, zero);
    oct_to_onnx_float_set(w, "epsilon", (float)c->layer->args.value[2]);
    y = oct_to_onnx_reshape(w, y, there.ndim - 1, there.dim + 1);
    y = OCT_TO_ONNX(w, "Mul", y, oct_to_onnx_channel_array(w, c, "weight"));
    return (oct_to_onnx_ref){OCT_TO_ONNX(w, "Add", y, oct_to_onnx_channel_array(w, c, "bias")),
                             x.tensor};
}

const oct_to_onnx_layer_type oct_to_onnx_weight_layers[] = {
    {"conv2d", 1, 8, conv2d},
    {"conv_transpose2d", 1, 8, conv_transpose2d},
    {"linear", 1, 3, linear},
    {"batch_norm", 1, 3, batch_norm},
    {"max_pool", 1, 3, max_pool},
    {"avg_pool", 1, 2, avg_pool},
    {"global_avg_pool", 1, 0, global_avg_pool},
    {"layer_norm", 1, 2, layer_norm},
    {"group_norm", 1, 3, group_norm},
};
const size_t oct_to_onnx_weight_layers_count = OCT_COUNT(oct_to_onnx_weight_layers);
