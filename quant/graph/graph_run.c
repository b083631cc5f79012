/* How a prepared graph runs.
 *
 * A forward walks over the touched nodes in recorded order. Each tensor knows the value that it is
 * (oct_tensor.graph_value), so a call is compared with its node by what is called and by what is
 * passed and handled by it (graph_call.c). `symbolic` makes the same calls itself, with the
 * containers' hooks around them, so there is one way to run a node.
 *
 * All state of a forward is in the step's memory; a failed forward leaves nothing over.
 */
#include "quant/graph/graph_run_impl.h"

#include <string.h>

/* Runs a container's hooks where its recorded forward begins or ends. What they compute was recorded in the graph, so
 * they may not return another tensor: it would reach nodes that the hook does not come before. */
static void run_scope_hooks(oct_context *cx, oct_graph *graph, const oct_trace_scope *scope,
                            bool begin)
{
    int64_t number = begin ? scope->given : scope->output;
    oct_tensor *value = number < 0 ? NULL : graph->run->tensors[number];
    if (scope->parent < 0 || !value) return; /* the root's run where it is called */
    cx->module = scope->module;
    const oct_tensor *changed = oct_module_run_hooks(
        cx, scope->module, begin ? scope->module->pre_hooks : scope->module->hooks, value);
    if (changed && changed != value && changed->graph_value == value->graph_value)
        oct_context_fail(
            cx, OCT_PREPARE,
            "a hook returns another tensor than it was given; in method symbolic what a "
            "container's hook computes belongs to the graph already: let it return "
            "NULL, or prepare with method jit");
}

/* Runs the hooks of the open containers whose forwards end before this node, from the innermost, `open`, out to `keep`
 * (-1: all). Returns the innermost that stays open. */
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

/* Makes a node's call with the tensors of its recorded inputs, as the user's forward would. */
static oct_tensor *execute_node(oct_context *cx, oct_graph *graph, const oct_graph_node *node)
{
    const oct_mode mode = oct_run_mode_at(graph, node);
    oct_tensor *x[OCT_MAX_INPUTS], *y = NULL;
    for (int i = 0; i < node->num_inputs; i++) {
        /* A called module gets what its pre hooks get. */
        const bool given = i == 0 && node->called && node->given[mode] >= 0;
        x[i] = graph->run->tensors[given ? node->given[mode] : node->called_input[mode][i]];
        if (!x[i])
            return oct_context_fail(cx, OCT_PREPARE,
                                    "%s reads a value that is not made now; a hook computed it "
                                    "when the model was recorded, and must do so in each forward",
                                    oct_graph_node_text(node).text);
    }
    cx->module = node->caller;
    if (node->called) return oct_module_call(cx, node->called, x, node->num_inputs);
    if (node->action == OCT_NODE_UNTOUCHED) {
        oct_run_mark_visited(graph, node);
        return oct_run_with_hooks(cx, node->module, x, node->num_inputs);
    }
    oct_run_call(&graph->interceptor, cx, NULL, node->op, &node->args, x, node->num_inputs, &y);
    return y;
}

/* Runs the recorded forward in the place of the user's. */
static oct_tensor *run_recorded(oct_context *cx, oct_graph *graph, oct_tensor *const *x)
{
    const oct_mode mode = oct_run_mode(graph->root);
    const oct_trace_scope *scopes = graph->scopes[mode];
    size_t next = 0;
    int64_t open = -1;
    for (int i = 0; i < graph->num_inputs[mode]; i++)
        graph->run->tensors[graph->inputs[i]] = x[i];
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
        if (node->hook || !oct_run_is_due(graph, node)) continue;
        oct_tensor *y = execute_node(cx, graph, node), **kept = &graph->run->tensors[node->output];
        /* The call of a prepared module has kept its output already (graph_call.c). A hook that replaced it made
         * another value, with a node and number of its own, which must not take the place of the kept one. */
        if (node->action == OCT_NODE_UNTOUCHED || !*kept || !y ||
            y->graph_value == (*kept)->graph_value)
            *kept = y;
    }
    return cx->status == OCT_OK ? graph->run->tensors[graph->output[mode]] : NULL;
}

/* Checks that everything that was recorded has run and that y is what was recorded as the output;
 * returns the output as float. */
static oct_tensor *check_output(oct_context *cx, oct_graph *graph, oct_tensor *y)
{
    if (graph->run->block != OCT_NO_BLOCK)
        return oct_context_fail(cx, OCT_PREPARE,
                                "a dynamic block was not ended; call oct_dynamic_block_end on "
                                "every way out of it");
    const oct_graph_node *node = oct_run_expected(graph);
    if (node)
        return oct_run_refuse(cx, true, "the forward ended before %s, which was recorded",
                              oct_graph_node_text(node).text);
    const oct_mode mode = oct_run_mode(graph->root);
    int64_t output = oct_graph_resolve(graph, graph->output[mode], mode);
    bool codes = oct_run_is_codes(graph, y);
    if (codes && !oct_run_fits(graph, OCT_NO_BLOCK, output, y))
        return oct_run_refuse(
            cx, true, "the forward returns another value than was recorded, which comes from %s",
            oct_graph_producer_text(graph, output).text);
    if (codes && graph->values[y->graph_value].dequantize)
        y = oct_run_adapt(cx, graph, OCT_WANTS_FLOAT, y->graph_value, y);
    if (y) y->graph_value = -1;
    return y;
}

