/* The order of features: where a model flattens images, and where features become one. */
#include "core/base/mem.h"
#include "core/nn/modules.h"
#include "io/weights/fit.h"

#include <string.h>

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

const oct_module_order *oct_module_order_of(const oct_model_order *order, const oct_module *module)
{
    for (int64_t i = 0; i < order->count; i++)
        if (order->modules[i].module == module) return &order->modules[i];
    return NULL;
}
