/* How the prepared graph handles one call: it finds the node that the call is, which runs on inputs of the kind that it
 * wants; a call that was not recorded is refused. */
#include "quant/graph/graph_run_impl.h"

#include <string.h>

/* A call, as it is made. */
typedef struct oct_graph_call {
    const oct_module *module, *caller; /* module NULL: a functional op */
    const oct_module *hook;
    const char *op;
    const oct_op_args *args;
    oct_tensor *const *x;
    int n;
} oct_graph_call;

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

/* Whether a value is made by an untouched node. */
static bool is_untouched(const oct_graph *graph, int64_t value)
{
    int64_t producer = graph->values[value].producer;
    return producer >= 0 && graph->nodes[producer].action == OCT_NODE_UNTOUCHED;
}

/* What enters or leaves a block's run may be any tensor, since the block may run any number of times. Float values that
 * untouched nodes make have no number: the forward may pass others in their place. */
bool oct_run_fits(const oct_graph *graph, int block, int64_t value, const oct_tensor *x)
{
    const int64_t producer = graph->values[value].producer;
    const int producer_block = producer >= 0 ? graph->nodes[producer].block : OCT_NO_BLOCK;
    if (x->graph_value == value || producer_block != block) return true;
    return is_untouched(graph, value) && !oct_run_is_codes(graph, x);
}

/* Whether a call is of the node's module, or of its op in the same forward or hook. */
static bool is_call(const oct_graph_node *node, const oct_graph_call *call)
{
    if (node->hook != call->hook) return false;
    if (node->called || call->module) return node->called == call->module;
    return node->caller == call->caller && strcmp(node->op, call->op) == 0;
}

/* The value that was recorded as an input of the node. */
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

/* Whether a call is the node, with the inputs and arguments that were recorded. */
static bool fits_node(const oct_graph *graph, const oct_graph_node *node,
                      const oct_graph_call *call)
{
    return is_call(node, call) && call->n == node->num_inputs &&
           (call->module || oct_op_args_equal(call->args, &node->args)) &&
           odd_input(graph, node, call) < 0;
}

/* The nodes among which that of a call is searched: those of the dynamic block that runs (none, if it was not
 * recorded); outside of blocks all, where the caller skips those in blocks. */
static void node_range(const oct_graph *graph, size_t *begin, size_t *end)
{
    const struct oct_graph_run *run = graph->run;
    bool inside = run->block >= 0;
    *begin = inside ? graph->blocks[run->block].begin : 0;
    *end = run->block == OCT_UNKNOWN_BLOCK ? 0
           : inside                        ? graph->blocks[run->block].end
                                           : graph->num_nodes;
}

/* Untouched nodes and those of hooks may be called in any order. */
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

/* The first node that fits a call among those that may be called in any order, untouched ones and those of hooks, and
 * were not called yet; or NULL. Where several fit, their order decides. */
static const oct_graph_node *find_unordered(const oct_graph *graph, const oct_graph_call *call)
{
    const struct oct_graph_run *run = graph->run;
    size_t begin, end;
    node_range(graph, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        const oct_graph_node *node = &graph->nodes[i];
        if ((node->action == OCT_NODE_UNTOUCHED || node->hook) && node->block == run->block &&
            !run->visited[i] && oct_run_is_due(graph, node) && fits_node(graph, node, call))
            return node;
    }
    return NULL;
}

/* Whether the forward may compute this call by itself: no input is codes, and of the nodes that are such a call one is
 * UNTOUCHED, or there is none at all. */
static bool forward_may_run(const oct_graph *graph, const oct_graph_call *call)
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
    OCT_PRINT_ARGS(text, format);
    oct_module *module = cx->module;
    cx->module = NULL; /* whose path would be put in front */
    oct_context_fail(cx, OCT_PREPARE, "%s%s", text,
                     control_flow ? "; control flow that changes from step to step must be in a "
                                    "dynamic block (oct_dynamic_block_begin)"
                                  : "");
    cx->module = module;
    return NULL;
}

