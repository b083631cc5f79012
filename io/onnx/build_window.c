/* Convolutions, pools, batch norm, padded and resized images work on (N, H, W, C). */
#include "core/nn/modules.h"
#include "io/onnx/build_impl.h"

#include "core/base/int_math.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Rows and columns, in this order; of a sequence rows are 1. */
typedef struct window {
    int64_t kernel[2], stride[2], dilation[2];
    int64_t before[2], after[2]; /* padding */
    int64_t output_padding[2];
    int64_t in[2], out[2];
    bool ceil;
} window;

enum { SIDE_MAX = 16384 };

/* Reads kernel, strides, dilations and padding of a node, and counts the windows on the image in `v`. [0] is of the
 * height, [1] of the width; a sequence has height 1. */
static oct_status read_window(const oct_onnx_builder *b, const oct_onnx_node *n,
                              const oct_onnx_view *v, window *w)
{
    const oct_onnx_arguments *args = &n->args;
    const bool transposed = strcmp(n->type, "ConvTranspose") == 0;
    *w = (window){.kernel = {1, 1},
                  .stride = {1, 1},
                  .dilation = {1, 1},
                  .in = {v->shape.dim[1], v->shape.dim[2]},
                  .ceil = oct_onnx_int(n, "ceil_mode", 0) != 0};
    for (int d = 2, i = 4 - v->dims; d < v->dims; d++, i++) {
        const int64_t numbers[] = {args->kernel[d], args->stride[d], args->dilation[d],
                                   args->before[d], args->after[d],  args->output_padding[d]};
        for (size_t k = 0; k < OCT_COUNT(numbers); k++)
            OCT_CHECK(numbers[k] <= SIDE_MAX, OCT_PREPARE,
                      "its kernel, strides, dilations or pads have a %lld; at most %d is supported",
                      (long long)numbers[k], SIDE_MAX);
        /* The reference of ONNX pads nothing then, ONNX Runtime takes pixels off in front, too. */
        OCT_CHECK(
            args->before[d] >= 0 && args->after[d] >= 0, OCT_PREPARE,
            "auto_pad or output_shape ask for less padding than none, where runtimes differ in "
            "what it means; export it with pads");
        w->kernel[i] = args->kernel[d], w->stride[i] = args->stride[d];
        w->dilation[i] = args->dilation[d], w->output_padding[i] = args->output_padding[d];
        w->before[i] = args->before[d], w->after[i] = args->after[d];
    }
    for (int i = 0; i < 2; i++) {
        w->before[i] += b->fused[b->current].before[i];
        w->after[i] += b->fused[b->current].after[i];
        const int64_t room =
            w->in[i] + w->before[i] + w->after[i] - ((w->kernel[i] - 1) * w->dilation[i] + 1);
        OCT_CHECK(room >= 0 || transposed, OCT_DATA,
                  "a window of %lld does not fit into an image of %lld; use larger images",
                  (long long)w->kernel[i], (long long)w->in[i]);
        w->out[i] = room / w->stride[i] + 1;
        if (w->ceil && room % w->stride[i] != 0 &&
            w->out[i] * w->stride[i] < w->in[i] + w->before[i])
            w->out[i]++;
    }
    return OCT_OK;
}

/* A layer's bias: its third input, or a constant that the next node adds to each channel of (N, C, ...); else NULL. */
static const oct_onnx_value *find_bias(oct_onnx_builder *b, const oct_onnx_node *n, int dims,
                                       int64_t channels)
{
    return oct_onnx_input(b->graph, n, 2)
               ? oct_build_constant(b, n, 2)
               : oct_build_take_constant(b, "Add", dims, &channels, 1, dims - 2);
}

/* What Conv and ConvTranspose share. */
typedef struct layer {
    oct_onnx_view x;
    const oct_onnx_value *weight, *bias;
    window w;
    int64_t in, groups;
} layer;

