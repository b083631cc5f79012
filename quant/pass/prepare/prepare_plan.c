/* What each call site of the model is: the first step of prepare. The model runs twice on the example,
 * so that a forward that changes from call to call is found here and not in training. */
#include "quant/pass/prepare/prepare_plan.h"

#include "core/base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Whether two runs make the same call at these nodes. Values that a dynamic block made are not
 * compared: the block may have run another number of times. */
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

static const char *call_text(const oct_graph_node *node, char text[320])
{
    if (!node)
        snprintf(text, 320, "nothing more");
    else if (node->called)
        snprintf(text, 320, "%s (%s)", node->path, node->op);
    else
        snprintf(text, 320, "the op '%s'%s%s", node->op, *node->path ? " in " : "", node->path);
    return text;
}

static oct_status compare_runs(const oct_graph *a, const oct_graph *b)
{
    char one[320], two[320];
    for (size_t i = 0, j = 0;;) {
        const oct_graph_node *x = next_static(a, &i), *y = next_static(b, &j);
        if (!x && !y) return OCT_OK;
        if (x && y && same_call(a, x, b, y)) continue;
        return oct_fail(OCT_PREPARE,
                        "two forwards of the model differ: one calls %s where the other calls %s; "
                        "put what changes into a dynamic block (oct_dynamic_block_begin and _end) "
                        "and use jit or jit_strip",
                        call_text(x, one), call_text(y, two));
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

/* The graph of the richer of two runs: a dynamic block may have been left out in one. */
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
        oct_graph *poorer = *graph;
        *graph = other;
        other = poorer;
    }
out:
    oct_graph_destroy(&other);
    if (status != OCT_OK) oct_graph_destroy(graph);
    return status;
}

static oct_status trace_modes(oct_prepare_plan *plan, const oct_example *example)
{
    oct_graph *training = NULL;
    OCT_TRY(trace_twice(plan, example, OCT_MODE_EVALUATION, &plan->graph));
    if (trace_twice(plan, example, OCT_MODE_TRAINING, &training) != OCT_OK)
        return oct_fail_prefix("in training mode");
    return oct_graph_merge_modes(plan->graph, &training);
}

static oct_role role_of(const oct_graph_node *node, const oct_prepare_node *p)
{
    const oct_module_type *called = node->called ? node->called->type : NULL;
    if (called == &oct_quant_stub_type) return OCT_ROLE_QUANT_STUB;
    if (called == &oct_dequant_stub_type) return OCT_ROLE_DEQUANT_STUB;
    if (called && oct_is_quantized(node->called)) return OCT_ROLE_FUSED;
    oct_member member = oct_member_of(p->type);
    if (oct_is_layer(member)) return OCT_ROLE_LAYER;
    if (member == OCT_MEMBER_BN) return OCT_ROLE_BATCH_NORM;
    return p->rule ? OCT_ROLE_RULE : OCT_ROLE_FLOAT;
}

/* How many call sites before this one take a name from the same row of generated names. */
static int number_of(const oct_prepare_plan *plan, size_t i, const char *op)
{
    int number = 0;
    for (size_t k = 0; k < i; k++) {
        const oct_prepare_node *p = &plan->nodes[k];
        const oct_graph_node *node = &plan->graph->nodes[k];
        if (p->number >= 0 && p->parent == plan->nodes[i].parent && strcmp(node->op, op) == 0)
            number++;
    }
    return number;
}

/* The module of a call site, or the one that could be made for it. */
static oct_status describe_node(oct_prepare_plan *plan, size_t i)
{
    const oct_graph_node *node = &plan->graph->nodes[i];
    oct_prepare_node *p = &plan->nodes[i];
    *p = (oct_prepare_node){.number = -1, .place = (int64_t)i, .member = {(int64_t)i}};
    p->num_members = 1;
    p->type = node->called ? node->called->type : oct_module_type_find(node->op);
    p->rule = p->type ? oct_quant_rule_find(p->type) : NULL;
    p->role = role_of(node, p);
    p->parent = node->called ? node->called->parent : node->caller;
    if (node->called && oct_prepare_is_first_call(plan, (int64_t)i))
        return oct_strdup(&p->path, node->path);
    p->number = number_of(plan, i, node->op);
    char parent[256];
    oct_module_path(p->parent, parent);
    return oct_format(&p->path, "%s%s_generated_%s_%d", parent, *parent ? "." : "", node->op,
                      p->number);
}

