/* The graph of a model, made from traces of its forward: all runs of a dynamic block become one. The forward runs on the
 * example twice in each mode, so that one that changes from call to call is found here and not in training. */
#include "quant/graph/graph.h"

#include "core/base/mem.h"

#include <stdio.h>
#include <string.h>

/* Translates the trace's numbers into the graph's. */
typedef struct builder {
    oct_graph *graph;
    const oct_trace *trace;
    int64_t *run_of;     /* scope -> the block's run that it is in or is, or -1 */
    int64_t *first_of;   /* scope that is a run -> the first run of its block; others: -1 */
    int *block_of;       /* scope that is a first run -> number of the block */
    int64_t *scope_of;   /* scope -> the graph's; blocks: that of their container */
    size_t *kept_before; /* node -> how many of the nodes before it are kept */
} builder;

/* Of a scope that is a run of a dynamic block (those have a name): the scope that is the first run of that block. */
static int64_t first_run(const oct_trace *trace, size_t scope)
{
    const oct_trace_scope *run = &trace->scopes[scope];
    for (size_t i = 0; i < scope; i++) {
        const oct_trace_scope *other = &trace->scopes[i];
        if (other->name && other->module == run->module && strcmp(other->name, run->name) == 0)
            return (int64_t)i;
    }
    return (int64_t)scope;
}

/* The run of a block that the scope is in, when it is not the first one; or -1. */
static int64_t repeat_of(const builder *b, int64_t scope)
{
    int64_t run = scope >= 0 ? b->run_of[scope] : -1;
    return run >= 0 && b->first_of[run] != run ? run : -1;
}

/* Finds which run of a dynamic block each scope is, or is in (a scope begins after its parent, so one pass is enough),
 * and how many kept nodes are before each node: later runs are not kept, since the first run stands for them. */
static void find_runs(builder *b)
{
    size_t kept = 0;
    for (size_t i = 0; i < b->trace->num_scopes; i++) {
        const oct_trace_scope *scope = &b->trace->scopes[i];
        b->run_of[i] = scope->name          ? (int64_t)i
                       : scope->parent >= 0 ? b->run_of[scope->parent]
                                            : -1;
        b->first_of[i] = scope->name ? first_run(b->trace, i) : -1;
    }
    for (size_t i = 0; i < b->trace->num_nodes; i++) {
        b->kept_before[i] = kept;
        kept += repeat_of(b, b->trace->nodes[i].scope) < 0;
    }
    b->kept_before[b->trace->num_nodes] = kept;
}

/* Makes the graph's scopes and blocks. A run of a block is no scope: its first one becomes the block, and what is in any
 * run belongs to the scope around the block. */
static oct_status add_scopes(builder *b)
{
    const oct_mode mode = OCT_MODE_EVALUATION;
    oct_graph *graph = b->graph;
    for (size_t i = 0; i < b->trace->num_scopes; i++) {
        const oct_trace_scope *traced = &b->trace->scopes[i];
        const bool is_run = traced->name, is_repeated = repeat_of(b, (int64_t)i) >= 0;
        const int64_t parent = traced->parent >= 0 ? b->scope_of[traced->parent] : -1;
        if (is_run && !is_repeated) {
            oct_graph_block *block = &graph->blocks[graph->num_blocks];
            *block = (oct_graph_block){.module = traced->module,
                                       .begin = b->kept_before[traced->begin],
                                       .end = b->kept_before[traced->end]};
            OCT_TRY(oct_strdup(&block->name, traced->name));
            b->block_of[i] = (int)graph->num_blocks++;
        }
        if (is_run || is_repeated) {
            b->scope_of[i] = parent;
            continue;
        }
        b->scope_of[i] = (int64_t)graph->num_scopes[mode];
        oct_trace_scope *scope = &graph->scopes[mode][graph->num_scopes[mode]++];
        *scope = *traced;
        scope->parent = parent;
        scope->begin = b->kept_before[traced->begin];
        scope->end = b->kept_before[traced->end];
    }
    return OCT_OK;
}

static int64_t alias_or_none(const oct_graph *graph, int64_t value)
{
    return value < 0 ? -1 : graph->values[value].alias;
}