static oct_status read_layer(oct_onnx_builder *b, const oct_onnx_node *n, layer *l)
{
    OCT_TRY(oct_build_weights(b, n, 1, &l->weight));
    if (n->inputs > 2 && n->input[2] >= 0) OCT_TRY(oct_build_weights(b, n, 2, &l->bias));
    OCT_TRY(oct_build_view(b, n, 0, &l->x));
    OCT_TRY(oct_build_lay_out_image(b, &l->x));
    l->in = l->x.shape.dim[3];
    l->groups = oct_onnx_int(n, "group", 1);
    OCT_CHECK(l->weight->ndim == l->x.dims && l->groups >= 1 && l->groups <= l->in &&
                  l->in % l->groups == 0,
              OCT_DATA, "its weights do not fit its input; export the network again");
    return read_window(b, n, &l->x, &l->w);
}

/* Calls a convolution of the file's weights and bias. `order` says how its weights go into the module's. */
static oct_status add_layer(oct_onnx_builder *b, const oct_module_type *type, const layer *l,
                            const oct_conv2d_args *args, const oct_file_order *order, int32_t *y)
{
    bool is_new;
    oct_op_args row;
    const oct_onnx_layer filled = {
        .weight = l->weight, .bias = l->bias, .alpha = 1, .beta = 1, .order = *order};
    oct_args_write(type->args, args, &row);
    OCT_TRY(oct_build_call_layer(b, type->name, &row, &filled, l->x.value, y, &is_new));
    return is_new && l->bias ? oct_build_fill_flat(b, *y, "bias", l->bias) : OCT_OK;
}

static oct_conv2d_args conv_args(int64_t in, int64_t out, const window *w, int64_t groups,
                                 bool bias)
{
    return (oct_conv2d_args){.in_channels = in,
                             .out_channels = out,
                             .geometry = {.kernel_h = (int)w->kernel[0],
                                          .kernel_w = (int)w->kernel[1],
                                          .stride_h = (int)w->stride[0],
                                          .stride_w = (int)w->stride[1],
                                          .pad_top = (int)w->before[0],
                                          .pad_left = (int)w->before[1],
                                          .pad_bottom = (int)w->after[0],
                                          .pad_right = (int)w->after[1],
                                          .dilation_h = (int)w->dilation[0],
                                          .dilation_w = (int)w->dilation[1],
                                          .groups = (int)groups},
                             .bias = bias};
}

/* The file has weights (O, I/groups, kh, kw), the module (O, kh, kw, I/groups). */
oct_status oct_build_conv(oct_onnx_builder *b, const oct_onnx_node *n)
{
    layer l = {0};
    int32_t output;
    OCT_TRY(read_layer(b, n, &l));
    const window *w = &l.w;
    const int64_t out = l.weight->dim[0], per_group = l.weight->dim[1];
    const int64_t taps = w->kernel[0] * w->kernel[1];
    OCT_CHECK(per_group * l.groups == l.in, OCT_DATA,
              "its weights are for %lld channels, but its input has %lld; export the network again",
              (long long)(per_group * l.groups), (long long)l.in);
    if (!l.bias) l.bias = find_bias(b, n, l.x.dims, out);
    const oct_file_order order = {
        .dims = 4,
        .size = {out, per_group, w->kernel[0], w->kernel[1]},
        .stride = {taps * per_group, 1, w->kernel[1] * per_group, per_group}};
    const oct_conv2d_args args = conv_args(l.in, out, w, l.groups, l.bias != NULL);
    OCT_TRY(add_layer(b, &oct_conv2d_type, &l, &args, &order, &output));
    const oct_onnx_view y = oct_build_image(output, l.x.dims, w->out[0], w->out[1], out);
    return oct_build_set_result(b, &y);
}

/* ONNX's weights are (I, O/groups, kh, kw) of the convolution whose gradient this is; Octet's those of the
 * convolution over the dilated input, turned by 180 degrees. */