/* Behind a QuantStub and in front of a DeQuantStub, for jit_strip; `before` also tells eager where a
 * QuantStub is missing. */
static void find_region(oct_prepare_plan *plan, oct_mode mode)
{
    const oct_graph *g = plan->graph;
    oct_prepare_value *values = plan->values;
    bool stub = false, unstub = false;
    for (size_t i = 0; i < g->num_nodes; i++) {
        stub |= g->nodes[i].in[mode] && plan->nodes[i].role == OCT_ROLE_QUANT_STUB;
        unstub |= g->nodes[i].in[mode] && plan->nodes[i].role == OCT_ROLE_DEQUANT_STUB;
    }
    for (int i = 0; i < g->num_inputs[mode]; i++)
        values[g->inputs[i]].after[mode] = !stub;
    for (size_t i = 0; i < g->num_nodes; i++) {
        const oct_graph_node *node = &g->nodes[i];
        bool after = plan->nodes[i].role == OCT_ROLE_QUANT_STUB;
        for (int k = 0; k < node->num_inputs; k++)
            after |= values[node->called_input[mode][k]].after[mode];
        values[node->output].after[mode] = after && plan->nodes[i].role != OCT_ROLE_DEQUANT_STUB;
    }
    if (!unstub && plan->options->method != OCT_METHOD_EAGER)
        values[g->output[mode]].before[mode] = true;
    for (size_t i = g->num_nodes; i-- > 0;) {
        const oct_graph_node *node = &g->nodes[i];
        bool before = values[node->output].before[mode];
        if (plan->nodes[i].role == OCT_ROLE_DEQUANT_STUB) before = true;
        if (plan->nodes[i].role == OCT_ROLE_QUANT_STUB) before = false;
        for (int k = 0; node->in[mode] && k < node->num_inputs; k++)
            values[node->called_input[mode][k]].before[mode] |= before;
    }
}

static bool mark_inputs(oct_prepare_plan *plan, int64_t node)
{
    const oct_graph *g = plan->graph;
    bool more = false;
    for (int mode = 0; mode < OCT_MODES; mode++)
        for (int k = 0; k < g->nodes[node].num_inputs; k++) {
            bool *live = &plan->values[g->nodes[node].called_input[mode][k]].live;
            more |= !*live;
            *live = true;
        }
    for (size_t r = 0; r < g->num_reads; r++) {
        bool *live = &plan->values[g->reads[r].value].live;
        if (g->reads[r].node != node) continue;
        more |= !*live;
        *live = true;
    }
    return more;
}

/* What a block hands to its next run is read by nodes before it, so one pass need not be enough. */
static void find_live(oct_prepare_plan *plan)
{
    const oct_graph *g = plan->graph;
    bool more = true;
    for (int mode = 0; mode < OCT_MODES; mode++)
        plan->values[g->output[mode]].live = true;
    while (more) {
        more = false;
        for (int64_t i = (int64_t)g->num_nodes - 1; i >= 0; i--)
            if (plan->values[g->nodes[i].output].live) more |= mark_inputs(plan, i);
    }
}

/* What is not deployed is not quantized, unless it is a further call of what is. */
static bool is_for_training(const oct_prepare_plan *plan, int64_t i)
{
    return !plan->graph->nodes[i].in[OCT_MODE_EVALUATION] &&
           plan->nodes[i].role != OCT_ROLE_QUANT_STUB &&
           !oct_prepare_called_in(plan, i, OCT_MODE_EVALUATION);
}