/* The right operation is called at the right time, but not as it was recorded. */
static void refuse_form(oct_context *cx, const oct_graph *graph, const oct_graph_node *node,
                        const oct_graph_call *call, const char *found)
{
    int odd = call->n == node->num_inputs ? odd_input(graph, node, call) : -1;
    if (call->n != node->num_inputs)
        oct_run_refuse(cx, true, "%s is called with %d inputs, but was recorded with %d", found,
                       call->n, node->num_inputs);
    else if (odd >= 0)
        oct_run_refuse(
            cx, true, "input %d of %s is not the value that was recorded, which comes from %s", odd,
            found, oct_graph_producer_text(graph, recorded_input(graph, node, odd)).text);
    else
        oct_run_refuse(cx, false,
                       "%s is called with other numbers (sizes, strides, ...) than were recorded; "
                       "its quantized form has those of the example",
                       found);
}

/* Fails the context: the call is not the node that was expected (NULL: none was). */
static void refuse_call(oct_context *cx, const oct_graph *graph, const oct_graph_node *node,
                        const oct_graph_call *call)
{
    const oct_module *site = call->module ? call->module : call->caller;
    const int block = graph->run->block;
    const oct_path_text path = site ? oct_module_path(site) : (oct_path_text){""};
    const oct_call_name name = oct_call_text(call->module ? NULL : call->op, path.text, call->hook);
    const char *found = name.text;
    if (node && is_call(node, call))
        refuse_form(cx, graph, node, call, found);
    else if (block == OCT_UNKNOWN_BLOCK)
        oct_run_refuse(cx, false,
                       "%s is called in a dynamic block that did not run when the graph was "
                       "recorded; let the example's forward run each block at least once",
                       found);
    else if (node)
        oct_run_refuse(cx, true, "%s is called where %s was recorded", found,
                       oct_graph_node_text(node).text);
    else if (block != OCT_NO_BLOCK)
        oct_run_refuse(cx, false,
                       "%s is called where dynamic block '%s' was recorded to end; a block must "
                       "call the same operations each time it runs",
                       found, graph->blocks[block].name);
    else
        oct_run_refuse(cx, true, "%s is called where no further operation was recorded", found);
}

/* How the node runs. */

oct_tensor *oct_run_with_hooks(oct_context *cx, oct_module *module, oct_tensor **x, int n)
{
    if (n > 0) x[0] = oct_module_run_hooks(cx, module, module->pre_hooks, x[0]);
    return oct_module_run_hooks(cx, module, module->hooks, oct_module_execute(cx, module, x, n));
}

/* A forward may compute float values by itself, so a tensor that has no number is taken for the recorded value. */
oct_tensor *oct_run_adapt(oct_context *cx, const oct_graph *graph, oct_wants wants,
                          int64_t recorded, oct_tensor *x)
{
    bool known = x->graph_value >= 0 && x->graph_value < (int64_t)graph->num_values;
    bool numbered =
        known && (graph->values[x->graph_value].codes || !is_untouched(graph, recorded));
    int64_t number = numbered ? x->graph_value : recorded;
    const oct_graph_value *value = &graph->values[number];
    if (wants == OCT_WANTS_ANY || (wants == OCT_WANTS_CODES) == value->codes) return x;
    oct_module *module = value->codes ? value->dequantize : value->quantize;
    if (!module)
        return oct_context_fail(cx, OCT_PREPARE,
                                "an input comes as %s and was recorded as %s; let the example's "
                                "forward run each dynamic block at least twice",
                                value->codes ? "codes" : "float", value->codes ? "float" : "codes");
    oct_converted *kept = &graph->run->converted[number];
    if (kept->from != x)
        *kept = (oct_converted){.from = x,
                                .to = oct_run_with_hooks(cx, module, (oct_tensor *[]){x}, 1)};
    return kept->to;
}

