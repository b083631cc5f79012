/* What the model calls: its forward runs on the example twice in each mode, so that one that
 * changes from call to call is found here and not in training. */
#include "quant/prepare/prepare_plan.h"

#include <string.h>

/* Whether two runs make the same call at these nodes. Values that a dynamic block made are not
 * compared, because the block may have run another number of times. */
static bool same_call(const oct_graph *a, const oct_graph_node *x, const oct_graph *b,
                      const oct_graph_node *y)
{
    if (x->called != y->called || strcmp(x->op, y->op) != 0 || strcmp(x->path, y->path) != 0 ||
        x->num_inputs != y->num_inputs || !oct_op_args_equal(&x->args, &y->args))
        return false;
    for (int i = 0; i < x->num_inputs; i++) {
        int64_t p = a->values[x->called_input[OCT_MODE_EVALUATION][i]].producer;
        int64_t q = b->values[y->called_input[OCT_MODE_EVALUATION][i]].producer;
        bool in_block = (p >= 0 && a->nodes[p].block >= 0) || (q >= 0 && b->nodes[q].block >= 0);
        if (!in_block && (p < 0) != (q < 0)) return false;
        if (!in_block && p >= 0 && strcmp(a->nodes[p].path, b->nodes[q].path) != 0) return false;
    }
    return true;
}

static const oct_graph_node *next_static(const oct_graph *g, size_t *i)
{
    while (*i < g->num_nodes && g->nodes[*i].block >= 0)
        ++*i;
    return *i < g->num_nodes ? &g->nodes[(*i)++] : NULL;
}

static oct_status compare_runs(const oct_graph *a, const oct_graph *b)
{
    char one[OCT_CALL_BYTES], two[OCT_CALL_BYTES];
    for (size_t i = 0, j = 0;;) {
        const oct_graph_node *x = next_static(a, &i), *y = next_static(b, &j);
        if (!x && !y) return OCT_OK;
        if (x && y && same_call(a, x, b, y)) continue;
        return oct_fail(OCT_PREPARE,
                        "two forwards of the model differ: one calls %s where the other calls %s; "
                        "put what changes into a dynamic block (oct_dynamic_block_begin and _end) "
                        "and use jit or jit_strip",
                        x ? oct_graph_node_text(x, one) : "nothing more",
                        y ? oct_graph_node_text(y, two) : "nothing more");
    }
}

static oct_status trace_once(oct_module *root, const oct_example *example, oct_mode mode,
                             oct_graph **graph)
{
    oct_trace trace = {0};
    *graph = NULL;
    OCT_TRY(mode == OCT_MODE_TRAINING ? oct_trace_training(&trace, root, example)
                                      : oct_trace_run(&trace, root, example));
    oct_status status = oct_graph_create(graph, &trace, root);
    oct_trace_free(&trace);
    return status;
}

/* Makes the graph of the longer of two runs: one may have left a dynamic block out. */
static oct_status trace_twice(const oct_prepare_plan *plan, const oct_example *example,
                              oct_mode mode, oct_graph **graph)
{
    oct_graph *other = NULL;
    oct_status status = OCT_OK;
    OCT_TRY(trace_once(*plan->root, example, mode, graph));
    if (plan->options->method == OCT_METHOD_EAGER) return OCT_OK; /* its forward just runs */
    OCT_TRY_OUT(trace_once(*plan->root, example, mode, &other));
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

oct_status oct_prepare_record(oct_prepare_plan *plan, const oct_example *example)
{
    oct_graph *training = NULL;
    OCT_TRY(trace_twice(plan, example, OCT_MODE_EVALUATION, &plan->graph));
    if (trace_twice(plan, example, OCT_MODE_TRAINING, &training) != OCT_OK)
        return oct_fail_prefix("in training mode");
    return oct_graph_merge_modes(plan->graph, &training);
}