/* What training never calls sees no range; a module that it calls elsewhere has that call's. */
static bool has_no_range(const oct_prepare_plan *plan, int64_t i)
{
    const oct_graph_node *node = &plan->graph->nodes[i];
    return !node->in[OCT_MODE_TRAINING] && oct_prepare_scale(&plan->nodes[i]) == OCT_SCALE_OWN &&
           !(node->called && oct_prepare_called_in(plan, i, OCT_MODE_TRAINING));
}

/* Whether a node may be quantized, and if not, why. */
static oct_status judge_node(oct_prepare_plan *plan, size_t i)
{
    oct_prepare_node *p = &plan->nodes[i];
    const oct_graph_node *node = &plan->graph->nodes[i];
    const char *op = oct_prepare_type(plan, (int64_t)i);
    const oct_prepare_options *o = plan->options;
    const oct_qconfig_site where = {.path = p->path, .type = op};
    char decider[OCT_SETTER_BYTES];
    p->qconfig = oct_qconfig_of(o->setters, o->num_setters, &where);
    p->decider = oct_qconfig_decider(o->setters, o->num_setters, &where);
    oct_mode mode = oct_graph_mode_of(node);
    if (p->role == OCT_ROLE_DEQUANT_STUB) return OCT_OK;
    if (is_for_training(plan, (int64_t)i))
        return oct_prepare_note(p, "stays float: only training calls it, so it is not deployed");
    if (node->hook && !plan->values[node->output].live)
        return oct_prepare_note(p, "stays float: nothing of the model reads what this hook makes");
    if (p->role == OCT_ROLE_FLOAT)
        return oct_prepare_note(p, "stays float: %s has no quantized form", op);
    if (!plan->graph->nodes[i].called && !p->type->create)
        return oct_prepare_note(p, "stays float: %s cannot be made a module", op);
    if (p->qconfig.none)
        return oct_prepare_note(p, "stays float: its qconfig is none (%s)",
                                p->decider ? oct_setter_text(p->decider, decider)
                                           : "no setter gives it one");
    if (has_no_range(plan, (int64_t)i))
        return oct_prepare_note(p, "stays float: only evaluation calls it, and nothing is observed "
                                   "there, so it can have no range");
    if (p->role == OCT_ROLE_QUANT_STUB) {
        p->eligible = true;
        return OCT_OK;
    }
    if (!oct_target_runs(plan->target, op))
        return oct_prepare_note(p, "stays float: target %s cannot run %s", plan->target->name, op);
    if (plan->options->method == OCT_METHOD_JIT_STRIP &&
        (!plan->values[node->output].after[mode] || !plan->values[node->output].before[mode]))
        return oct_prepare_note(p, "stays float: it does not stand between a QuantStub and a "
                                   "DeQuantStub (jit_strip)");
    p->eligible = true;
    return OCT_OK;
}

static oct_status note_without_stubs(oct_prepare_plan *plan)
{
    for (size_t i = 0; i < plan->graph->num_nodes; i++)
        if (plan->nodes[i].role == OCT_ROLE_QUANT_STUB ||
            plan->nodes[i].role == OCT_ROLE_DEQUANT_STUB)
            return OCT_OK;
    if (plan->options->method != OCT_METHOD_JIT_STRIP || plan->graph->num_nodes == 0) return OCT_OK;
    return oct_prepare_note(&plan->nodes[0],
                            "the model has no QuantStub and no DeQuantStub: jit_strip did as jit");
}

oct_status oct_prepare_plan_create(oct_prepare_plan *plan, const oct_example *example)
{
    OCT_TRY(trace_modes(plan, example));
    oct_graph *g = plan->graph;
    g->root = *plan->root;
    g->method = plan->options->method;
    g->target = plan->target;
    OCT_CHECK(g->method != OCT_METHOD_SYMBOLIC || g->num_blocks == 0, OCT_PREPARE,
              "symbolic keeps no control flow, and the forward has the dynamic block '%s'; prepare "
              "with jit or jit_strip",
              g->blocks[0].name);
    OCT_TRY(oct_alloc(&plan->nodes, g->num_nodes, sizeof *plan->nodes));
    OCT_TRY(oct_alloc(&plan->values, g->num_values, sizeof *plan->values));
    for (size_t v = 0; v < g->num_values; v++)
        plan->values[v].group = OCT_NO_INDEX;
    for (size_t i = 0; i < g->num_nodes; i++)
        OCT_TRY(describe_node(plan, i));
    find_region(plan, OCT_MODE_EVALUATION);
    find_region(plan, OCT_MODE_TRAINING);
    find_live(plan);
    for (size_t i = 0; i < g->num_nodes; i++)
        OCT_TRY(judge_node(plan, i));
    return note_without_stubs(plan);
}