/* Makes a node of a traced call, with the graph's numbers of values and blocks. */
static oct_status keep_node(builder *b, const oct_trace_node *traced)
{
    oct_graph *graph = b->graph;
    int64_t run = traced->scope >= 0 ? b->run_of[traced->scope] : -1;
    oct_graph_node *node = &graph->nodes[graph->num_nodes];
    *node = (oct_graph_node){.called = traced->module,
                             .module = traced->module,
                             .caller = traced->caller,
                             .hook = traced->hook,
                             .args = traced->args,
                             .in = {true, true},
                             .num_inputs = traced->num_inputs,
                             .output = traced->output,
                             .block = run >= 0 ? b->block_of[run] : -1};
    for (int i = 0; i < traced->num_inputs; i++) {
        node->called_input[OCT_MODE_EVALUATION][i] = graph->values[traced->input[i]].alias;
        node->operand[i] = i;
    }
    for (int mode = 0; mode < OCT_MODES; mode++)
        node->given[mode] = alias_or_none(graph, traced->given); /* what its pre hooks get */
    memcpy(node->called_input[OCT_MODE_TRAINING], node->called_input[OCT_MODE_EVALUATION],
           sizeof node->called_input[0]);
    graph->values[traced->output].producer = (int64_t)graph->num_nodes++;
    OCT_TRY(oct_strdup(&node->op, traced->op));
    return oct_strdup(&node->path, traced->path);
}

/* Fails: the runs of a block are different, and `what` says in what. */
static oct_status refuse_different_runs(const oct_trace_scope *run, const char *what)
{
    const oct_path_text path = oct_module_path(run->module);
    return oct_fail(OCT_PREPARE,
                    "%s%sdynamic block '%s' does not do the same each time it runs: %s; make two "
                    "blocks of it",
                    path.text, *path.text ? ": " : "", run->name, what);
}

/* Fails: a node of a later run is not the one of the first run. */
static oct_status refuse_different_node(const oct_trace_scope *run, const oct_trace_node *traced,
                                        const oct_graph_node *first, const char *what)
{
    const char *op = traced->module ? NULL : traced->op;
    char text[2 * sizeof(oct_call_name) + 64];
    snprintf(text, sizeof text, "%s %s (%s in the first run)",
             oct_call_text(op, traced->path, traced->hook).text, what,
             oct_graph_node_text(first).text);
    return refuse_different_runs(run, text);
}

/* Whether a run of a block makes the value. */
static bool is_within(const oct_trace_value *value, const oct_trace_scope *run)
{
    return value->producer >= (int64_t)run->begin && value->producer < (int64_t)run->end;
}

/* Checks a node of a later run against its counterpart in the first one, which is used for both. */
static oct_status merge_node(builder *b, size_t number, int64_t repeat)
{
    oct_graph *graph = b->graph;
    const oct_trace_value *values = b->trace->values;
    const oct_trace_node *traced = &b->trace->nodes[number];
    const oct_trace_scope *run = &b->trace->scopes[repeat];
    const oct_trace_scope *first_run = &b->trace->scopes[b->first_of[repeat]];
    size_t counterpart = b->kept_before[first_run->begin] + (number - run->begin);
    const oct_graph_node *first = &graph->nodes[counterpart];
    if (traced->module != first->called || traced->caller != first->caller ||
        strcmp(traced->op, first->op) != 0 || traced->num_inputs != first->num_inputs)
        return refuse_different_node(run, traced, first, "is called");
    if (!oct_op_args_equal(&traced->args, &first->args))
        return refuse_different_node(run, traced, first, "has other arguments");
    for (int i = 0; i < traced->num_inputs; i++) {
        int64_t value = graph->values[traced->input[i]].alias;
        int64_t expected = first->called_input[OCT_MODE_EVALUATION][i];
        bool inside = is_within(&values[traced->input[i]], run); /* others may differ by run */
        if (inside != is_within(&values[expected], first_run) || (inside && value != expected))
            return refuse_different_node(run, traced, first, "reads another value");
        OCT_TRY(oct_graph_add_carried_use(
            graph,
            (oct_graph_carried_use){.node = (int64_t)counterpart, .value = value, .input = i}));
    }
    graph->values[traced->output].alias = first->output;
    graph->values[traced->output].producer = (int64_t)counterpart;
    return OCT_OK;
}

