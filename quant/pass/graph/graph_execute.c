/* How the recorded graph runs in the place of the user's forward, for method symbolic: its call
 * sites are called in recorded order, with the containers' hooks around them. */
#include "quant/pass/graph/graph_run_impl.h"

/* Runs a container's hooks at its scope's begin or end. What they compute is in the graph when it
 * was recorded; another tensor would reach users too that the hook does not stand before. */
static void run_scope_hooks(oct_context *cx, oct_graph *graph, const oct_trace_scope *scope,
                            bool begin)
{
    int64_t number = begin ? scope->given : scope->output;
    oct_tensor *value = number < 0 ? NULL : graph->run->made[number];
    if (scope->parent < 0 || !value) return; /* the root's run where it is called */
    cx->module = scope->module;
    oct_hook *list = begin ? scope->module->pre_hooks : scope->module->hooks;
    const oct_tensor *changed = oct_module_run_hooks(cx, scope->module, list, value);
    if (changed && changed != value && changed->graph_value == value->graph_value)
        oct_context_fail(
            cx, OCT_PREPARE,
            "a hook returns another tensor than it was given; in method symbolic what a "
            "container's hook computes belongs to the graph already: let it return "
            "NULL, or prepare with method jit");
}

/* Closes the open scopes that end before this node, up to `keep` (-1: all). Returns the innermost
 * that is left open. */
static int64_t close_scopes(oct_context *cx, oct_graph *graph, int64_t open, size_t node,
                            int64_t keep)
{
    const oct_trace_scope *scopes = graph->scopes[oct_run_mode(graph->root)];
    while (open >= 0 && open != keep && scopes[open].end <= node) {
        run_scope_hooks(cx, graph, &scopes[open], false);
        open = scopes[open].parent;
    }
    return open;
}

/* Finds what the node reads, of a called module before its pre hooks. */
static bool find_inputs(oct_context *cx, const oct_graph *graph, const oct_graph_node *node,
                        oct_tensor **x)
{
    const oct_mode mode = oct_run_mode_at(graph, node);
    char text[OCT_CALL_BYTES];
    for (int i = 0; i < node->num_inputs; i++) {
        const bool given = i == 0 && node->called && node->given[mode] >= 0;
        x[i] = graph->run->made[given ? node->given[mode] : node->called_input[mode][i]];
        if (x[i]) continue;
        oct_context_fail(cx, OCT_PREPARE,
                         "%s reads a value that is not made now; a hook computed it when the "
                         "model was recorded, and must do so in each forward",
                         oct_graph_node_text(node, text));
        return false;
    }
    return true;
}

static oct_tensor *execute_node(oct_context *cx, oct_graph *graph, const oct_graph_node *node)
{
    oct_tensor *x[OCT_MAX_INPUTS], *y = NULL;
    if (!find_inputs(cx, graph, node, x)) return NULL;
    cx->module = node->caller;
    if (node->called) return oct_module_call(cx, node->called, x, node->num_inputs);
    if (node->action == OCT_NODE_UNTOUCHED) {
        oct_run_mark_visited(graph, node);
        return oct_run_with_hooks(cx, node->module, x, node->num_inputs);
    }
    oct_run_call(&graph->interceptor, cx, NULL, node->op, &node->args, x, node->num_inputs, &y);
    return y;
}

/* Keeps what a node made. A module's output is kept where its call is handled; what recorded hooks
 * made of it is another value, with a number of its own. */
static void keep_made(const oct_graph *graph, const oct_graph_node *node, oct_tensor *y)
{
    oct_tensor **made = &graph->run->made[node->output];
    if (node->action == OCT_NODE_UNTOUCHED || !*made || !y ||
        y->graph_value == (*made)->graph_value)
        *made = y;
}

oct_tensor *oct_run_recorded(oct_context *cx, oct_graph *graph, oct_tensor *const *x)
{
    const oct_mode mode = oct_run_mode(graph->root);
    const oct_trace_scope *scopes = graph->scopes[mode];
    size_t next = 0;
    int64_t open = -1;
    for (int i = 0; i < graph->num_inputs[mode]; i++)
        graph->run->made[graph->inputs[i]] = x[i];
    for (size_t i = 0; i <= graph->num_nodes && cx->status == OCT_OK; i++) {
        for (; next < graph->num_scopes[mode] && scopes[next].begin == i; next++) {
            if (scopes[next].hook) continue; /* called where the hook runs */
            close_scopes(cx, graph, open, i, scopes[next].parent);
            open = (int64_t)next;
            run_scope_hooks(cx, graph, &scopes[next], true);
        }
        open = close_scopes(cx, graph, open, i, -1);
        if (i == graph->num_nodes || cx->status != OCT_OK) break;
        const oct_graph_node *node = &graph->nodes[i];
        if (!node->hook && oct_run_is_due(graph, node))
            keep_made(graph, node, execute_node(cx, graph, node));
    }
    return cx->status == OCT_OK ? graph->run->made[graph->output[mode]] : NULL;
}
