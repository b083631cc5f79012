/* Which node of the prepared graph a call is, and what is said about calls that were not
 * recorded. */
#include "quant/graph/graph_run_impl.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

oct_mode oct_run_mode(const oct_module *module)
{
    return module->training ? OCT_MODE_TRAINING : OCT_MODE_EVALUATION;
}

oct_mode oct_run_mode_at(const oct_graph *graph, const oct_graph_node *node)
{
    bool own = node->caller && graph->method != OCT_METHOD_SYMBOLIC;
    return oct_run_mode(own ? node->caller : graph->root);
}

bool oct_run_is_due(const oct_graph *graph, const oct_graph_node *node)
{
    return node->in[oct_run_mode_at(graph, node)];
}

bool oct_run_is_codes(const oct_graph *graph, const oct_tensor *x)
{
    return x->graph_value >= 0 && x->graph_value < (int64_t)graph->num_values &&
           graph->values[x->graph_value].codes;
}

bool oct_run_is_untouched(const oct_graph *graph, int64_t value)
{
    int64_t producer = graph->values[value].producer;
    return producer >= 0 && graph->nodes[producer].action == OCT_NODE_UNTOUCHED;
}

/* Whether a user in `block` may get any tensor for this value: it comes into a block's run from
 * outside, or out of a block. */
static bool is_open(const oct_graph *graph, int block, int64_t value)
{
    int64_t producer = graph->values[value].producer;
    int made_in = producer >= 0 ? graph->nodes[producer].block : OCT_NO_BLOCK;
    return made_in != block && (made_in != OCT_NO_BLOCK || block != OCT_NO_BLOCK);
}

/* Untouched float values have no number of their own: what is passed among them is what the forward
 * computes. */
bool oct_run_fits(const oct_graph *graph, int block, int64_t value, const oct_tensor *x)
{
    if (x->graph_value == value || is_open(graph, block, value)) return true;
    return oct_run_is_untouched(graph, value) && !oct_run_is_codes(graph, x);
}

static bool is_call(const oct_graph_node *node, const oct_graph_call *call)
{
    if (node->hook != call->hook) return false;
    if (node->called || call->module) return node->called == call->module;
    return node->caller == call->caller && strcmp(node->op, call->op) == 0;
}

static int64_t recorded_input(const oct_graph *graph, const oct_graph_node *node, int i)
{
    oct_mode mode = oct_run_mode_at(graph, node);
    return oct_graph_resolve(graph, node->called_input[mode][i], mode);
}

/* The first input that is not the recorded one, or -1. */
static int odd_input(const oct_graph *graph, const oct_graph_node *node, const oct_graph_call *call)
{
    for (int i = 0; i < call->n; i++)
        if (!oct_run_fits(graph, node->block, recorded_input(graph, node, i), call->x[i])) return i;
    return -1;
}

bool oct_run_fits_node(const oct_graph *graph, const oct_graph_node *node,
                       const oct_graph_call *call)
{
    return is_call(node, call) && call->n == node->num_inputs &&
           (call->module || oct_op_args_equal(call->args, &node->args)) &&
           odd_input(graph, node, call) < 0;
}

/* The nodes of the block that runs, or all; those of other blocks are among them. */
static void node_range(const oct_graph *graph, size_t *begin, size_t *end)
{
    const struct oct_graph_run *run = graph->run;
    bool inside = run->block >= 0;
    *begin = inside ? graph->blocks[run->block].begin : 0;
    *end = run->block == OCT_UNKNOWN_BLOCK ? 0
           : inside                        ? graph->blocks[run->block].end
                                           : graph->num_nodes;
}

const oct_graph_node *oct_run_expected(const oct_graph *graph)
{
    const struct oct_graph_run *run = graph->run;
    size_t begin, end;
    node_range(graph, &begin, &end);
    for (size_t i = run->block >= 0 ? run->block_next : run->next; i < end; i++) {
        const oct_graph_node *node = &graph->nodes[i];
        if (node->action != OCT_NODE_UNTOUCHED && !node->hook && node->block == run->block &&
            oct_run_is_due(graph, node))
            return node;
    }
    return NULL;
}

