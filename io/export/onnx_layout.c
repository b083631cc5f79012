/* Shapes and orders of tensors in the file, and moves, which change orders. */
#include "io/export/onnx_form.h"

#include "io/export/program_parts.h"

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
    int64_t all[OCT_LOOPS + 1] = {0}; /* 0: as in x */
    if (!x) return NULL;
    for (int i = 0; i < n; i++)
        all[i + 1] = dims[i];
    return OCT_TO_ONNX(w, "Reshape", x, oct_to_onnx_list(w, n + 1, all));
}

/* Whether channels first and last differ: both are the same where there is one pixel or one channel. */
static bool order_matters(const oct_shape *shape)
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
    if (!order_matters(s)) return oct_to_onnx_reshape(w, x.name, 3, s->dim + 1);
    return oct_to_onnx_transpose(w, x.name, 4, (int64_t[]){0, 2, 3, 1});
}

oct_to_onnx_ref oct_to_onnx_channels_first(oct_to_onnx_writer *w, const char *name, oct_shape shape)
{
    oct_to_onnx_ref y = {name, {.shape = shape}};
    if (!name || shape.ndim != 4) return y;
    y.name = order_matters(&shape)
                 ? oct_to_onnx_transpose(w, name, 4, (int64_t[]){0, 3, 1, 2})
                 : oct_to_onnx_reshape(w, name, 3, oct_to_onnx_shape(&shape).dim + 1);
    return y;
}

oct_to_onnx_ref oct_to_onnx_view(oct_to_onnx_writer *w, oct_to_onnx_ref x, oct_shape shape)
{
    const oct_layer_tensor view = oct_layer_view(&x.tensor, shape);
    if (!x.name || oct_shape_equal(&x.tensor.shape, &shape)) return x;
    const bool back = x.tensor.plane.ndim == 4 && oct_shape_equal(&x.tensor.plane, &shape);
    if (view.plane.ndim == 4 || back) {
        const oct_shape file_shape = oct_to_onnx_shape(&shape);
        return (oct_to_onnx_ref){
            oct_to_onnx_reshape(w, x.name, file_shape.ndim - 1, file_shape.dim + 1), view};
    }
    const char *last = oct_to_onnx_channels_last(w, x);
    if (shape.ndim != 4)
        return (oct_to_onnx_ref){oct_to_onnx_reshape(w, last, shape.ndim - 1, shape.dim + 1), view};
    if (order_matters(&shape)) last = oct_to_onnx_reshape(w, last, 3, shape.dim + 1);
    return oct_to_onnx_channels_first(w, last, shape);
}

/* A move reads the numbers of a sample in another order. Where that is a reshape, a slice of channels or a transposition
 * of some dimensions, in the order that the file has, it is written as one; otherwise as a Gather. */

/* Where number `i` of a tensor in the file lies in Octet's order, and the other way round. */
static int64_t octet_index(const oct_shape *s, int64_t i)
{
    if (s->ndim != 4) return i;
    const int64_t pixels = s->dim[1] * s->dim[2];
    return i % pixels * s->dim[3] + i / pixels;
}

static int64_t file_index(const oct_shape *s, int64_t i)
{
    if (s->ndim != 4) return i;
    return i % s->dim[3] * s->dim[1] * s->dim[2] + i / s->dim[3];
}

/* Reshapes each sample to n dims, and transposes these by perm. */
static const char *transpose_sample(oct_to_onnx_writer *w, const char *x, int n,
                                    const int64_t *dims, const int64_t *perm)
{
    int64_t order[OCT_LOOPS + 1] = {0};
    for (int i = 0; i < n; i++)
        order[i + 1] = perm[i] + 1;
    return oct_to_onnx_transpose(w, oct_to_onnx_reshape(w, x, n, dims), n + 1, order);
}

static const char *slice(oct_to_onnx_writer *w, const char *x, int64_t axis, int64_t first,
                         int64_t end)
{
    return OCT_TO_ONNX(w, "Slice", x, OCT_TO_ONNX_LIST(w, first), OCT_TO_ONNX_LIST(w, end),
                       OCT_TO_ONNX_LIST(w, axis));
}

static const char *flatten_sample(oct_to_onnx_writer *w, const char *x, int64_t n)
{
    return oct_to_onnx_reshape(w, x, 1, &n);
}

/* Reads the n numbers from `first` on: whole channels of an image (*shaped: the result has the output's shape already),
 * or a slice of the flat sample. */
static const char *slice_numbers(oct_to_onnx_writer *w, const oct_to_onnx_ref *x,
                                 const oct_shape *out, int64_t first, int64_t n, bool *shaped)
{
    const oct_shape *in = &x->tensor.shape;
    const int64_t numel = oct_shape_numel(in);
    const bool planes =
        in->ndim == 4 && out->ndim == 4 && in->dim[1] == out->dim[1] && in->dim[2] == out->dim[2];
    const int64_t pixels = planes ? in->dim[1] * in->dim[2] : 1;
    *shaped = planes && first % pixels == 0;
    if (first == 0 && n == numel) {
        *shaped = false;
        return x->name;
    }
    if (*shaped) return slice(w, x->name, 1, first / pixels, (first + n) / pixels);
    return slice(w, flatten_sample(w, x->name, numel), 1, first, first + n);
}

/* Reads n numbers of x's sample by their indices in the file, in the cheapest form that gives these. index: memory of
 * the writer. */
static oct_to_onnx_ref read_by_index(oct_to_onnx_writer *w, oct_to_onnx_ref x,
                                     const oct_move_map *map, const int32_t *index, int64_t n)
{
    const oct_shape file_shape = oct_to_onnx_shape(&map->out);
    const int64_t numel = oct_shape_numel(&x.tensor.shape);
    int64_t dims[OCT_LOOPS], perm[OCT_LOOPS];
    oct_loops l;
    const bool found = oct_loops_find(&l, index, n);
    const char *y;
    bool shaped = false;
    if (found && (l.count == 0 || (l.count == 1 && l.stride[0] == 1)))
        y = slice_numbers(w, &x, &map->out, l.first, n, &shaped);
    else if (found && oct_loops_transpose(&l, numel, dims, perm))
        y = transpose_sample(w, x.name, l.count, dims, perm);
    else {
        y = OCT_TO_ONNX(w, "Gather", flatten_sample(w, x.name, numel),
                        oct_to_onnx_kept_constant(w, NULL, OCT_S32, 1, &n, index));
        oct_to_onnx_int_set(w, "axis", 1);
    }
    if (!shaped) y = oct_to_onnx_reshape(w, y, file_shape.ndim - 1, file_shape.dim + 1);
    return (oct_to_onnx_ref){y, {.shape = map->out}};
}

oct_to_onnx_ref oct_to_onnx_move(oct_to_onnx_writer *w, oct_to_onnx_ref x, const oct_move_map *map)
{
    x = oct_to_onnx_ordered(w, x);
    if (!x.name) return x;
    oct_move_map m = *map;
    m.out.dim[0] = 1;
    const int64_t n = oct_shape_numel(&m.out);
    int32_t *index = oct_to_onnx_alloc(w, (size_t)n * sizeof *index);
    if (!index) return OCT_TO_ONNX_NOTHING;
    for (int64_t i = 0; i < n; i++)
        index[i] =
            (int32_t)file_index(&x.tensor.shape, oct_move_source(&m, octet_index(&m.out, i)));
    return read_by_index(w, x, &m, index, n);
}