oct_status oct_build_conv_transpose(oct_onnx_builder *b, const oct_onnx_node *n)
{
    layer l = {0};
    int64_t out_size[2];
    int32_t output;
    OCT_TRY(read_layer(b, n, &l));
    const window *w = &l.w;
    const int64_t of = l.weight->dim[1], ig = l.in / l.groups, out = of * l.groups;
    const int64_t kh = w->kernel[0], kw = w->kernel[1];
    OCT_CHECK(l.weight->dim[0] == l.in, OCT_DATA,
              "its weights are for %lld channels, but its input has %lld; export the network again",
              (long long)l.weight->dim[0], (long long)l.in);
    if (!l.bias) l.bias = find_bias(b, n, l.x.dims, out);
    for (int i = 0; i < 2; i++)
        out_size[i] = (w->in[i] - 1) * w->stride[i] - w->before[i] - w->after[i] +
                      (w->kernel[i] - 1) * w->dilation[i] + 1 + w->output_padding[i];
    const oct_file_order order = {.dims = 5,
                                  .size = {l.groups, ig, of, kh, kw},
                                  .stride = {of * kh * kw * ig, 1, kh * kw * ig, -kw * ig, -ig},
                                  .offset = (kh * kw - 1) * ig};
    oct_conv_transpose2d_args args = conv_args(l.in, out, w, l.groups, l.bias != NULL);
    args.geometry.output_padding_h = (int)w->output_padding[0];
    args.geometry.output_padding_w = (int)w->output_padding[1];
    OCT_TRY(add_layer(b, &oct_conv_transpose2d_type, &l, &args, &order, &output));
    const oct_onnx_view y = oct_build_image(output, l.x.dims, out_size[0], out_size[1], out);
    return oct_build_set_result(b, &y);
}

/* An average pool with dilations is a depthwise convolution with fixed weights of 1 / (kh kw). */
static oct_status average_dilated(oct_onnx_builder *b, const window *w, bool counts_padding,
                                  int64_t channels, int32_t *value)
{
    const oct_conv2d_args args = conv_args(channels, channels, w, channels, false);
    oct_op_args row;
    int64_t count;
    for (int i = 0; i < 2; i++) {
        const int64_t reach = (w->out[i] - 1) * w->stride[i] + (w->kernel[i] - 1) * w->dilation[i];
        OCT_CHECK((counts_padding || w->before[i] + w->after[i] == 0) &&
                      reach < w->in[i] + w->before[i] + w->after[i],
                  OCT_PREPARE,
                  "it has dilations, and at the edge it averages fewer pixels than elsewhere; "
                  "export it without padding or with count_include_pad, and without ceil_mode");
    }
    oct_args_write(&oct_conv2d_arg_list, &args, &row);
    OCT_TRY(oct_build_call(b, "conv2d", &row, value, 1, value));
    float *weight = oct_build_data(b, *value, "weight", &count);
    for (int64_t i = 0; i < count; i++)
        weight[i] = 1.0F / (float)(w->kernel[0] * w->kernel[1]);
    oct_build_freeze(b, *value, "weight", true);
    return OCT_OK;
}

oct_status oct_build_pool(oct_onnx_builder *b, const oct_onnx_node *n)
{
    oct_onnx_view x;
    window w;
    const bool max = strcmp(n->type, "MaxPool") == 0;
    OCT_TRY(oct_build_view(b, n, 0, &x));
    OCT_TRY(oct_build_lay_out_image(b, &x));
    OCT_TRY(read_window(b, n, &x, &w));
    const bool dilated =
        (w.dilation[0] > 1 && w.kernel[0] > 1) || (w.dilation[1] > 1 && w.kernel[1] > 1);
    const bool counts_padding = oct_onnx_int(n, "count_include_pad", 0) != 0;
    OCT_CHECK(!max || !dilated, OCT_PREPARE,
              "it has dilations, which a maximum cannot have here; export it with dilations of 1");
    /* ONNX Runtime then pads as for a kernel without dilations; the reference of ONNX adds zeros to its result. */
    OCT_CHECK(!dilated || strncmp(oct_onnx_string(n, "auto_pad", ""), "SAME_", 5) != 0, OCT_PREPARE,
              "it has dilations and auto_pad, where runtimes differ; export it with pads");
    OCT_CHECK(n->outputs < 2 || n->output[1] < 0 || b->reads[n->output[1]] == 0, OCT_PREPARE,
              "its second output, the places of the maxima, is used; export it without");
    const oct_pool_geometry g = {.kernel_h = (int)w.kernel[0],
                                 .kernel_w = (int)w.kernel[1],
                                 .stride_h = (int)w.stride[0],
                                 .stride_w = (int)w.stride[1],
                                 .pad_top = (int)w.before[0],
                                 .pad_left = (int)w.before[1],
                                 .pad_bottom = (int)w.after[0],
                                 .pad_right = (int)w.after[1],
                                 .ceil = w.ceil,
                                 .count_include_pad = counts_padding};
    oct_op_args args;
    oct_args_write(max ? &oct_max_pool_arg_list : &oct_avg_pool_arg_list, &g, &args);
    OCT_TRY(dilated
                ? average_dilated(b, &w, counts_padding, x.shape.dim[3], &x.value)
                : oct_build_call(b, max ? "max_pool" : "avg_pool", &args, &x.value, 1, &x.value));
    const oct_onnx_view y = oct_build_image(x.value, x.dims, w.out[0], w.out[1], x.shape.dim[3]);
    return oct_build_set_result(b, &y);
}

