/* Arrays of float layers are brought into PyTorch's layouts here. */
#include "io/export/layer.h"

#include "core/base/mem.h"

#include <string.h>

const oct_layer_array *oct_layer_array_find(const oct_float_layer *layer, const char *name)
{
    for (int i = 0; i < layer->num_arrays; i++)
        if (strcmp(layer->array[i].name, name) == 0) return &layer->array[i];
    return NULL;
}

static bool lists(const char *const *names, const char *name)
{
    for (; *names; names++)
        if (strcmp(*names, name) == 0) return true;
    return false;
}

bool oct_layer_passes(const char *type)
{
    static const char *const types[] = {"identity", "dropout", "quant_stub", "dequant_stub", NULL};
    return lists(types, type);
}

bool oct_layer_is_pointwise(const char *type)
{
    static const char *const types[] = {"relu", "relu6", "clip", "add_scalar", "mul_scalar",
#define OCT_ELEMENTWISE(name, args) #name,
#include "core/op/elementwise_list.def"
#undef OCT_ELEMENTWISE
                                        NULL};
    return oct_layer_passes(type) || lists(types, type);
}

oct_layer_tensor oct_layer_view(const oct_layer_tensor *x, oct_shape shape)
{
    oct_layer_tensor y = {.shape = shape, .plane = x->plane};
    const oct_shape *from = &x->shape;
    if (from->ndim == 4 && from->dim[1] * from->dim[2] > 1 && from->dim[3] > 1) y.plane = *from;
    /* Only a row of numbers is left in another order. */
    if (shape.ndim != 2) y.plane = (oct_shape){0};
    return y;
}

/* The order of the numbers of an array: made[i0][i1].. is from[offset + sum of i * stride]. */
typedef struct order {
    int64_t stride[OCT_MAX_DIMS], offset;
} order;

static oct_status permute(oct_torch_array *made, const float *from, const order *o)
{
    int64_t at[OCT_MAX_DIMS] = {0}, numel = 1;
    for (int d = 0; d < made->ndim; d++)
        numel *= made->dim[d];
    OCT_TRY(oct_alloc(&made->data, (size_t)numel, sizeof *made->data));
    for (int64_t i = 0; i < numel; i++) {
        int64_t place = o->offset;
        for (int d = 0; d < made->ndim; d++)
            place += at[d] * o->stride[d];
        made->data[i] = from[place];
        for (int d = made->ndim - 1; d >= 0 && ++at[d] == made->dim[d]; d--)
            at[d] = 0;
    }
    return OCT_OK;
}

static oct_status permute_array(oct_torch_array *made, int ndim, const int64_t *dims,
                                const float *from, const order *o)
{
    made->ndim = ndim;
    memcpy(made->dim, dims, (size_t)ndim * sizeof *dims);
    return permute(made, from, o);
}

/* (O, kh, kw, I/groups) -> (O, I/groups, kh, kw) */
static oct_status permute_conv(oct_torch_array *made, const oct_layer_array *a)
{
    const int64_t *d = a->shape.dim;
    return permute_array(made, 4, (int64_t[]){d[0], d[3], d[1], d[2]}, a->data,
                         &(order){.stride = {d[1] * d[2] * d[3], 1, d[2] * d[3], d[3]}});
}

/* (O, kh, kw, I/groups) -> (I, O/groups, kh, kw), rotated by 180 degrees. Input channel i of a group g goes to its
 * own output channels. */
static oct_status permute_transposed(oct_torch_array *made, const oct_float_layer *layer,
                                     const oct_layer_array *a)
{
    const int64_t *d = a->shape.dim, inputs = (int64_t)layer->args.value[0];
    const int64_t each = d[3], groups = inputs / each, outputs = d[0] / groups;
    const int64_t filter = d[1] * d[2] * each;
    made->ndim = 4;
    memcpy(made->dim, (int64_t[]){inputs, outputs, d[1], d[2]}, 4 * sizeof *d);
    OCT_TRY(oct_alloc(&made->data, (size_t)(d[0] * filter), sizeof *made->data));
    for (int64_t g = 0; g < groups; g++) {
        const order o = {.offset = (g * outputs + 1) * filter - each,
                         .stride = {1, filter, -d[2] * each, -each}};
        oct_torch_array part = {.ndim = 4, .dim = {each, outputs, d[1], d[2]}};
        OCT_TRY(permute(&part, a->data, &o));
        memcpy(made->data + g * outputs * filter, part.data,
               (size_t)(outputs * filter) * sizeof(float));
        oct_free(&part.data);
    }
    return OCT_OK;
}

/* (O, H W C) -> (O, C H W) */
static oct_status permute_flattened(oct_torch_array *made, const oct_layer_array *a,
                                    const oct_shape *plane)
{
    const int64_t h = plane->dim[1], w = plane->dim[2], c = plane->dim[3];
    OCT_TRY(permute_array(made, 4, (int64_t[]){a->shape.dim[0], c, h, w}, a->data,
                          &(order){.stride = {h * w * c, 1, w * c, c}}));
    made->ndim = 2;
    made->dim[1] = h * w * c;
    return OCT_OK;
}

/* (H, W, C) -> (C, H, W) */
static oct_status permute_plane(oct_torch_array *made, const oct_layer_array *a)
{
    const int64_t *d = a->shape.dim;
    return permute_array(made, 3, (int64_t[]){d[2], d[0], d[1]}, a->data,
                         &(order){.stride = {1, d[1] * d[2], d[2]}});
}

static oct_status copy_as_it_is(oct_torch_array *made, const oct_layer_array *a)
{
    order o = {.offset = 0};
    int64_t stride = 1;
    for (int i = a->shape.ndim - 1; i >= 0; i--) {
        o.stride[i] = stride;
        stride *= a->shape.dim[i];
    }
    return permute_array(made, a->shape.ndim, a->shape.dim, a->data, &o);
}

oct_status oct_torch_array_make(oct_torch_array *made, const oct_float_layer *layer,
                                const oct_layer_array *array, const oct_layer_tensor *input)
{
    static const char *const planes[] = {"parameter", "add_parameter", "mul_parameter", NULL};
    *made = (oct_torch_array){0};
    oct_status status;
    if (strcmp(layer->type, "conv2d") == 0 && array->shape.ndim == 4)
        status = permute_conv(made, array);
    else if (strcmp(layer->type, "conv_transpose2d") == 0 && array->shape.ndim == 4)
        status = permute_transposed(made, layer, array);
    else if (strcmp(layer->type, "linear") == 0 && array->shape.ndim == 2 && input->plane.ndim == 4)
        status = permute_flattened(made, array, &input->plane);
    else if (lists(planes, layer->type) && array->shape.ndim == 3)
        status = permute_plane(made, array);
    else
        status = copy_as_it_is(made, array);
    if (status != OCT_OK) oct_free(&made->data);
    return status;
}
