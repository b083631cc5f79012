/* Shapes and orders of tensors in the file. */
#include "io/export/onnx_layer.h"

oct_shape oct_to_onnx_shape(const oct_shape *shape)
{
    if (shape->ndim != 4) return *shape;
    return OCT_SHAPE(shape->dim[0], shape->dim[3], shape->dim[1], shape->dim[2]);
}

int64_t oct_to_onnx_axis(int ndim, int dim)
{
    if (ndim != 4 || dim == 0) return dim;
    return dim == 3 ? 1 : dim + 1;
}

const char *oct_to_onnx_reshape(oct_to_onnx_writer *w, const char *x, int n, const int64_t *dims)
{
    int64_t all[OCT_MAX_DIMS + 1] = {0}; /* 0: as in x */
    if (!x) return NULL;
    for (int i = 0; i < n; i++)
        all[i + 1] = dims[i];
    return OCT_TO_ONNX(w, "Reshape", x, oct_to_onnx_list(w, n + 1, all));
}

static const char *transpose(oct_to_onnx_writer *w, const char *x, const int64_t *order)
{
    const char *y = OCT_TO_ONNX(w, "Transpose", x);
    oct_to_onnx_ints_set(w, "perm", 4, order);
    return y;
}

/* Both orders are the same where there is one pixel or one channel. */
static bool has_order(const oct_shape *shape)
{
    return shape->ndim == 4 && shape->dim[1] * shape->dim[2] > 1 && shape->dim[3] > 1;
}

oct_to_onnx_ref oct_to_onnx_ordered(oct_to_onnx_writer *w, oct_to_onnx_ref x)
{
    if (!x.name || x.tensor.plane.ndim != 4) return x;
    const oct_shape flat = x.tensor.shape, plane = x.tensor.plane;
    x = oct_to_onnx_view(w, x, plane);
    const char *last = oct_to_onnx_channels_last(w, x);
    return (oct_to_onnx_ref){oct_to_onnx_reshape(w, last, flat.ndim - 1, flat.dim + 1),
                             {.shape = flat}};
}

const char *oct_to_onnx_channels_last(oct_to_onnx_writer *w, oct_to_onnx_ref x)
{
    x = oct_to_onnx_ordered(w, x);
    const oct_shape *s = &x.tensor.shape;
    if (!x.name || s->ndim != 4) return x.name;
    if (!has_order(s)) return oct_to_onnx_reshape(w, x.name, 3, s->dim + 1);
    return transpose(w, x.name, (int64_t[]){0, 2, 3, 1});
}

oct_to_onnx_ref oct_to_onnx_channels_first(oct_to_onnx_writer *w, const char *name, oct_shape shape)
{
    oct_to_onnx_ref y = {name, {.shape = shape}};
    if (!name || shape.ndim != 4) return y;
    y.name = has_order(&shape) ? transpose(w, name, (int64_t[]){0, 3, 1, 2})
                               : oct_to_onnx_reshape(w, name, 3, oct_to_onnx_shape(&shape).dim + 1);
    return y;
}

oct_to_onnx_ref oct_to_onnx_view(oct_to_onnx_writer *w, oct_to_onnx_ref x, oct_shape shape)
{
    const oct_layer_tensor view = oct_layer_view(&x.tensor, shape);
    if (!x.name || oct_shape_equal(&x.tensor.shape, &shape)) return x;
    const bool back = x.tensor.plane.ndim == 4 && oct_shape_equal(&x.tensor.plane, &shape);
    if (view.plane.ndim == 4 || back) {
        const oct_shape there = oct_to_onnx_shape(&shape);
        return (oct_to_onnx_ref){oct_to_onnx_reshape(w, x.name, there.ndim - 1, there.dim + 1),
                                 view};
    }
    const char *last = oct_to_onnx_channels_last(w, x);
    if (shape.ndim != 4)
        return (oct_to_onnx_ref){oct_to_onnx_reshape(w, last, shape.ndim - 1, shape.dim + 1), view};
    if (has_order(&shape)) last = oct_to_onnx_reshape(w, last, 3, shape.dim + 1);
    return oct_to_onnx_channels_first(w, last, shape);
}