/* The backward of a view. */
static void pass_grad(oct_context *cx, oct_node *node)
{
    oct_add_grad(cx, node->input[0], oct_detach_grad(node->output));
}

oct_tensor *oct_run_view(oct_context *cx, oct_tensor *x)
{
    oct_tensor *view = oct_save(cx, sizeof *view);
    if (!view) return NULL;
    *view = *x;
    view->node = NULL;
    cx->atomic_depth++; /* no operation of the model */
    oct_record(cx, "view", pass_grad, &x, 1, false, view);
    cx->atomic_depth--;
    return view;
}

/* Computes a node from what the forward passes; a fused one was computed elsewhere and only passes its input on. */
static oct_tensor *compute_node(oct_context *cx, oct_graph *graph, const oct_graph_node *node,
                                oct_tensor *const *x)
{
    oct_tensor *input[OCT_MAX_INPUTS];
    if (node->action == OCT_NODE_ALIAS) return graph->run->tensors[node->output] = x[0];
    for (int i = 0; i < node->num_inputs; i++) {
        int64_t recorded = oct_graph_input(graph, node, i, oct_run_mode_at(graph, node));
        input[i] = oct_run_adapt(cx, graph, node->wants, recorded, x[node->operand[i]]);
        if (!input[i]) return NULL;
    }
    oct_tensor *y = node->module == node->called
                        ? oct_module_execute(cx, node->module, input, node->num_inputs)
                        : oct_run_with_hooks(cx, node->module, input, node->num_inputs);
    bool is_other_value = y && y->graph_value >= 0; /* it has another's number */
    for (int i = 0; i < node->num_inputs; i++)
        is_other_value |= y == input[i];
    if (y && is_other_value) y = oct_run_view(cx, y);
    if (y) y->graph_value = node->output;
    return graph->run->tensors[node->output] = y;
}

void oct_run_mark_visited(const oct_graph *graph, const oct_graph_node *node)
{
    graph->run->visited[node - graph->nodes] = true;
}

/* Handles a call of the forward or a hook: the node that the recorded order expects computes it, or the forward itself
 * does where it stays float (false); anything else is refused. An untouched (float) node before the expected one takes
 * the call first, since only their order distinguishes calls that are otherwise the same. */
bool oct_run_call(oct_interceptor *self, oct_context *cx, oct_module *module, const char *op,
                  const oct_op_args *args, oct_tensor *const *x, int n, oct_tensor **y)
{
    oct_graph *graph = (oct_graph *)self;
    if (n > OCT_MAX_INPUTS) return false;
    /* A hook of an atomic module calls for the container that holds that. */
    const oct_module *caller =
        cx->module && cx->module->type->atomic ? cx->module->parent : cx->module;
    oct_graph_call call = {module, module ? NULL : caller, cx->hook, op, args, x, n};
    const oct_graph_node *unordered = find_unordered(graph, &call);
    if (call.hook) { /* a hook's call that was not recorded is made by the hook */
        if (unordered) oct_run_mark_visited(graph, unordered);
        if (!unordered || unordered->action == OCT_NODE_UNTOUCHED) return false;
        *y = compute_node(cx, graph, unordered, x);
        return true;
    }
    const oct_graph_node *expected = oct_run_expected(graph);
    bool stays_float = forward_may_run(graph, &call);
    if (expected && fits_node(graph, expected, &call) &&
        !(stays_float && unordered && unordered < expected)) {
        struct oct_graph_run *run = graph->run;
        size_t *next = run->block != OCT_NO_BLOCK ? &run->block_next : &run->next;
        *next = (size_t)(expected - graph->nodes) + 1;
        *y = compute_node(cx, graph, expected, x);
        return true;
    }
    if (stays_float && unordered) oct_run_mark_visited(graph, unordered);
    if (!stays_float) refuse_call(cx, graph, expected, &call);
    return !stays_float;
}
