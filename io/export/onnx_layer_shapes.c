/* Layers that move values or join them. */
#include "io/export/onnx_layer.h"

#include "core/nn/modules.h"

#include <math.h>

static oct_to_onnx_ref flatten(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const oct_shape *in = &c->input[0].tensor.shape;
    return oct_to_onnx_view(w, c->input[0],
                            OCT_SHAPE(in->dim[0], oct_shape_numel(in) / in->dim[0]));
}

static oct_to_onnx_ref reshape(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    oct_shape shape = {.ndim = c->layer->args.count + 1, .dim = {1}};
    for (int i = 1; i < shape.ndim; i++)
        shape.dim[i] = oct_to_onnx_arg(c, i - 1);
    return oct_to_onnx_view(w, c->input[0], shape);
}

/* Argument 0: the dimension, or 0 for all of size 1. */
static oct_to_onnx_ref squeeze(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const oct_shape *in = &c->input[0].tensor.shape;
    const int64_t dim = oct_to_onnx_arg(c, 0);
    oct_shape shape = {.ndim = 0};
    for (int i = 0; i < in->ndim; i++)
        if (i == 0 || in->dim[i] != 1 || (dim != 0 && dim != i))
            shape.dim[shape.ndim++] = in->dim[i];
    return oct_to_onnx_view(w, c->input[0], shape);
}

static oct_to_onnx_ref move(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    oct_move_map map;
    if (oct_move_map_of(&map, &c->layer->args) == OCT_OK)
        return oct_to_onnx_move(w, c->input[0], &map);
    oct_fail_clear();
    oct_to_onnx_fail(w, OCT_PREPARE, "%s: its arguments are no map of a move", c->layer->name);
    return (oct_to_onnx_ref){.name = NULL};
}