oct_status oct_build_batch_norm(oct_onnx_builder *b, const oct_onnx_node *n)
{
    static const char *const names[] = {"weight", "bias", "running_mean", "running_var"};
    const oct_onnx_value *state[4];
    oct_onnx_view x;
    int32_t output;
    for (int i = 0; i < 4; i++)
        OCT_TRY(oct_build_weights(b, n, i + 1, &state[i]));
    OCT_TRY(oct_build_view(b, n, 0, &x));
    if (oct_onnx_int(n, "training_mode", 0) != 0)
        OCT_TRY(oct_network_add_note(b->network, "its batch norms are written as in training; "
                                                 "evaluation uses their running statistics"));
    const bool image = x.dims > 2;
    bool channels[OCT_VIEW_ATOMS] = {false, true};
    if (image)
        OCT_TRY(oct_build_lay_out_image(b, &x));
    else
        OCT_TRY(oct_build_lay_out_last(b, &x, channels));
    const int64_t size = oct_view_size(&x, 1);
    OCT_TRY(oct_build_call(b, "batch_norm",
                           OCT_ARGS(batch_norm, size, oct_onnx_float(n, "epsilon", 1e-5F),
                                    (float)(1.0 - (double)oct_onnx_float(n, "momentum", 0.9F))),
                           &x.value, 1, &output));
    for (int i = 0; i < 4; i++)
        OCT_TRY(oct_build_fill_flat(b, output, names[i], state[i]));
    x.value = output;
    return oct_build_set_result(b, &x);
}

/* Narrows the view where pads are negative, which ONNX reads as cutting off, and sets those to 0. */
static oct_status crop_negative_pads(oct_onnx_view *x, int64_t *before, int64_t *after)
{
    for (int d = 0; d < x->dims; d++) {
        const int64_t cut[2] = {oct_min_i64(before[d], 0), oct_min_i64(after[d], 0)};
        if (cut[0] == 0 && cut[1] == 0) continue;
        OCT_CHECK(oct_view_slice(x, d, -cut[0], oct_view_size(x, d) + cut[0] + cut[1], 1, x),
                  OCT_PREPARE, "it cuts off what it cannot reach; use Slice");
        before[d] -= cut[0];
        after[d] -= cut[1];
    }
    return OCT_OK;
}

/* Adds pads of zeros to the padding of the convolution that alone reads the result; false: there is none. */
static bool move_into_conv(oct_onnx_builder *b, const int64_t *before, const int64_t *after)
{
    const int32_t user = b->last_reader[b->result];
    if (b->reads[b->result] != 1 || user < 0 || before[1] != 0 || after[1] != 0) return false;
    const oct_onnx_node *conv = &b->graph->nodes[user];
    if (strcmp(conv->type, "Conv") != 0 || conv->input[0] != b->result ||
        strcmp(oct_onnx_string(conv, "auto_pad", "NOTSET"), "NOTSET") != 0)
        return false;
    for (int i = 0; i < 2; i++) {
        b->fused[user].before[i] = before[2 + i];
        b->fused[user].after[i] = after[2 + i];
    }
    return true;
}

/* Lays the view out as the padding module takes it, (N, H, W, C) or (N, 1, rows, columns). side: which of ONNX's
 * dimensions are rows, columns and channels; -1: none. */