void oct_prepare_plan_free(oct_prepare_plan *plan)
{
    bool attached = plan->graph && oct_graph_of(*plan->root) == plan->graph;
    for (size_t i = 0; plan->nodes && i < plan->graph->num_nodes; i++) {
        oct_free(&plan->nodes[i].path);
        oct_free(&plan->nodes[i].why);
    }
    oct_free(&plan->nodes);
    oct_free(&plan->values);
    if (!attached) oct_graph_destroy(&plan->graph);
}

static bool reads(const oct_graph *g, int64_t node, int64_t value, oct_mode mode)
{
    const oct_graph_node *n = &g->nodes[node];
    for (int k = 0; n->in[mode] && k < n->num_inputs; k++)
        if (n->called_input[mode][k] == value) return true;
    return false;
}

int64_t oct_prepare_input(const oct_prepare_plan *plan, int64_t place, int k)
{
    const oct_graph_node *node = &plan->graph->nodes[place];
    return oct_graph_input(plan->graph, node, k, oct_graph_mode_of(node));
}

/* From one run of a block to the next, whose first run gets another value in its place. */
static bool is_carried(const oct_graph *g, int64_t value)
{
    for (size_t r = 0; r < g->num_reads; r++)
        if (g->reads[r].value == value) return true;
    return false;
}

int64_t oct_prepare_only_user_in(const oct_prepare_plan *plan, int64_t value, oct_mode mode)
{
    const oct_graph *g = plan->graph;
    int64_t reader = OCT_NO_INDEX;
    if (value == g->output[mode] || is_carried(g, value)) return OCT_NO_INDEX;
    for (size_t i = 0; i < g->num_nodes; i++) {
        if (!reads(g, (int64_t)i, value, mode)) continue;
        if (reader >= 0) return OCT_NO_INDEX;
        reader = (int64_t)i;
    }
    return reader;
}

/* The only one in both modes, or in the one that has any. */
int64_t oct_prepare_only_user(const oct_prepare_plan *plan, int64_t value)
{
    const oct_graph *g = plan->graph;
    int64_t reader = OCT_NO_INDEX;
    for (int mode = 0; mode < OCT_MODES; mode++) {
        int64_t one = oct_prepare_only_user_in(plan, value, mode);
        bool any = value == g->output[mode];
        for (size_t i = 0; i < g->num_nodes; i++)
            any |= reads(g, (int64_t)i, value, mode);
        if (any && (one < 0 || (reader >= 0 && reader != one))) return OCT_NO_INDEX;
        if (any) reader = one;
    }
    for (int mode = 0; reader >= 0 && mode < OCT_MODES; mode++)
        if (g->nodes[reader].in[mode] && !reads(g, reader, value, mode)) return OCT_NO_INDEX;
    return reader;
}

bool oct_prepare_called_in(const oct_prepare_plan *plan, int64_t node, oct_mode mode)
{
    const oct_graph_node *n = &plan->graph->nodes[node];
    for (size_t i = 0; i < plan->graph->num_nodes; i++) {
        const oct_graph_node *other = &plan->graph->nodes[i];
        bool same = !other->called && n->caller == other->caller && n->hook == other->hook;
        if (other->in[mode] &&
            (n->called ? n->called == other->called : same && strcmp(n->op, other->op) == 0))
            return true;
    }
    return false;
}

bool oct_prepare_ran_once(const oct_prepare_plan *plan, int block)
{
    const oct_graph *g = plan->graph;
    for (size_t r = 0; r < g->num_reads; r++)
        if (g->nodes[g->reads[r].node].block == block) return false;
    return true;
}