const oct_graph_node *oct_run_unordered(const oct_graph *graph, const oct_graph_call *call)
{
    const struct oct_graph_run *run = graph->run;
    size_t begin, end;
    node_range(graph, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        const oct_graph_node *node = &graph->nodes[i];
        if ((node->action == OCT_NODE_UNTOUCHED || node->hook) && node->block == run->block &&
            !run->visited[i] && oct_run_is_due(graph, node) && oct_run_fits_node(graph, node, call))
            return node;
    }
    return NULL;
}

bool oct_run_is_own_affair(const oct_graph *graph, const oct_graph_call *call)
{
    bool touched = false;
    for (int i = 0; i < call->n; i++)
        if (oct_run_is_codes(graph, call->x[i])) return false;
    for (size_t i = 0; i < graph->num_nodes; i++) {
        const oct_graph_node *node = &graph->nodes[i];
        if (!is_call(node, call) || !oct_run_is_due(graph, node)) continue;
        if (node->action == OCT_NODE_UNTOUCHED) return true;
        touched = true;
    }
    return !touched;
}

void *oct_run_refuse(oct_context *cx, bool control_flow, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    oct_vsnprintf(text, sizeof text, format, args);
    va_end(args);
    oct_module *module = cx->module;
    cx->module = NULL;
    oct_context_fail(cx, OCT_PREPARE, "%s%s", text,
                     control_flow ? "; control flow that changes from step to step must be in a "
                                    "dynamic block (oct_dynamic_block_begin)"
                                  : "");
    cx->module = module;
    return NULL;
}

/* Another call was expected, or none. */
static void refuse_order(oct_context *cx, const oct_graph *graph, const oct_graph_node *node,
                         const char *found)
{
    char wanted[OCT_CALL_BYTES];
    int block = graph->run->block;
    if (block == OCT_UNKNOWN_BLOCK)
        oct_run_refuse(cx, false,
                       "%s is called in a dynamic block that did not run when the graph was "
                       "recorded; let the example's forward run each block at least once",
                       found);
    else if (node)
        oct_run_refuse(cx, true, "%s is called where %s was recorded", found,
                       oct_graph_node_text(node, wanted));
    else if (block != OCT_NO_BLOCK)
        oct_run_refuse(cx, false,
                       "%s is called where dynamic block '%s' was recorded to end; a block must "
                       "call the same operations each time it runs",
                       found, graph->blocks[block].name);
    else
        oct_run_refuse(cx, true, "%s is called where no further operation was recorded", found);
}

/* The right operation is called at the right time, but not as it was recorded. */
static void refuse_form(oct_context *cx, const oct_graph *graph, const oct_graph_node *node,
                        const oct_graph_call *call, const char *found)
{
    char wanted[OCT_CALL_BYTES];
    int odd = call->n == node->num_inputs ? odd_input(graph, node, call) : -1;
    if (call->n != node->num_inputs)
        oct_run_refuse(cx, true, "%s is called with %d inputs, but was recorded with %d", found,
                       call->n, node->num_inputs);
    else if (odd >= 0)
        oct_run_refuse(
            cx, true, "input %d of %s is not the value that was recorded, which comes from %s", odd,
            found, oct_graph_producer_text(graph, recorded_input(graph, node, odd), wanted));
    else
        oct_run_refuse(cx, false,
                       "%s is called with other numbers (sizes, strides, ...) than were recorded; "
                       "its quantized form has those of the example",
                       found);
}

void oct_run_refuse_call(oct_context *cx, const oct_graph *graph, const oct_graph_node *node,
                         const oct_graph_call *call)
{
    char path[256] = "", found[OCT_CALL_BYTES];
    const oct_module *at = call->module ? call->module : call->caller;
    if (at) oct_module_path(at, path);
    oct_call_text(found, call->module ? NULL : call->op, path, call->hook);
    if (node && is_call(node, call))
        refuse_form(cx, graph, node, call, found);
    else
        refuse_order(cx, graph, node, found);
}