static oct_status lay_out_for_padding(oct_onnx_builder *b, oct_onnx_view *x, int side[3])
{
    if (x->dims == 4) {
        side[0] = 2, side[1] = 3, side[2] = 1;
        return oct_build_lay_out_image(b, x);
    }
    OCT_CHECK(x->dims == 3 && oct_view_batch(x) == 0, OCT_PREPARE,
              "it pads %d dimensions; only images are supported", x->dims);
    side[0] = -1, side[1] = 1, side[2] = 2;
    return oct_build_lay_out(b, x, &side[1], 2,
                             OCT_SHAPE(1, 1, oct_view_size(x, 1), oct_view_size(x, 2)));
}

oct_status oct_build_pad(oct_onnx_builder *b, const oct_onnx_node *n)
{
    oct_onnx_view x;
    int64_t before[OCT_ONNX_DIMS], after[OCT_ONNX_DIMS];
    double value = (double)oct_onnx_float(n, "value", 0);
    static const char *const modes[] = {"constant", "reflect", "edge", NULL};
    const int mode = oct_list_index(modes, oct_onnx_string(n, "mode", "constant"));
    int side[3];
    bool pads_any = false;
    OCT_TRY(oct_build_view(b, n, 0, &x));
    if (n->inputs > 2 && n->input[2] >= 0)
        OCT_CHECK(oct_build_scalar(b, n->input[2], &value), OCT_PREPARE,
                  "the value that it pads with is computed; export it with a constant");
    OCT_CHECK(mode >= 0, OCT_PREPARE,
              "it pads in mode %s; only constant, reflect and edge are supported",
              oct_onnx_string(n, "mode", "constant"));
    memcpy(before, n->args.before, sizeof before);
    memcpy(after, n->args.after, sizeof after);
    for (int d = 0; d < x.dims; d++)
        OCT_CHECK(labs(before[d]) <= SIDE_MAX && labs(after[d]) <= SIDE_MAX, OCT_PREPARE,
                  "it pads by more than %d; use less", SIDE_MAX);
    OCT_TRY(crop_negative_pads(&x, before, after));
    for (int d = 0; d < x.dims; d++)
        pads_any |= before[d] > 0 || after[d] > 0;
    if (!pads_any) return oct_build_set_result(b, &x);
    OCT_CHECK(before[0] == 0 && after[0] == 0, OCT_PREPARE, "it pads the batch; pad images only");
    if (x.dims == 4 && mode == OCT_PAD_CONSTANT && value == 0 && move_into_conv(b, before, after)) {
        b->view[b->result] = x;
        b->has_view[b->result] = true;
        return OCT_OK;
    }
    OCT_TRY(lay_out_for_padding(b, &x, side));
    int64_t around[3][2] = {{0}}; /* of rows, columns, channels */
    int64_t size[3];
    for (int i = 0; i < 3; i++) {
        if (side[i] >= 0) {
            around[i][0] = before[side[i]];
            around[i][1] = after[side[i]];
        }
        size[i] = x.shape.dim[i + 1] + around[i][0] + around[i][1];
    }
    const oct_op_args *args =
        OCT_ARGS(pad, .top = around[0][0], .bottom = around[0][1], .left = around[1][0],
                 .right = around[1][1], .channels_before = around[2][0],
                 .channels_after = around[2][1], .value = value, .mode = (oct_pad_mode)mode);
    OCT_TRY(oct_build_call(b, "pad", args, &x.value, 1, &x.value));
    const int64_t flat[] = {OCT_ONNX_BATCH, size[1], size[2]};
    const oct_onnx_view y = x.dims == 4
                                ? oct_build_image(x.value, 4, size[0], size[1], size[2])
                                : oct_view_of(x.value, OCT_SHAPE(1, 1, size[1], size[2]), 3, flat);
    return oct_build_set_result(b, &y);
}

/* How a pixel of the output finds its place in the input. */
typedef struct resize_rule {
    const char *mode, *coordinates, *nearest;
    bool whole; /* the output is a multiple of the input: most rules for "nearest" then agree */
} resize_rule;

/* The mode of the module `interpolate` that computes the same pixels as ONNX's attributes; -1: none. Sizes are the
 * scaled ones without a remainder, so half_pixel_symmetric is half_pixel. */