/* Makes the graph's values and nodes; those of a block's later runs are merged with those of the first. */
static oct_status add_nodes(builder *b)
{
    oct_graph *graph = b->graph;
    graph->num_values = b->trace->num_values;
    for (size_t i = 0; i < graph->num_values; i++) {
        const oct_trace_value *value = &b->trace->values[i];
        graph->values[i] = (oct_graph_value){
            .shape = value->shape, .dtype = value->dtype, .producer = -1, .alias = (int64_t)i};
    }
    for (size_t i = 0; i < b->trace->num_scopes; i++) {
        const oct_trace_scope *run = &b->trace->scopes[i];
        if (!run->name || b->first_of[i] == (int64_t)i) continue;
        const oct_trace_scope *first = &b->trace->scopes[b->first_of[i]];
        const size_t length = run->end - run->begin, first_length = first->end - first->begin;
        char text[96];
        if (length == first_length) continue;
        snprintf(text, sizeof text, "%zu operations, and %zu in the first run", length,
                 first_length);
        return refuse_different_runs(run, text);
    }
    for (size_t i = 0; i < b->trace->num_nodes; i++) {
        int64_t repeat = repeat_of(b, b->trace->nodes[i].scope);
        OCT_TRY(repeat < 0 ? keep_node(b, &b->trace->nodes[i]) : merge_node(b, i, repeat));
    }
    return OCT_OK;
}

/* Sets the graph's inputs, output and scopes, the same for both modes so far; values of a block's later runs become
 * those of the first run. */
static void copy_inputs_and_outputs(builder *b)
{
    oct_graph *graph = b->graph;
    size_t num_scopes = graph->num_scopes[OCT_MODE_EVALUATION];
    memcpy(graph->inputs, b->trace->inputs, sizeof graph->inputs);
    for (size_t i = 0; i < num_scopes; i++) {
        oct_trace_scope *scope = &graph->scopes[OCT_MODE_EVALUATION][i];
        scope->input = alias_or_none(graph, scope->input);
        scope->given = alias_or_none(graph, scope->given);
        scope->output = alias_or_none(graph, scope->output);
    }
    for (int mode = 0; mode < OCT_MODES; mode++) {
        graph->num_inputs[mode] = b->trace->num_inputs;
        graph->output[mode] = graph->values[b->trace->output].alias;
        graph->num_scopes[mode] = num_scopes;
    }
    memcpy(graph->scopes[OCT_MODE_TRAINING], graph->scopes[OCT_MODE_EVALUATION],
           num_scopes * sizeof(oct_trace_scope));
}

oct_status oct_graph_create(oct_graph **graph, const oct_trace *trace, oct_module *root)
{
    *graph = NULL;
    OCT_CHECK(
        !root->type->atomic, OCT_PREPARE,
        "the model is a single %s, and what prepare generates needs a container around it; put "
        "it into one (oct_sequential_create)",
        root->type->name);
    OCT_TRY(oct_alloc(graph, 1, sizeof **graph));
    (*graph)->root = root;
    builder b = {.graph = *graph, .trace = trace};
    oct_status status = OCT_OK;
    const size_t scopes = trace->num_scopes;
    OCT_TRY_OUT(oct_alloc(&b.run_of, scopes, sizeof *b.run_of));
    OCT_TRY_OUT(oct_alloc(&b.first_of, scopes, sizeof *b.first_of));
    OCT_TRY_OUT(oct_alloc(&b.block_of, scopes, sizeof *b.block_of));
    OCT_TRY_OUT(oct_alloc(&b.scope_of, scopes, sizeof *b.scope_of));
    OCT_TRY_OUT(oct_alloc(&b.kept_before, trace->num_nodes + 1, sizeof *b.kept_before));
    for (int mode = 0; mode < OCT_MODES; mode++)
        OCT_TRY_OUT(oct_alloc(&(*graph)->scopes[mode], scopes, sizeof(oct_trace_scope)));
    OCT_TRY_OUT(oct_alloc(&(*graph)->blocks, scopes, sizeof *(*graph)->blocks));
    OCT_TRY_OUT(oct_alloc(&(*graph)->nodes, trace->num_nodes, sizeof *(*graph)->nodes));
    OCT_TRY_OUT(oct_alloc(&(*graph)->values, trace->num_values, sizeof *(*graph)->values));
    find_runs(&b);
    OCT_TRY_OUT(add_scopes(&b));
    OCT_TRY_OUT(add_nodes(&b));
    copy_inputs_and_outputs(&b);
out:
    OCT_FREE_ALL(&b.run_of, &b.first_of, &b.block_of, &b.scope_of, &b.kept_before);
    if (status != OCT_OK) oct_graph_destroy(graph);
    return status;
}

