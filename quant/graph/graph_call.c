/* How the prepared graph handles one call: its node runs on inputs of the kind that it wants. */
#include "quant/graph/graph_run_impl.h"

#include <string.h>

oct_tensor *oct_run_with_hooks(oct_context *cx, oct_module *module, oct_tensor **x, int n)
{
    if (n > 0) x[0] = oct_module_run_hooks(cx, module, module->pre_hooks, x[0]);
    return oct_module_run_hooks(cx, module, module->hooks, oct_module_execute(cx, module, x, n));
}

oct_tensor *oct_run_adapt(oct_context *cx, const oct_graph *graph, oct_wants wants,
                          int64_t recorded, oct_tensor *x)
{
    bool known = x->graph_value >= 0 && x->graph_value < (int64_t)graph->num_values;
    bool own =
        known && (graph->values[x->graph_value].codes || !oct_run_is_untouched(graph, recorded));
    int64_t number = own ? x->graph_value : recorded;
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

static oct_tensor *run_node(oct_context *cx, const oct_graph *graph, const oct_graph_node *node,
                            oct_tensor *const *x)
{
    oct_tensor *input[OCT_MAX_INPUTS];
    for (int i = 0; i < node->num_inputs; i++) {
        int64_t recorded = oct_graph_input(graph, node, i, oct_run_mode_at(graph, node));
        input[i] = oct_run_adapt(cx, graph, node->wants, recorded, x[node->operand[i]]);
        if (!input[i]) return NULL;
    }
    oct_tensor *y = node->module == node->called
                        ? oct_module_execute(cx, node->module, input, node->num_inputs)
                        : oct_run_with_hooks(cx, node->module, input, node->num_inputs);
    bool is_other = y && y->graph_value >= 0;
    for (int i = 0; i < node->num_inputs; i++)
        is_other |= y == input[i];
    if (y && is_other) y = oct_run_view(cx, y);
    if (y) y->graph_value = node->output;
    return y;
}

static oct_tensor *compute_node(oct_context *cx, oct_graph *graph, const oct_graph_node *node,
                                oct_tensor *const *x)
{
    oct_tensor *y = node->action == OCT_NODE_ALIAS ? x[0] : run_node(cx, graph, node, x);
    graph->run->made[node->output] = y;
    return y;
}

void oct_run_mark_visited(const oct_graph *graph, const oct_graph_node *node)
{
    graph->run->visited[node - graph->nodes] = true;
}

/* A hook's call that was not recorded is made by the hook. */
static bool handle_hook(oct_context *cx, oct_graph *graph, const oct_graph_call *call,
                        oct_tensor **y)
{
    const oct_graph_node *node = oct_run_unordered(graph, call);
    if (!node) return false;
    oct_run_mark_visited(graph, node);
    if (node->action == OCT_NODE_UNTOUCHED) return false;
    *y = compute_node(cx, graph, node, call->x);
    return true;
}

/* The container that makes a call: a hook of an atomic module calls for the one that holds it. */
static const oct_module *caller_of(const oct_context *cx, const oct_module *called)
{
    if (called) return NULL;
    return cx->module && cx->module->type->atomic ? cx->module->parent : cx->module;
}

static void advance_to_next(oct_graph *graph, const oct_graph_node *node)
{
    size_t next = (size_t)(node - graph->nodes) + 1;
    *(graph->run->block != OCT_NO_BLOCK ? &graph->run->block_next : &graph->run->next) = next;
}

bool oct_run_call(oct_interceptor *self, oct_context *cx, oct_module *module, const char *op,
                  const oct_op_args *args, oct_tensor *const *x, int n, oct_tensor **y)
{
    oct_graph *graph = (oct_graph *)self;
    if (n > OCT_MAX_INPUTS) return false;
    oct_graph_call call = {module, caller_of(cx, module), cx->hook, op, args, x, n};
    if (call.hook) return handle_hook(cx, graph, &call, y);
    const oct_graph_node *node = oct_run_expected(graph), *other = oct_run_unordered(graph, &call);
    bool own = oct_run_is_own_affair(graph, &call);
    if (node && oct_run_fits_node(graph, node, &call) && !(own && other && other < node)) {
        advance_to_next(graph, node);
        *y = compute_node(cx, graph, node, x);
        return true;
    }
    if (own && other) oct_run_mark_visited(graph, other);
    if (!own) oct_run_refuse_call(cx, graph, node, &call);
    return !own;
}

static void begin_block(oct_context *cx, oct_graph *graph, const oct_module *module,
                        const char *name)
{
    struct oct_graph_run *run = graph->run;
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

static void end_block(oct_context *cx, oct_graph *graph)
{
    char wanted[OCT_CALL_BYTES];
    const oct_graph_node *node = oct_run_expected(graph);
    if (graph->run->block == OCT_NO_BLOCK)
        oct_context_fail(cx, OCT_PREPARE, "oct_dynamic_block_end ends no block");
    else if (node)
        oct_run_refuse(cx, false,
                       "dynamic block '%s' ends where %s was recorded; a block must call the same "
                       "operations each time it runs",
                       graph->blocks[graph->run->block].name, oct_graph_node_text(node, wanted));
    graph->run->block = OCT_NO_BLOCK;
}

void oct_run_mark_block(oct_interceptor *self, oct_context *cx, oct_module *module,
                        const char *name)
{
    if (name)
        begin_block(cx, (oct_graph *)self, module, name);
    else
        end_block(cx, (oct_graph *)self);
}
