/* Prepare decides what each call site is (here), what runs together (fuse.c), what is quantized and where codes are made
 * (placement.c, eager.c), which values share a quantizer (group.c) and what speaks against it (check.c); only a plan without
 * problems is carried out (apply.c).
 *
 * What the model calls is recorded first: its forward runs on the example twice in each mode, so that one that changes from
 * call to call is found here and not in training. */
#include "quant/prepare/prepare.h"

#include "core/base/mem.h"
#include "quant/prepare/prepare_plan.h"
#include "quant/prepare/report.h"

#include <stdio.h>
#include <string.h>

static const void *const batch_norm_modes[] = {OCT_BATCH_NORM_LIST(OCT_WORD_ITEM)};
const oct_registry oct_batch_norm_mode_table = OCT_REGISTRY("a mode", batch_norm_modes);

static oct_status check_new(void *user, oct_module *module)
{
    (void)user;
    char path[256];
    bool prepared = module->interceptor || module->type == &oct_fake_quant_type;
    OCT_CHECK(!prepared, OCT_PREPARE,
              "%s is prepared already; prepare starts from the float model, and only once",
              module->parent ? oct_module_path(module, path) : "the model");
    return OCT_OK;
}

static oct_status check_start(oct_module *root, const oct_prepare_options *options)
{
    OCT_CHECK(options->target, OCT_USAGE,
              "prepare needs a target; set options.target (oct_target_find(\"x86\"))");
    OCT_CHECK(root->training, OCT_PREPARE,
              "the model is in eval mode; call oct_module_train(model, true) before prepare");
    OCT_CHECK(options->setters || options->num_setters == 0, OCT_USAGE,
              "options.num_setters is %zu, but options.setters is NULL; give prepare the setters",
              options->num_setters);
    OCT_CHECK(options->num_setters > 0, OCT_USAGE,
              "there is no qconfig setter, so nothing would be quantized; give prepare "
              "oct_setter_default");
    OCT_TRY(oct_setters_check(options->setters, options->num_setters, options->target));
    return oct_module_walk(root, check_new, NULL);
}

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

/* Describes the module of a call site, or the one that could be made for it. */
static oct_status describe_node(oct_prepare_plan *plan, size_t i)
{
    const oct_graph_node *node = &plan->graph->nodes[i];
    oct_prepare_node *p = &plan->nodes[i];
    *p = (oct_prepare_node){.number = -1, .runs_at = (int64_t)i, .member = {(int64_t)i}};
    p->num_members = 1;
    p->type = node->called ? node->called->type : oct_module_type_find(node->op);
    p->rule = p->type ? oct_quant_rule_find(p->type) : NULL;
    p->fixed = p->rule && oct_target_fixes(plan->target, p->type->name);
    p->role = role_of(node, p);
    p->parent = node->called ? node->called->parent : node->caller;
    const bool generates = plan->options->method != OCT_METHOD_EAGER;
    if (node->called && (!generates || oct_prepare_is_first_call(plan, (int64_t)i)))
        return oct_strdup(&p->path, node->path);
    p->number = oct_prepare_next_number(plan, i, i);
    char parent[256];
    oct_module_path(p->parent, parent);
    return oct_format(&p->path, "%s%s_generated_%s_%d", parent, *parent ? "." : "", node->op,
                      p->number);
}

/* Finds what is after a QuantStub and in front of a DeQuantStub, for jit_strip; `before` also
 * shows eager where a QuantStub is missing. */
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
    for (size_t r = 0; r < g->num_carried; r++) {
        bool *live = &plan->values[g->carried[r].value].live;
        if (g->carried[r].node != node) continue;
        more |= !*live;
        *live = true;
    }
    return more;
}

/* What a block passes to its next run is read by nodes before it, so one pass need not be
 * enough. */
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

/* Whether a node is not deployed and so not quantized: only training calls it, and it is no
 * further call of what evaluation calls. */
static bool is_for_training(const oct_prepare_plan *plan, int64_t i)
{
    return !plan->graph->nodes[i].in[OCT_MODE_EVALUATION] &&
           plan->nodes[i].role != OCT_ROLE_QUANT_STUB &&
           !oct_prepare_called_in(plan, i, OCT_MODE_EVALUATION);
}

/* Whether a node never sees a range, because training does not call it; a module that training
 * calls elsewhere has that call's. */
static bool has_no_range(const oct_prepare_plan *plan, int64_t i)
{
    const oct_graph_node *node = &plan->graph->nodes[i];
    return !node->in[OCT_MODE_TRAINING] && oct_prepare_scale(&plan->nodes[i]) == OCT_SCALE_OWN &&
           !(node->called && oct_prepare_called_in(plan, i, OCT_MODE_TRAINING));
}