/* The forwards of both modes. */

/* Whether node x of one recorded forward is the call that node y of another is. Inputs that a dynamic block made are
 * not compared, because the block may have run another number of times. */
static bool same_call(const oct_graph *a, const oct_graph_node *x, const oct_graph *b,
                      const oct_graph_node *y)
{
    if (x->called != y->called || strcmp(x->op, y->op) != 0 || strcmp(x->path, y->path) != 0 ||
        x->num_inputs != y->num_inputs || !oct_op_args_equal(&x->args, &y->args))
        return false;
    for (int i = 0; i < x->num_inputs; i++) {
        int64_t from_a = a->values[x->called_input[OCT_MODE_EVALUATION][i]].producer;
        int64_t from_b = b->values[y->called_input[OCT_MODE_EVALUATION][i]].producer;
        bool in_block = (from_a >= 0 && a->nodes[from_a].block >= 0) ||
                        (from_b >= 0 && b->nodes[from_b].block >= 0);
        if (in_block) continue;
        if ((from_a < 0) != (from_b < 0)) return false;
        if (from_a >= 0 && strcmp(a->nodes[from_a].path, b->nodes[from_b].path) != 0) return false;
    }
    return true;
}

/* The first node from *i on that is in no dynamic block, or NULL; *i is then the node after it. */
static const oct_graph_node *next_static(const oct_graph *g, size_t *i)
{
    while (*i < g->num_nodes && g->nodes[*i].block >= 0)
        ++*i;
    return *i < g->num_nodes ? &g->nodes[(*i)++] : NULL;
}

/* Fails where two forwards make different calls outside of dynamic blocks. */
static oct_status compare_runs(const oct_graph *a, const oct_graph *b)
{
    for (size_t i = 0, j = 0;;) {
        const oct_graph_node *x = next_static(a, &i), *y = next_static(b, &j);
        if (!x && !y) return OCT_OK;
        if (x && y && same_call(a, x, b, y)) continue;
        return oct_fail(OCT_PREPARE,
                        "two forwards of the model differ: one calls %s where the other calls %s; "
                        "put what changes into a dynamic block (oct_dynamic_block_begin and _end) "
                        "and use jit or jit_strip",
                        x ? oct_graph_node_text(x).text : "nothing more",
                        y ? oct_graph_node_text(y).text : "nothing more");
    }
}

/* Makes the graph of one forward in this mode. */
static oct_status trace_once(oct_graph **graph, oct_module *root, const oct_example *example,
                             oct_mode mode)
{
    OCT_OWNED(oct_trace_free) oct_trace trace = {0};
    *graph = NULL;
    OCT_TRY(mode == OCT_MODE_TRAINING ? oct_trace_training(&trace, root, example)
                                      : oct_trace_run(&trace, root, example));
    return oct_graph_create(graph, &trace, root);
}

/* Makes the graph of the longer of two runs: one may have left a dynamic block out. In eager one run is enough, since its
 * forward goes on as it is. */
static oct_status trace_twice(oct_graph **graph, oct_module *root, const oct_example *example,
                              oct_prepare_method method, oct_mode mode)
{
    oct_graph *other = NULL;
    oct_status status = OCT_OK;
    OCT_TRY(trace_once(graph, root, example, mode));
    if (method == OCT_METHOD_EAGER) return OCT_OK;
    OCT_TRY_OUT(trace_once(&other, root, example, mode));
    OCT_TRY_OUT(compare_runs(*graph, other));
    if (other->num_nodes > (*graph)->num_nodes) {
        oct_graph *shorter = *graph;
        *graph = other;
        other = shorter;
    }
out:
    oct_graph_destroy(&other);
    if (status != OCT_OK) oct_graph_destroy(graph);
    return status;
}

oct_status oct_graph_record(oct_graph **graph, oct_module *root, const oct_example *example,
                            oct_prepare_method method)
{
    oct_graph *training = NULL;
    OCT_TRY(trace_twice(graph, root, example, method, OCT_MODE_EVALUATION));
    oct_status status = trace_twice(&training, root, example, method, OCT_MODE_TRAINING);
    status = status == OCT_OK ? oct_graph_merge_modes(*graph, &training)
                              : oct_fail_prefix("in training mode");
    if (status != OCT_OK)
        oct_graph_destroy(graph);
    else
        (*graph)->method = method;
    return status;
}