static int resize_mode(const resize_rule *r)
{
    const bool half = strcmp(r->coordinates, "half_pixel") == 0 ||
                      strcmp(r->coordinates, "pytorch_half_pixel") == 0 ||
                      strcmp(r->coordinates, "half_pixel_symmetric") == 0;
    const bool floors = strcmp(r->nearest, "floor") == 0;
    const bool rounds = strcmp(r->nearest, "round_prefer_floor") == 0;
    const bool from_corner = strcmp(r->coordinates, "asymmetric") == 0;
    if (strcmp(r->mode, "nearest") == 0) {
        if (from_corner && floors) return 0;
        if (r->whole && half && (rounds || strcmp(r->nearest, "round_prefer_ceil") == 0)) return 0;
        if (r->whole && floors && strcmp(r->coordinates, "tf_half_pixel_for_nn") == 0) return 0;
        if (half && rounds) return 4;
        return half && floors ? 5 : -1;
    }
    if (strcmp(r->mode, "linear") != 0) return -1;
    if (half) return 1;
    if (strcmp(r->coordinates, "align_corners") == 0) return 2;
    return from_corner ? 3 : -1;
}

/* Resize and Upsample of images, by a module that knows some of ONNX's rules for where an output pixel lies. */
oct_status oct_build_resize(oct_onnx_builder *b, const oct_onnx_node *n)
{
    oct_onnx_view x;
    int64_t in[2], out[2];
    bool whole = true, smaller = false, fits = true;
    OCT_TRY(oct_build_view(b, n, 0, &x));
    OCT_TRY(oct_build_lay_out_image(b, &x));
    const oct_onnx_value *to = &b->graph->values[b->result];
    OCT_CHECK(to->known && to->ndim == x.dims && to->dim[1] == x.shape.dim[3], OCT_PREPARE,
              "it changes the number of channels; only height and width are supported");
    /* Where scales are given, the output must be what they say without a rest, since pixels are found by them. */
    for (int d = 1; d < x.dims; d++)
        fits &= n->args.scale[d] == 0 ||
                !(fabs((double)n->args.scale[d] * (double)oct_view_size(&x, d) -
                       (double)to->dim[d]) > 1e-3);
    for (int i = 0; i < 2; i++) {
        in[i] = x.shape.dim[1 + i];
        out[i] = i == 1 || x.dims == 4 ? to->dim[x.dims - 2 + i] : 1;
        whole &= out[i] % in[i] == 0;
        smaller |= in[i] > out[i] && in[i] % out[i] != 0;
    }
    resize_rule rule = {oct_onnx_string(n, "mode", "nearest"),
                        oct_onnx_string(n, "coordinate_transformation_mode", "half_pixel"),
                        oct_onnx_string(n, "nearest_mode", "round_prefer_floor"), whole};
    if (b->graph->opset <
        11) { /* from the corner; the pixel after where one becomes no whole one */
        rule.coordinates = "asymmetric";
        rule.nearest = smaller ? "ceil" : "floor";
    }
    const int mode = resize_mode(&rule);
    OCT_CHECK(mode >= 0 && fits && oct_onnx_int(n, "antialias", 0) == 0, OCT_PREPARE,
              "it resizes with mode %s, coordinate_transformation_mode %s, nearest_mode %s and "
              "scales that %s; export it with nearest or linear, floor or round_prefer_floor, "
              "opset 11 or later, without antialias, and with scales that give whole sizes",
              rule.mode, rule.coordinates, rule.nearest,
              fits ? "give whole sizes" : "leave a part of a pixel over");
    /* One pixel is that at the corner, not the middle. */
    for (int i = 0; i < 2; i++)
        if (strcmp(rule.coordinates, "pytorch_half_pixel") == 0 && out[i] == 1 && in[i] > 1)
            OCT_CHECK(oct_view_slice(&x, x.dims - 2 + i, 0, 1, 1, &x), OCT_DEFECT,
                      "an image has no first pixel");
    OCT_TRY(oct_build_lay_out_image(b, &x));
    OCT_TRY(oct_build_call(b, "interpolate", OCT_ARGS(interpolate, out[0], out[1], mode), &x.value,
                           1, &x.value));
    const oct_onnx_view y = oct_build_image(x.value, x.dims, out[0], out[1], x.shape.dim[3]);
    return oct_build_set_result(b, &y);
}
