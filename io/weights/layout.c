/* How a model's arrays lie in files of other frameworks: by the kind of their module, and by where the model flattens
 * images. */
#include "core/base/mem.h"
#include "core/nn/modules.h"
#include "io/weights/fit.h"

#include <string.h>

/* The order of features. */

/* What is known of a value of the trace. */
typedef struct value_order {
    oct_feature_order features; /* of one with a single dimension after the batch */
    bool moved;                 /* of four dimensions that are not (N, h, w, c) */
} value_order;

static bool is_op(const oct_trace_node *node, const char *op)
{
    return strcmp(node->op, op) == 0;
}

static bool is_layer(const oct_trace_node *node)
{
    return node->module &&
           (node->module->type == &oct_linear_type || node->module->type == &oct_conv2d_type ||
            node->module->type == &oct_conv_transpose2d_type);
}

/* The order of an image's features, where it matters. */
static oct_feature_order order_of_image(const oct_shape *s)
{
    const bool image = s->ndim == 4 && s->dim[1] * s->dim[2] > 1 && s->dim[3] > 1;
    return image ? (oct_feature_order){s->dim[1], s->dim[2], s->dim[3]} : (oct_feature_order){0};
}

/* Whether a node leaves each feature at its place. */
static bool keeps_places(const oct_trace *trace, const oct_trace_node *node)
{
    const oct_shape *in = &trace->values[node->input[0]].shape;
    return !is_layer(node) && !is_op(node, "move") && !is_op(node, "matmul") &&
           oct_shape_equal(in, &trace->values[node->output].shape);
}

static bool is_view(const oct_trace_node *node)
{
    return is_op(node, "flatten") || is_op(node, "reshape");
}

static void find_orders(const oct_trace *trace, value_order *values)
{
    for (size_t i = 0; i < trace->num_nodes; i++) {
        const oct_trace_node *node = &trace->nodes[i];
        if (node->num_inputs < 1) continue;
        const value_order *in = &values[node->input[0]];
        value_order *out = &values[node->output];
        const oct_shape *shape = &trace->values[node->output].shape;
        if (is_op(node, "move") || is_op(node, "matmul"))
            out->moved = true;
        else if (is_view(node) && shape->ndim == 2 && !in->moved)
            out->features = order_of_image(&trace->values[node->input[0]].shape);
        else if (keeps_places(trace, node))
            *out = *in;
    }
}

/* Features that become an image have its order before they do. */
static void find_earlier_orders(const oct_trace *trace, value_order *values)
{
    for (size_t i = trace->num_nodes; i-- > 0;) {
        const oct_trace_node *node = &trace->nodes[i];
        if (node->num_inputs < 1) continue;
        value_order *in = &values[node->input[0]];
        if (trace->values[node->input[0]].shape.ndim != 2 || in->features.c > 0) continue;
        if (is_view(node))
            in->features = order_of_image(&trace->values[node->output].shape);
        else if (keeps_places(trace, node))
            in->features = values[node->output].features;
    }
}

oct_status oct_model_order_of(oct_model_order *order, oct_module *root, const oct_example *example)
{
    oct_trace trace = {0};
    value_order *values = NULL;
    oct_status status = OCT_OK;
    *order = (oct_model_order){0};
    OCT_TRY(oct_trace_run(&trace, root, example));
    OCT_TRY_OUT(oct_alloc(&values, trace.num_values, sizeof *values));
    OCT_TRY_OUT(oct_alloc(&order->modules, trace.num_nodes, sizeof *order->modules));
    find_orders(&trace, values);
    find_earlier_orders(&trace, values);
    for (size_t i = 0; i < trace.num_nodes; i++) {
        const oct_trace_node *node = &trace.nodes[i];
        if (is_layer(node)) order->last_layer = node->module;
        if (!node->module || node->num_inputs < 1 || oct_module_order_of(order, node->module))
            continue;
        order->modules[order->count++] = (oct_module_order){
            node->module, values[node->input[0]].features, values[node->output].features};
    }
out:
    oct_free(&values);
    oct_trace_free(&trace);
    return status;
}

void oct_model_order_free(oct_model_order *order)
{
    oct_free(&order->modules);
    *order = (oct_model_order){0};
}

const oct_module_order *oct_module_order_of(const oct_model_order *order, const oct_module *module)
{
    for (int64_t i = 0; i < order->count; i++)
        if (order->modules[i].module == module) return &order->modules[i];
    return NULL;
}

/* The layout of one array. */

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

oct_weight_layout oct_weight_layout_of(const oct_module *module, const oct_tensor *tensor,
                                       const oct_module_order *order)
{
    const oct_shape *s = &tensor->shape;
    const oct_module_type *type = module->type;
    const bool linear = type == &oct_linear_type;
    const bool parameter = type == &oct_parameter_type || type == &oct_add_parameter_type ||
                           type == &oct_mul_parameter_type;
    if (type == &oct_conv2d_type && s->ndim == 4) return layout_of_convolution(s);
    if (type == &oct_conv_transpose2d_type && s->ndim == 4)
        return layout_of_transposed(s, ((const oct_conv2d_module *)module)->geometry.groups);
    oct_weight_layout layout = {.ndim = s->ndim};
    if ((linear && s->ndim == 2) || ((linear || type == &oct_batch_norm_type) && s->ndim == 1)) {
        memcpy(layout.dim, s->dim, (size_t)s->ndim * sizeof s->dim[0]);
        add_loops(&layout.map, s->dim[0], s->ndim == 2 ? s->dim[1] : 1, order ? &order->out : NULL);
        if (s->ndim == 2) add_loops(&layout.map, s->dim[1], 1, order ? &order->in : NULL);
        return layout;
    }
    if (parameter && s->ndim == 3) { /* (H, W, C) of (C, H, W) */
        const oct_feature_order image = {s->dim[0], s->dim[1], s->dim[2]};
        layout.dim[0] = image.c;
        layout.dim[1] = image.h;
        layout.dim[2] = image.w;
        add_loops(&layout.map, oct_shape_numel(s), 1, image.c > 0 ? &image : NULL);
        return layout;
    }
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