static oct_to_onnx_ref concat(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
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
static oct_to_onnx_ref argmax(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const oct_to_onnx_ref x = oct_to_onnx_ordered(w, c->input[0]);
    oct_shape shape = x.tensor.shape;
    const char *y = OCT_TO_ONNX(w, "ArgMax", x.name);
    oct_to_onnx_int_set(w, "axis", oct_to_onnx_axis(shape.ndim, shape.ndim - 1));
    oct_to_onnx_int_set(w, "keepdims", 0);
    shape.ndim--;
    return (oct_to_onnx_ref){y, {.shape = shape}};
}

/* The arguments: axis (12: dimensions 1 and 2) and whether it stays. */
static oct_to_onnx_ref mean(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const oct_shape *in = &c->input[0].tensor.shape;
    const bool both = oct_to_onnx_arg(c, 0) == 12, keep = oct_to_onnx_arg(c, 1) != 0;
    const int axis = both ? 1 : (int)oct_to_onnx_arg(c, 0);
    oct_shape shape = {.ndim = 0};
    for (int i = 0; i < in->ndim; i++) {
        const bool taken = i == axis || (both && i == 2);
        if (!taken || keep) shape.dim[shape.ndim++] = taken ? 1 : in->dim[i];
    }
    const char *y = OCT_TO_ONNX(w, "ReduceMean", oct_to_onnx_channels_last(w, c->input[0]));
    oct_to_onnx_ints_set(w, "axes", both ? 2 : 1, (int64_t[]){axis, 2});
    oct_to_onnx_int_set(w, "keepdims", keep);
    return oct_to_onnx_channels_first(w, y, shape);
}

/* The arguments: top, bottom, left, right, channels before and behind, value, mode. */
static oct_to_onnx_ref pad(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    static const char *const modes[] = {"constant", "reflect", "edge"};
    const int64_t mode = oct_to_onnx_arg(c, 7);
    int64_t a[6];
    for (int i = 0; i < 6; i++)
        a[i] = oct_to_onnx_arg(c, i);
    oct_shape shape = c->input[0].tensor.shape;
    shape.dim[1] += a[0] + a[1];
    shape.dim[2] += a[2] + a[3];
    shape.dim[3] += a[4] + a[5];
    if (mode < 0 || mode > 2) {
        oct_to_onnx_fail(w, OCT_PREPARE, "%s: there is no padding mode %lld", c->layer->name,
                         (long long)mode);
        return (oct_to_onnx_ref){.name = NULL};
    }
    const char *y = OCT_TO_ONNX(
        w, "Pad", c->input[0].name, OCT_TO_ONNX_LIST(w, 0, a[4], a[0], a[2], 0, a[5], a[1], a[3]),
        mode == 0 ? oct_to_onnx_scalar(w, (float)c->layer->args.value[6]) : "");
    oct_to_onnx_text_set(w, "mode", modes[mode]);
    return (oct_to_onnx_ref){y, {.shape = shape}};
}

/* ONNX takes size * scale, rounded down, for the new size. */
static float scale_of(int64_t in, int64_t out)
{
    float scale = (float)out / (float)in;
    while ((int64_t)floorf((float)in * scale) < out)
        scale = nextafterf(scale, INFINITY);
    return scale;
}

static oct_to_onnx_ref interpolate(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    static const struct {
        const char *mode, *place, *nearest;
    } modes[] = {{"nearest", "asymmetric", "floor"},
                 {"linear", "half_pixel", NULL},
                 {"linear", "align_corners", NULL},
                 {"linear", "asymmetric", NULL},
                 {"nearest", "half_pixel", "round_prefer_floor"},
                 {"nearest", "half_pixel", "floor"}};
    const oct_shape *in = &c->input[0].tensor.shape;
    const int64_t h = oct_to_onnx_arg(c, 0), width = oct_to_onnx_arg(c, 1),
                  mode = oct_to_onnx_arg(c, 2);
    if (mode < 0 || mode >= (int64_t)OCT_COUNT(modes)) {
        oct_to_onnx_fail(w, OCT_PREPARE, "%s: there is no mode %lld of interpolation",
                         c->layer->name, (long long)mode);
        return (oct_to_onnx_ref){.name = NULL};
    }
    const float scales[] = {1, 1, scale_of(in->dim[1], h), scale_of(in->dim[2], width)};
    const char *y = OCT_TO_ONNX(w, "Resize", c->input[0].name, "",
                                oct_to_onnx_constant(w, NULL, OCT_F32, 1, &(int64_t){4}, scales));
    oct_to_onnx_text_set(w, "mode", modes[mode].mode);
    oct_to_onnx_text_set(w, "coordinate_transformation_mode", modes[mode].place);
    if (modes[mode].nearest) oct_to_onnx_text_set(w, "nearest_mode", modes[mode].nearest);
    return (oct_to_onnx_ref){y, {.shape = OCT_SHAPE(in->dim[0], h, width, in->dim[3])}};
}

/* The parameter once for each sample of the batch, which is input 0's. */
static oct_to_onnx_ref parameter(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    oct_shape shape = {.ndim = (int)oct_to_onnx_arg(c, 0) + 1, .dim = {1}};
    for (int i = 1; i < shape.ndim; i++)
        shape.dim[i] = oct_to_onnx_arg(c, i);
    const oct_shape there = oct_to_onnx_shape(&shape);
    const char *batch =
        OCT_TO_ONNX(w, "Gather", OCT_TO_ONNX(w, "Shape", c->input[0].name), OCT_TO_ONNX_LIST(w, 0));
    const char *size =
        OCT_TO_ONNX(w, "Concat", batch, oct_to_onnx_list(w, there.ndim - 1, there.dim + 1));
    oct_to_onnx_int_set(w, "axis", 0);
    return (oct_to_onnx_ref){OCT_TO_ONNX(w, "Expand", oct_to_onnx_array(w, c, "weight"), size),
                             {.shape = shape}};
}

const oct_to_onnx_layer_type oct_to_onnx_shape_layers[] = {
    {"flatten", 1, 0, flatten},
    {"reshape", 1, -1, reshape},
    {"squeeze", 1, 1, squeeze},
    {"move", 1, -1, move},
    {"concat", 0, 0, concat},
    {"argmax", 1, 0, argmax},
    {"mean", 1, 2, mean},
    {"pad", 1, 8, pad},
    {"interpolate", 1, 3, interpolate},
    {"parameter", 1, -1, parameter},
};
const size_t oct_to_onnx_shape_layers_count = OCT_COUNT(oct_to_onnx_shape_layers);