/* Decides whether a node may be quantized, and if not, notes why. */
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
    if (!plan->graph->nodes[i].called && !p->type->args)
        return oct_prepare_note(p, "stays float: no module can be made of %s", op);
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
    const char *why = plan->target->refuses ? plan->target->refuses(op, &node->args) : NULL;
    if (why)
        return oct_prepare_note(p, "stays float: target %s cannot run %s like this: %s",
                                plan->target->name, op, why);
    if (plan->options->method == OCT_METHOD_JIT_STRIP &&
        (!plan->values[node->output].after[mode] || !plan->values[node->output].before[mode]))
        return oct_prepare_note(p, "stays float: it does not stand between a QuantStub and a "
                                   "DeQuantStub (jit_strip)");
    p->eligible = true;
    return OCT_OK;
}

static oct_status create_plan(oct_prepare_plan *plan, const oct_example *example)
{
    oct_graph *training = NULL;
    OCT_TRY(trace_twice(plan, example, OCT_MODE_EVALUATION, &plan->graph));
    if (trace_twice(plan, example, OCT_MODE_TRAINING, &training) != OCT_OK)
        return oct_fail_prefix("in training mode");
    OCT_TRY(oct_graph_merge_modes(plan->graph, &training));
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
    if (g->method != OCT_METHOD_JIT_STRIP || g->num_nodes == 0 ||
        oct_prepare_has_role(plan, OCT_ROLE_QUANT_STUB) ||
        oct_prepare_has_role(plan, OCT_ROLE_DEQUANT_STUB))
        return OCT_OK;
    return oct_prepare_note(&plan->nodes[0],
                            "the model has no QuantStub and no DeQuantStub: jit_strip did as jit");
}

static oct_status make_plan(oct_prepare_plan *plan, const oct_example *example)
{
    OCT_TRY(create_plan(plan, example));
    oct_fail_clear();
    OCT_TRY(oct_prepare_fuse(plan));
    OCT_TRY(plan->options->method == OCT_METHOD_EAGER ? oct_prepare_placement_eager(plan)
                                                      : oct_prepare_placement(plan));
    if (plan->problems == 0) OCT_TRY(oct_prepare_scale_groups(plan)); /* of values with a place */
    OCT_TRY(oct_prepare_check(plan));
    return plan->problems > 0 ? OCT_PREPARE : OCT_OK;
}

static oct_status find_hooks(void *user, oct_module *module)
{
    *(bool *)user |= module->pre_hooks || module->hooks;
    return OCT_OK;
}

/* Runs a model with hooks once with codes, since hooks were traced on floats: one that fails on codes fails here and not
 * in the first step. */
static oct_status try_hooks(oct_module *root, const oct_example *example)
{
    bool hooks = false;
    oct_quantizers all = {0};
    oct_trace trace = {0};
    char text[1024];
    OCT_TRY(oct_module_walk(root, find_hooks, &hooks));
    if (!hooks) return OCT_OK;
    OCT_TRY(oct_quantizers_collect(&all, root));
    oct_quantizers_set_state(&all, OCT_QUANT_FROZEN);
    oct_status status = oct_trace_run(&trace, root, example);
    oct_trace_free(&trace);
    if (status == OCT_OK && oct_graph_branches(oct_graph_of(root)))
        status = oct_trace_training(&trace, root, example);
    oct_trace_free(&trace);
    oct_quantizers_set_state(&all, OCT_QUANT_OFF);
    oct_quantizers_free(&all);
    if (status != OCT_USAGE && status != OCT_DEFECT) return status;
    snprintf(text, sizeof text, "%s", oct_fail_text(0));
    return oct_fail(OCT_PREPARE, "%s (a forward with quantized values, as hooks see them)", text);
}

oct_status oct_prepare(oct_module **root, const oct_example *example,
                       const oct_prepare_options *options, oct_text *report)
{
    oct_prepare_plan plan = {.root = root, .options = options, .target = options->target};
    OCT_TRY(check_start(*root, options));
    oct_status status = make_plan(&plan, example);
    if (status == OCT_OK) status = oct_prepare_apply(&plan);
    for (size_t i = 0; plan.nodes && i < plan.graph->num_nodes; i++) {
        oct_free(&plan.nodes[i].path);
        oct_free(&plan.nodes[i].why);
    }
    oct_free(&plan.nodes);
    oct_free(&plan.values);
    if (!plan.graph || oct_graph_of(*root) != plan.graph) oct_graph_destroy(&plan.graph);
    if (status == OCT_OK) status = try_hooks(*root, example);
    if (status == OCT_OK && report) status = oct_report_write(report, *root);
    return status;
}