int64_t oct_prepare_last_member(const oct_prepare_plan *plan, int64_t place)
{
    const oct_prepare_node *p = &plan->nodes[place];
    return p->member[p->num_members - 1];
}

int64_t oct_prepare_member(const oct_prepare_plan *plan, int64_t place, oct_member kind)
{
    const oct_prepare_node *p = &plan->nodes[place];
    for (int i = 0; i < p->num_members; i++)
        if (oct_member_of(plan->nodes[p->member[i]].type) == kind) return p->member[i];
    return OCT_NO_INDEX;
}

int64_t oct_prepare_layer(const oct_prepare_plan *plan, int64_t place)
{
    int64_t first = plan->nodes[place].member[0];
    return plan->nodes[first].role == OCT_ROLE_LAYER ? first : OCT_NO_INDEX;
}

bool oct_prepare_runs_here(const oct_prepare_plan *plan, int64_t node)
{
    return plan->nodes[node].place == node;
}

bool oct_prepare_is_first_call(const oct_prepare_plan *plan, int64_t node)
{
    const oct_graph_node *nodes = plan->graph->nodes;
    for (int64_t i = 0; i < node; i++)
        if (nodes[i].called == nodes[node].called) return false;
    return true;
}

int64_t oct_prepare_num_calls(const oct_prepare_plan *plan, const oct_module *module)
{
    int64_t calls = 0;
    for (size_t i = 0; i < plan->graph->num_nodes; i++)
        calls += plan->graph->nodes[i].called == module;
    return calls;
}

const char *oct_prepare_type(const oct_prepare_plan *plan, int64_t node)
{
    const oct_module *called = plan->graph->nodes[node].called;
    if (plan->nodes[node].role != OCT_ROLE_FUSED) return plan->graph->nodes[node].op;
    if (called->type == &oct_qat_conv_type)
        return ((const oct_qat_conv *)called)->layer->type->name;
    return called->type == &oct_qat_batch_norm_type ? oct_batch_norm_type.name : oct_add_type.name;
}

/* A batch norm has nothing that a second module could borrow. */
bool oct_prepare_one_module(const oct_prepare_plan *plan, int64_t place)
{
    const oct_module_type *type = plan->nodes[plan->nodes[place].member[0]].type;
    if (plan->options->method == OCT_METHOD_EAGER) return true;
    return type == &oct_batch_norm_type || type == &oct_qat_batch_norm_type;
}

const char *oct_prepare_node_text(const oct_prepare_plan *plan, int64_t i, char text[320])
{
    const oct_graph_node *node = &plan->graph->nodes[i];
    if (node->called)
        snprintf(text, 320, "%s", node->path);
    else
        snprintf(text, 320, "the op '%s'%s%s%s", node->op, *node->path ? " in " : "",
                 node->hook ? "a hook of " : "", node->path);
    return text;
}

const char *oct_prepare_producer_text(const oct_prepare_plan *plan, int64_t value, char text[320])
{
    const oct_graph *g = plan->graph;
    int64_t producer = g->values[value].producer;
    if (producer >= 0) return oct_prepare_node_text(plan, producer, text);
    for (int i = 0; i < g->num_inputs[OCT_MODE_TRAINING]; i++)
        if (g->inputs[i] == value) snprintf(text, 320, "input_%d", i);
    return text;
}

oct_status oct_prepare_note(oct_prepare_node *node, const char *format, ...)
{
    if (node->why) return OCT_OK;
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return oct_strdup(&node->why, text);
}

oct_output_scale oct_prepare_scale(const oct_prepare_node *node)
{
    return node->role == OCT_ROLE_RULE && !node->fusion ? node->rule->scale : OCT_SCALE_OWN;
}

bool oct_prepare_follows_input(const oct_prepare_node *node)
{
    oct_output_scale scale = oct_prepare_scale(node);
    return scale != OCT_SCALE_OWN && scale != OCT_SCALE_FIXED;
}