/* Allocates a forward's state, in the step's memory. */
static struct oct_graph_run *new_run(oct_context *cx, const oct_graph *graph)
{
    struct oct_graph_run *run = oct_save(cx, sizeof *run);
    oct_converted *converted = oct_save(cx, graph->num_values * sizeof *converted);
    oct_tensor **tensors = oct_save(cx, graph->num_values * sizeof *tensors);
    bool *visited = oct_save(cx, graph->num_nodes);
    if (!run || !converted || !tensors || !visited) return NULL;
    memset(converted, 0, graph->num_values * sizeof *converted);
    memset(tensors, 0, graph->num_values * sizeof(oct_tensor *));
    memset(visited, 0, graph->num_nodes);
    *run = (struct oct_graph_run){
        .converted = converted, .tensors = tensors, .visited = visited, .block = OCT_NO_BLOCK};
    return run;
}

/* Runs the whole model: the inputs get the numbers of the graph's inputs, by which nodes know their values. */
static oct_tensor *run_root(oct_context *cx, oct_graph *graph, oct_module *root,
                            oct_tensor *const *x, int n)
{
    oct_tensor *input[OCT_MAX_INPUTS] = {NULL};
    graph->run = new_run(cx, graph);
    if (!graph->run) return NULL;
    for (int i = 0; i < n; i++) { /* a tensor that is passed twice is two values */
        input[i] = x[i];
        for (int j = 0; j < i; j++)
            if (x[j] == x[i]) input[i] = oct_run_view(cx, x[i]);
        if (!input[i]) return NULL;
        input[i]->graph_value = graph->inputs[i];
    }
    cx->interceptor = &graph->interceptor;
    oct_tensor *y = graph->method == OCT_METHOD_SYMBOLIC ? run_recorded(cx, graph, input)
                                                         : root->type->forward(cx, root, input, n);
    cx->module = root;
    if (y && cx->status == OCT_OK) y = check_output(cx, graph, y);
    cx->interceptor = NULL;
    return y;
}

/* Runs the graph in place of the root's forward; x get back the numbers that they have in a graph around this one. */
static oct_tensor *run_graph(oct_interceptor *self, oct_context *cx, oct_module *root,
                             oct_tensor *const *x, int n)
{
    oct_graph *graph = (oct_graph *)self;
    struct oct_graph_run *outer = graph->run;
    int64_t values[OCT_MAX_INPUTS];
    int wanted = graph->num_inputs[oct_run_mode(root)];
    if (n != wanted)
        return oct_context_fail(
            cx, OCT_USAGE, "the model was prepared with %d inputs%s, but called with %d", wanted,
            wanted == graph->num_inputs[!root->training] ? ""
            : root->training                             ? " in training mode"
                                                         : " in evaluation mode",
            n);
    for (int i = 0; i < n; i++)
        values[i] = x[i]->graph_value;
    oct_tensor *y = run_root(cx, graph, root, x, n);
    for (int i = 0; i < n; i++)
        x[i]->graph_value = values[i];
    graph->run = outer;
    return y;
}

/* Begins the dynamic block of this name, or ends the one that runs (NULL). */
static void mark_block(oct_interceptor *self, oct_context *cx, oct_module *module, const char *name)
{
    oct_graph *graph = (oct_graph *)self;
    struct oct_graph_run *run = graph->run;
    if (!name) {
        const oct_graph_node *node = oct_run_expected(graph);
        if (run->block == OCT_NO_BLOCK)
            oct_context_fail(cx, OCT_PREPARE, "oct_dynamic_block_end ends no block");
        else if (node)
            oct_run_refuse(cx, false,
                           "dynamic block '%s' ends where %s was recorded; a block must call the "
                           "same operations each time it runs",
                           graph->blocks[run->block].name, oct_graph_node_text(node).text);
        run->block = OCT_NO_BLOCK;
        return;
    }
    if (run->block != OCT_NO_BLOCK) {
        oct_context_fail(cx, OCT_PREPARE,
                         "dynamic block '%s' begins before another one has ended; blocks do not "
                         "nest, and oct_dynamic_block_end belongs on every way out",
                         name);
        return;
    }
    const int known = oct_graph_find_block(graph, module, name);
    run->block = known < 0 ? OCT_UNKNOWN_BLOCK : known;
    if (known < 0) return;
    const oct_graph_block *block = &graph->blocks[known];
    run->block_next = block->begin;
    memset(run->visited + block->begin, 0, block->end - block->begin);
}

static void destroy_with_root(oct_interceptor *interceptor)
{
    oct_graph *self = (oct_graph *)interceptor;
    oct_graph_destroy(&self);
}

oct_graph *oct_graph_of(const oct_module *root)
{
    oct_interceptor *interceptor = root->interceptor;
    return interceptor && interceptor->destroy == destroy_with_root ? (oct_graph *)interceptor
                                                                    : NULL;
}

void oct_graph_attach(oct_graph *graph, oct_module *root)
{
    graph->root = root;
    graph->interceptor =
        graph->method == OCT_METHOD_EAGER
            ? (oct_interceptor){0}
            : (oct_interceptor){.run = run_graph, .call = oct_run_call, .block = mark_block};
    graph->interceptor.destroy = destroy_with_root;
    root->interceptor = &graph->interceptor;
}
