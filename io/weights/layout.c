#include "io/weights/layout.h"

#include "core/nn/modules.h"

#include <string.h>

/* The values as they lie. */
static oct_weight_layout layout_as_it_is(const oct_shape *shape)
{
    oct_weight_layout layout = {.ndim = shape->ndim};
    memcpy(layout.dim, shape->dim, sizeof shape->dim);
    layout.map = oct_move_over(shape->ndim, shape->dim);
    return layout;
}

/* (O, kh, kw, I) of (O, I, kh, kw). */
static oct_weight_layout layout_of_convolution(const oct_shape *s)
{
    const int64_t taps = s->dim[1] * s->dim[2];
    return (oct_weight_layout){
        .ndim = 4,
        .dim = {s->dim[0], s->dim[3], s->dim[1], s->dim[2]},
        .map = {.dims = 4,
                .size = {s->dim[0], s->dim[1], s->dim[2], s->dim[3]},
                .stride = {s->dim[3] * taps, s->dim[2], 1, taps}},
    };
}

/* (O, kh, kw, I/groups) of (I, O/groups, kh, kw), rotated by 180 degrees. */
static oct_weight_layout layout_of_transposed(const oct_shape *s, int64_t groups)
{
    const int64_t taps = s->dim[1] * s->dim[2], outs = s->dim[0] / groups, ins = s->dim[3];
    return (oct_weight_layout){
        .ndim = 4,
        .dim = {ins * groups, outs, s->dim[1], s->dim[2]},
        .map = {.dims = 5,
                .size = {groups, outs, s->dim[1], s->dim[2], ins},
                .stride = {ins * outs * taps, taps, -s->dim[2], -1, outs * taps},
                .offset = taps - 1},
    };
}

/* Adds the loops of one dimension, whose neighbours are `step` values apart: (h, w, c) of (c, h, w) where an image
 * is in it. */
static void add_loops(oct_move_map *map, int64_t size, int64_t step, const oct_feature_order *o)
{
    const bool image = o && o->c > 0 && o->h * o->w * o->c == size;
    const int64_t plain_size[] = {size}, plain_step[] = {step};
    const int64_t image_size[] = {o ? o->h : 0, o ? o->w : 0, o ? o->c : 0};
    const int64_t image_step[] = {o ? o->w * step : 0, step, o ? o->h * o->w * step : 0};
    const int loops = image ? 3 : 1;
    memcpy(map->size + map->dims, image ? image_size : plain_size, (size_t)loops * sizeof size);
    memcpy(map->stride + map->dims, image ? image_step : plain_step, (size_t)loops * sizeof step);
    map->dims += loops;
}

static oct_weight_layout layout_of_linear(const oct_shape *s, const oct_module_order *order)
{
    oct_weight_layout layout = {.ndim = 2, .dim = {s->dim[0], s->dim[1]}};
    add_loops(&layout.map, s->dim[0], s->dim[1], order ? &order->out : NULL);
    add_loops(&layout.map, s->dim[1], 1, order ? &order->in : NULL);
    return layout;
}

static oct_weight_layout layout_of_vector(const oct_shape *s, const oct_module_order *order)
{
    oct_weight_layout layout = {.ndim = 1, .dim = {s->dim[0]}};
    add_loops(&layout.map, s->dim[0], 1, order ? &order->out : NULL);
    return layout;
}

/* (H, W, C) of (C, H, W). */
static oct_weight_layout layout_of_image(const oct_shape *s)
{
    const oct_feature_order order = {s->dim[0], s->dim[1], s->dim[2]};
    oct_weight_layout layout = {.ndim = 3, .dim = {s->dim[2], s->dim[0], s->dim[1]}};
    add_loops(&layout.map, oct_shape_numel(s), 1, order.c > 0 ? &order : NULL);
    return layout;
}

static bool is_parameter_module(const oct_module_type *type)
{
    return type == &oct_parameter_type || type == &oct_add_parameter_type ||
           type == &oct_mul_parameter_type;
}

oct_weight_layout oct_weight_layout_of(const oct_module *module, const oct_tensor *tensor,
                                       const oct_module_order *order)
{
    const oct_shape *s = &tensor->shape;
    const oct_module_type *type = module->type;
    if (type == &oct_conv2d_type && s->ndim == 4) return layout_of_convolution(s);
    if (type == &oct_conv_transpose2d_type && s->ndim == 4)
        return layout_of_transposed(s, ((const oct_conv2d_module *)module)->geometry.groups);
    if (type == &oct_linear_type && s->ndim == 2) return layout_of_linear(s, order);
    if ((type == &oct_linear_type || type == &oct_batch_norm_type) && s->ndim == 1)
        return layout_of_vector(s, order);
    if (is_parameter_module(type) && s->ndim == 3) return layout_of_image(s);
    return layout_as_it_is(s);
}

/* Drops dimensions of 1 at both ends; returns how many are left, from *first on. */
static int strip_ones(int ndim, const int64_t *dim, int *first)
{
    *first = 0;
    while (ndim > 0 && dim[ndim - 1] == 1)
        ndim--;
    while (*first < ndim && dim[*first] == 1)
        (*first)++;
    return ndim - *first;
}

static bool equal_inside(const oct_weight_layout *layout, const oct_weight *array)
{
    int a, b;
    const int n = strip_ones(layout->ndim, layout->dim, &a);
    return strip_ones(array->ndim, array->dim, &b) == n &&
           memcmp(layout->dim + a, array->dim + b, (size_t)n * sizeof array->dim[0]) == 0;
}

bool oct_weight_layout_fits(oct_weight_layout *layout, const oct_tensor *tensor,
                            const oct_weight *array)
{
    if (equal_inside(layout, array)) return true;
    if (layout->ndim != 3) return false;
    *layout = layout_as_it_is(&tensor->shape);
    return equal_inside(layout, array);
}

/* Whether dimensions are products of neighbouring ones of the order. */
static bool refines(const oct_file_order *order, int ndim, const int64_t *dim)
{
    int at = 0;
    for (int i = 0; i < ndim; i++) {
        int64_t size = 1;
        while (size < dim[i] && at < order->dims)
            size *= order->size[at++];
        if (size != dim[i]) return false;
    }
    for (; at < order->dims; at++)
        if (order->size[at] != 1) return false;
    return true;
}

bool oct_weight_order_fits(oct_file_order *order, const oct_weight *array)
{
    const bool matrix = array->ndim == 2;
    const int64_t back[] = {array->dim[1], array->dim[0]};
    const bool along = refines(order, array->ndim, array->dim);
    const bool across = matrix && refines(order, 2, back);
    if (across && (array->turned || !along)) return oct_file_order_turn(order, array->dim[1]);
    return along;
}
