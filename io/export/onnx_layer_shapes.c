/* Layers that move or concatenate values. */
#include "io/export/onnx_form.h"

#include "core/base/mem.h"
#include "core/nn/modules.h"

#include <math.h>
#include <string.h>

static oct_to_onnx_ref flatten(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const oct_shape *in = &c->input[0].tensor.shape;
    return oct_to_onnx_view(w, c->input[0],
                            OCT_SHAPE(in->dim[0], oct_shape_numel(in) / in->dim[0]));
}

static oct_to_onnx_ref reshape(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    return oct_to_onnx_view(w, c->input[0], *(const oct_reshape_args *)c->args);
}

static oct_to_onnx_ref squeeze(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const oct_shape *in = &c->input[0].tensor.shape;
    const int dim = ((const oct_squeeze_args *)c->args)->dim;
    oct_shape shape = {.ndim = 0};
    for (int i = 0; i < in->ndim; i++)
        if (i == 0 || in->dim[i] != 1 || (dim != 0 && dim != i))
            shape.dim[shape.ndim++] = in->dim[i];
    return oct_to_onnx_view(w, c->input[0], shape);
}

static oct_to_onnx_ref move(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    return oct_to_onnx_move(w, c->input[0], c->args);
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

static oct_to_onnx_ref mean(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
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
    int64_t places[2 * OCT_MAX_DIMS] = {0};
    for (int i = 1; i < shape.ndim; i++) {
        const int k = 3 + i - shape.ndim; /* among H, W, C */
        const int64_t axis = oct_to_onnx_axis(shape.ndim, i);
        places[axis] = pad->before[k];
        places[shape.ndim + axis] = pad->out[k] - pad->in[k] - pad->before[k];
        shape.dim[i] = pad->out[k];
    }
    const char *y = OCT_TO_ONNX(w, "Pad", x.name, oct_to_onnx_list(w, 2 * shape.ndim, places),
                                pad->mode == OCT_PAD_CONSTANT ? constant : "");
    oct_to_onnx_text_set(w, "mode", modes[pad->mode]);
    return (oct_to_onnx_ref){y, {.shape = shape}};
}

static oct_to_onnx_ref pad(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const oct_to_onnx_ref x = oct_to_onnx_ordered(w, c->input[0]), none = {.name = NULL};
    const oct_padding *padding = c->args;
    oct_pad_shape shape;
    oct_shape out;
    if (!x.name) return none;
    if (oct_pad_tensor_shape(&shape, padding, &x.tensor.shape, &out) != OCT_OK) {
        oct_fail_clear();
        oct_to_onnx_fail(w, OCT_PREPARE, "%s: its padding does not fit its input", c->layer->name);
        return none;
    }
    return oct_to_onnx_pad(w, x, &shape, oct_to_onnx_scalar(w, (float)padding->value));
}

/* ONNX takes size * scale, rounded down, for the new size. */
static float scale_of(int64_t in, int64_t out)
{
    float scale = (float)out / (float)in;
    while ((int64_t)floorf((float)in * scale) < out)
        scale = nextafterf(scale, INFINITY);
    return scale;
}

/* Reads the nearest of `in` places on an axis, for each of `out`. */
static const char *gather_nearest(oct_to_onnx_writer *w, const char *x, oct_interpolation mode,
                                  int64_t axis, const int64_t sizes[2])
{
    const int64_t in = sizes[0], out = sizes[1];
    int32_t *places = NULL;
    if (in == out) return x;
    if (oct_alloc(&places, (size_t)out, sizeof *places) != OCT_OK)
        return oct_to_onnx_fail(w, OCT_RESOURCE, "%s: no memory", oct_to_onnx_layer_name(w));
    for (int64_t i = 0; i < out; i++)
        places[i] = (int32_t)oct_resize_place_of(mode, i, in, out).low;
    const char *y =
        OCT_TO_ONNX(w, "Gather", x, oct_to_onnx_constant(w, NULL, OCT_S32, 1, &out, places));
    oct_to_onnx_int_set(w, "axis", axis);
    oct_free(&places);
    return y;
}

/* Nearest pixels of whole multiples are what all versions of all runtimes agree on; others are read by their
 * places. */
static oct_to_onnx_ref interpolate(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    static const char *const places[OCT_INTERPOLATIONS] = {"asymmetric", "half_pixel",
                                                           "align_corners", "asymmetric"};
    const oct_shape *in = &c->input[0].tensor.shape;
    const oct_interpolate_args *a = c->args;
    const int64_t h = a->out_h, width = a->out_w;
    const oct_interpolation mode = a->mode;
    oct_to_onnx_ref y = {c->input[0].name, {.shape = OCT_SHAPE(in->dim[0], h, width, in->dim[3])}};
    const bool whole = mode == OCT_NEAREST && h % in->dim[1] == 0 && width % in->dim[2] == 0;
    if (!oct_is_bilinear(mode) && !whole) {
        y.name = gather_nearest(w, y.name, mode, 2, (int64_t[]){in->dim[1], h});
        y.name = gather_nearest(w, y.name, mode, 3, (int64_t[]){in->dim[2], width});
        return y;
    }
    const float scales[] = {1, 1, scale_of(in->dim[1], h), scale_of(in->dim[2], width)};
    y.name = OCT_TO_ONNX(w, "Resize", y.name, "",
                         oct_to_onnx_constant(w, NULL, OCT_F32, 1, &(int64_t){4}, scales));
    oct_to_onnx_text_set(w, "mode", whole ? "nearest" : "linear");
    oct_to_onnx_text_set(w, "coordinate_transformation_mode", places[mode]);
    if (whole) oct_to_onnx_text_set(w, "nearest_mode", "floor");
    return y;
}

/* The parameter once for each sample of the batch, which is input 0's. */
static oct_to_onnx_ref parameter(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const oct_parameter_args *own = c->args;
    oct_shape shape = {.ndim = own->ndim + 1, .dim = {1}};
    memcpy(shape.dim + 1, own->dim, (size_t)own->ndim * sizeof own->dim[0]);
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
    {"flatten", 1, flatten},     {"reshape", 1, reshape}, {"squeeze", 1, squeeze},
    {"move", 1, move},           {"concat", 0, concat},   {"argmax", 1, argmax},
    {"mean", 1, mean},           {"pad", 1, pad},         {"interpolate", 1, interpolate},
    {"parameter", 1, parameter},
};
const size_t oct_to_onnx_shape_layers_count = OCT_COUNT(oct_to_onnx_shape_layers);
