/* The trace records the graph of one forward.
 *
 * A value gets its number when its tensor first appears; a tensor without a number was not made by an op or a module,
 * which is an error that names the reader. Scopes, of containers and of
 * dynamic blocks, form a stack while the forward runs.
 */
#include "core/graph/trace.h"

#include "core/base/mem.h"

/* Gives the tensor the next number of a value; producer: its node, -1 of an input of the model. */
static oct_status add_value(oct_trace *trace, oct_tensor *tensor, int64_t producer)
{
    OCT_TRY(
        oct_grow(&trace->values, &trace->cap_values, trace->num_values + 1, sizeof *trace->values));
    tensor->trace_value = (int64_t)trace->num_values;
    trace->values[trace->num_values++] =
        (oct_trace_value){.dtype = tensor->dtype,
                          .q = oct_is_codes(tensor) ? tensor->q : (oct_qparams){0},
                          .shape = tensor->shape,
                          .producer = producer};
    if (trace->watch) trace->watch(trace->user, tensor->trace_value, tensor);
    return OCT_OK;
}

/* Adds an executed call as a node with the value numbers of its inputs and output; without an op: a model input. */
static oct_status add_node(oct_context *cx, const oct_site *executed)
{
    oct_trace *trace = cx->trace;
    if (!executed->op) {
        OCT_TRY(add_value(trace, executed->output, -1));
        trace->inputs[trace->num_inputs++] = executed->output->trace_value;
        return OCT_OK;
    }
    oct_module *module = executed->module, *named = module ? module : cx->module;
    OCT_CHECK(!module || module->parent || trace->scope < 0, OCT_PREPARE,
              "a %s is called that is no part of the model; add it with oct_module_add_child",
              executed->op);
    OCT_TRY(oct_grow(&trace->nodes, &trace->cap_nodes, trace->num_nodes + 1, sizeof *trace->nodes));
    oct_trace_node *node = &trace->nodes[trace->num_nodes];
    *node = (oct_trace_node){.module = module,
                             .op = executed->op,
                             .args = cx->args,
                             .hook = cx->hook,
                             .scope = trace->scope};
    if (!module) /* a hook of an atomic module calls for the container that holds it */
        node->caller = named && named->type->atomic ? named->parent : named;
    else if (trace->scope >= 0)
        node->caller = trace->scopes[trace->scope].module; /* whose forward is running */
    for (int i = 0; i < executed->num_inputs; i++) {
        const int64_t value = executed->input[i]->trace_value;
        OCT_CHECK(value >= 0, OCT_PREPARE,
                  "input %d of %s is not computed from the model's input by modules and ops, so it "
                  "has no place in the graph; compute it by an op, outside of hooks, or keep it "
                  "inside of a module",
                  i, node->op);
        node->input[node->num_inputs++] = value;
    }
    OCT_TRY(oct_strdup(&node->path, named ? oct_module_path(named).text : ""));
    int64_t number = (int64_t)trace->num_nodes++;
    OCT_TRY(add_value(trace, executed->output, number));
    node->output = executed->output->trace_value;
    node->given = executed->unhooked         ? executed->unhooked->trace_value
                  : executed->num_inputs > 0 ? executed->input[0]->trace_value
                                             : -1;
    return OCT_OK;
}

void oct_trace_add(oct_context *cx, const oct_site *executed)
{
    if (!oct_inputs_ok(cx, executed->input, executed->num_inputs)) return;
    oct_context_adopt(cx, add_node(cx, executed));
    cx->args = (oct_op_args){0};
}

/* Opens a scope for the nodes that follow: a container's forward, or a dynamic block (its name), which cannot nest. */
static oct_status open_scope(oct_trace *trace, oct_module *module, const char *block,
                             const oct_tensor *input)
{
    int64_t outer = trace->scope; /* the innermost block around it */
    while (outer >= 0 && !trace->scopes[outer].name)
        outer = trace->scopes[outer].parent;
    OCT_CHECK(!block || outer < 0, OCT_PREPARE,
              "dynamic block \"%s\" begins inside of another one; blocks do not nest", block);
    OCT_TRY(
        oct_grow(&trace->scopes, &trace->cap_scopes, trace->num_scopes + 1, sizeof *trace->scopes));
    oct_trace_scope *scope = &trace->scopes[trace->num_scopes];
    *scope = (oct_trace_scope){.module = module,
                               .begin = trace->num_nodes,
                               .end = trace->num_nodes,
                               .parent = trace->scope,
                               .input = input ? input->trace_value : -1,
                               .output = -1};
    if (block) OCT_TRY(oct_strdup(&scope->name, block));
    trace->scope = (int64_t)trace->num_scopes++;
    return OCT_OK;
}

void oct_trace_enter(oct_context *cx, oct_module *module, const char *block, oct_tensor *input,
                     const oct_tensor *given)
{
    if (cx->status == OCT_OK) oct_context_adopt(cx, open_scope(cx->trace, module, block, input));
    if (cx->status != OCT_OK) return;
    oct_trace_scope *scope = &cx->trace->scopes[cx->trace->scope];
    scope->hook = cx->hook;
    scope->given = given ? given->trace_value : -1;
}

void oct_trace_leave(oct_context *cx, bool is_block, const oct_tensor *output)
{
    oct_trace *trace = cx->trace;
    if (cx->status != OCT_OK) return;
    const char *open_block = trace->scope >= 0 ? trace->scopes[trace->scope].name : NULL;
    if (is_block && !open_block) {
        oct_context_fail(cx, OCT_PREPARE,
                         "oct_dynamic_block_end ends no block that this module has begun");
        return;
    }
    if (!is_block && open_block) {
        oct_context_fail(cx, OCT_PREPARE,
                         "dynamic block \"%s\" was not ended; call oct_dynamic_block_end on every "
                         "way out of it",
                         open_block);
        return;
    }
    oct_trace_scope *scope = &trace->scopes[trace->scope];
    scope->end = trace->num_nodes;
    scope->output = output ? output->trace_value : -1;
    trace->scope = scope->parent;
}

void oct_trace_free(oct_trace *trace)
{
    for (size_t i = 0; i < trace->num_nodes; i++)
        oct_free(&trace->nodes[i].path);
    for (size_t i = 0; i < trace->num_scopes; i++)
        oct_free(&trace->scopes[i].name);
    OCT_FREE_ALL(&trace->nodes, &trace->values, &trace->scopes);
    *trace = (oct_trace){0};
}

oct_status oct_trace_live(const oct_trace *trace, bool **live)
{
    OCT_OWNED(oct_free) bool *wanted = NULL;
    *live = NULL;
    OCT_TRY(oct_alloc(&wanted, trace->num_values, sizeof *wanted));
    OCT_TRY(oct_alloc(live, trace->num_nodes, sizeof **live));
    wanted[trace->output] = true;
    for (size_t i = trace->num_nodes; i-- > 0;) {
        const oct_trace_node *node = &trace->nodes[i];
        (*live)[i] = wanted[node->output];
        for (int k = 0; (*live)[i] && k < node->num_inputs; k++)
            wanted[node->input[k]] = true;
    }
    return OCT_OK;
}
