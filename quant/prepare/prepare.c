/* Prepare records what the model calls (graph/graph_build.c) and decides what each call site is and what runs
 * together (here), what is quantized and where codes are made (placement.c, eager.c), which values share a quantizer
 * (group.c) and what speaks against it (check.c); only a plan without problems is carried out (apply.c). */
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
    bool prepared = module->interceptor || module->type == &oct_fake_quant_type;
    OCT_CHECK(!prepared, OCT_PREPARE,
              "%s is prepared already; prepare starts from the float model, and only once",
              module->parent ? oct_module_path(module).text : "the model");
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

/* What prepare can make of a call site: decided by the called module, or the type of module that its op could be. */
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
    *p = (oct_prepare_node){.generated_number = -1, .runs_at = (int64_t)i, .member = {(int64_t)i}};
    p->num_members = 1;
    p->type = node->called ? node->called->type : oct_module_type_find(node->op);
    p->rule = p->type ? oct_quant_rule_find(p->type) : NULL;
    p->fixed_scale = p->rule && oct_list_has(plan->target->fixed_functions, p->type->name);
    p->role = role_of(node, p);
    p->parent = node->called ? node->called->parent : node->caller;
    const bool generates = plan->options->method != OCT_METHOD_EAGER;
    if (node->called && (!generates || oct_prepare_is_first_call(plan, (int64_t)i)))
        return oct_strdup(&p->path, node->path);
    p->generated_number = oct_prepare_next_number(plan, i, i);
    const oct_path_text parent = oct_module_path(p->parent);
    return oct_format(&p->path, "%s%s_generated_%s_%d", parent.text, *parent.text ? "." : "",
                      node->op, p->generated_number);
}

/* Finds what comes from a QuantStub and what goes to a DeQuantStub, for jit_strip; the latter also
 * shows eager where a QuantStub is missing. */
static void find_region(oct_prepare_plan *plan, oct_mode mode)
{
    const oct_graph *g = plan->graph;
    oct_prepare_value *values = plan->values;
    bool has_quant_stub = false, has_dequant_stub = false;
    for (size_t i = 0; i < g->num_nodes; i++) {
        has_quant_stub |= g->nodes[i].in[mode] && plan->nodes[i].role == OCT_ROLE_QUANT_STUB;
        has_dequant_stub |= g->nodes[i].in[mode] && plan->nodes[i].role == OCT_ROLE_DEQUANT_STUB;
    }
    for (int i = 0; i < g->num_inputs[mode]; i++)
        values[g->inputs[i]].from_quant_stub[mode] = !has_quant_stub;
    for (size_t i = 0; i < g->num_nodes; i++) {
        const oct_graph_node *node = &g->nodes[i];
        bool from = plan->nodes[i].role == OCT_ROLE_QUANT_STUB;
        for (int k = 0; k < node->num_inputs; k++)
            from |= values[node->called_input[mode][k]].from_quant_stub[mode];
        values[node->output].from_quant_stub[mode] =
            from && plan->nodes[i].role != OCT_ROLE_DEQUANT_STUB;
    }
    if (!has_dequant_stub && plan->options->method != OCT_METHOD_EAGER)
        values[g->output[mode]].to_dequant_stub[mode] = true;
    for (size_t i = g->num_nodes; i-- > 0;) {
        const oct_graph_node *node = &g->nodes[i];
        bool to = values[node->output].to_dequant_stub[mode];
        if (plan->nodes[i].role == OCT_ROLE_DEQUANT_STUB) to = true;
        if (plan->nodes[i].role == OCT_ROLE_QUANT_STUB) to = false;
        for (int k = 0; node->in[mode] && k < node->num_inputs; k++)
            values[node->called_input[mode][k]].to_dequant_stub[mode] |= to;
    }
}

/* Marks what a node reads as live: its inputs in either mode, and what later runs of its block pass it in their place.
 * Returns whether some of it was not yet. */
static bool mark_inputs_live(oct_prepare_plan *plan, int64_t node)
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
        if (g->carried[r].node != node) continue;
        bool *live = &plan->values[g->carried[r].value].live;
        more |= !*live;
        *live = true;
    }
    return more;
}

/* Finds the values that an output of the model depends on. What a block passes to its next run is read by nodes before
 * it, so one pass need not be enough. */
static void find_live(oct_prepare_plan *plan)
{
    const oct_graph *g = plan->graph;
    bool more = true;
    for (int mode = 0; mode < OCT_MODES; mode++)
        plan->values[g->output[mode]].live = true;
    while (more) {
        more = false;
        for (int64_t i = (int64_t)g->num_nodes - 1; i >= 0; i--)
            if (plan->values[g->nodes[i].output].live) more |= mark_inputs_live(plan, i);
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
    if (!node->called && !p->type->args)
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
    if (oct_list_has(plan->target->no_ops, op))
        return oct_prepare_note(p, "stays float: target %s cannot run %s", plan->target->name, op);
    const char *why = oct_target_refuses(plan->target, op, &node->args);
    if (why)
        return oct_prepare_note(p, "stays float: target %s cannot run %s like this: %s",
                                plan->target->name, op, why);
    if (plan->options->method == OCT_METHOD_JIT_STRIP &&
        (!plan->values[node->output].from_quant_stub[mode] ||
         !plan->values[node->output].to_dequant_stub[mode]))
        return oct_prepare_note(p, "stays float: it is not between a QuantStub and a DeQuantStub "
                                   "(jit_strip)");
    p->eligible = true;
    return OCT_OK;
}

/* Records the model and decides what each call site is, and which of them may be quantized. */
static oct_status create_plan(oct_prepare_plan *plan, const oct_example *example)
{
    OCT_TRY(oct_graph_record(&plan->graph, *plan->root, example, plan->options->method));
    oct_graph *g = plan->graph;
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

/* Which call sites run together as one module: those that were fused by name, which are checked against the calls, and
 * the patterns of fusion_list.def over neighbours in the graph. */

typedef struct match {
    int64_t member[OCT_MAX_MEMBERS];
    int operand; /* of its add: which input the chain is */
} match;

static bool may_fuse_as(const oct_prepare_plan *plan, int64_t node, oct_member kind)
{
    const oct_prepare_node *p = &plan->nodes[node];
    return p->eligible && !plan->graph->nodes[node].hook && p->role != OCT_ROLE_FUSED &&
           !p->fusion && p->runs_at == node && oct_member_of(p->type) == kind;
}

/* Whether two nodes are called together: in one block or outside of all, and in the same modes. */
static bool belong_together(const oct_prepare_plan *plan, int64_t a, int64_t b)
{
    const oct_graph_node *x = &plan->graph->nodes[a], *y = &plan->graph->nodes[b];
    return x->block == y->block && memcmp(x->in, y->in, sizeof x->in) == 0;
}

/* Whether an add adds `value`, which a chain of members makes, and another value of its shape; *operand: its input. */
static bool adds_chain(const oct_prepare_plan *plan, int64_t add, int64_t value, int *operand)
{
    const oct_graph_node *node = &plan->graph->nodes[add];
    if (node->num_inputs != 2) return false;
    const int64_t *in = node->called_input[oct_graph_mode_of(node)];
    *operand = in[1] == value;
    for (int mode = 0; mode < OCT_MODES; mode++)
        if (node->in[mode] && node->called_input[mode][*operand] != value) return false;
    return in[0] != in[1] &&
           oct_shape_equal(&plan->graph->values[in[0]].shape, &plan->graph->values[in[1]].shape);
}

/* Whether a layer may be fused with this batch norm: where the layer is called several times, each
 * call must be followed by that batch norm, since the calls share both. */
static bool is_norm_of_layer(const oct_prepare_plan *plan, int64_t layer, int64_t norm)
{
    const oct_graph *g = plan->graph;
    const oct_module *a = g->nodes[layer].called, *b = g->nodes[norm].called;
    if (!a || !b || oct_prepare_num_calls(plan, a) != oct_prepare_num_calls(plan, b)) return false;
    for (size_t i = 0; i < g->num_nodes; i++) {
        if (g->nodes[i].called != a) continue;
        int64_t next = oct_prepare_only_user(plan, g->nodes[i].output);
        if (next < 0 || g->nodes[next].called != b || !plan->nodes[next].eligible ||
            !belong_together(plan, (int64_t)i, next))
            return false;
    }
    return true;
}

/* Whether a fusion fits the nodes that follow each other from `head` on; finds its members. */
static bool match_fusion(const oct_prepare_plan *plan, const oct_fusion *fusion, int64_t head,
                         match *m)
{
    *m = (match){.member = {head}};
    bool shifts = oct_requantizer_shifts(plan->target->requantizer); /* see keep_lone_norm_float */
    if (!oct_target_fuses(plan->target, fusion->name)) return false;
    if (shifts && fusion->members[0] == OCT_MEMBER_BN) return false;
    if (!may_fuse_as(plan, head, fusion->members[0])) return false;
    for (int k = 1; k < fusion->count; k++) {
        int64_t from = m->member[k - 1], value = plan->graph->nodes[from].output;
        int64_t next = oct_prepare_only_user(plan, value);
        if (next < 0 || !may_fuse_as(plan, next, fusion->members[k]) ||
            !belong_together(plan, from, next))
            return false;
        if (fusion->members[k] == OCT_MEMBER_ADD && !adds_chain(plan, next, value, &m->operand))
            return false;
        if (fusion->members[k] == OCT_MEMBER_BN && !is_norm_of_layer(plan, from, next))
            return false;
        m->member[k] = next;
    }
    return true;
}

/* Whether an add's other operand ends a chain that could take in the add too and begins later: then that one does. */
static bool other_branch_is_later(const oct_prepare_plan *plan, int64_t add, int operand,
                                  int64_t head)
{
    const oct_graph *g = plan->graph;
    const oct_graph_node *node = &g->nodes[add];
    int64_t
        rival = /* the layer that the other chain begins with, perhaps with a batch norm after it */
        g->values[node->called_input[oct_graph_mode_of(node)][1 - operand]].producer;
    if (rival >= 0 && plan->nodes[rival].role == OCT_ROLE_BATCH_NORM) {
        const oct_graph_node *norm = &g->nodes[rival];
        rival = g->values[norm->called_input[oct_graph_mode_of(norm)][0]].producer;
    }
    if (rival <= head || plan->nodes[rival].role != OCT_ROLE_LAYER) return false;
    for (const oct_fusion *fusion = oct_fusions; fusion->name; fusion++) {
        match m;
        if (oct_fusion_has(fusion, OCT_MEMBER_ADD) && match_fusion(plan, fusion, rival, &m) &&
            m.member[oct_fusion_runs_at(fusion)] == add)
            return true;
    }
    return false;
}

/* Fuses what begins at this node, if the fusion fits there. */
static void try_fusion(oct_prepare_plan *plan, const oct_fusion *fusion, int64_t head)
{
    match m;
    if (!match_fusion(plan, fusion, head, &m)) return;
    int64_t at = m.member[oct_fusion_runs_at(fusion)];
    if (at != head && other_branch_is_later(plan, at, m.operand, head)) return;
    oct_prepare_node *p = &plan->nodes[at];
    p->fusion = fusion;
    p->num_members = fusion->count;
    for (int k = 0; k < fusion->count; k++) {
        p->member[k] = m.member[k];
        plan->nodes[m.member[k]].runs_at = at;
    }
    if (at == head) return;
    /* The fused module's first input is the chain, whichever input of the add that is. */
    plan->graph->nodes[at].operand[0] = m.operand;
    plan->graph->nodes[at].operand[1] = 1 - m.operand;
}

/* What was fused by name is right where in every call each member's output goes to the next member and nowhere else:
 * otherwise a relu that is called elsewhere, too, would be gone there. */

static const char *const mode_names[OCT_MODES] = {
    [OCT_MODE_EVALUATION] = "evaluation", [OCT_MODE_TRAINING] = "training"};

/* Checks a call of a member or of the next one: this gets what the first one has made, and nothing else does. */
static bool check_pair_call(oct_prepare_plan *plan, const oct_module *one, const oct_module *two,
                            const oct_graph_node *node, oct_mode mode)
{
    const oct_graph *g = plan->graph;
    const int64_t value = node->called_input[mode][0], producer = g->values[value].producer;
    const int64_t user = oct_prepare_only_user_in(plan, node->output, mode);
    const oct_path_text first = oct_module_path(one);
    const oct_path_text next = oct_module_path(two);
    if (node->called == two && (producer < 0 || g->nodes[producer].called != one)) {
        OCT_PROBLEM(
            plan,
            "%s: was fused after %s, but a call in %s takes its input from %s; fuse by name "
            "only modules that always get the output of the module before them",
            next.text, first.text, mode_names[mode], oct_graph_producer_text(g, value).text);
        return false;
    }
    if (node->called == one && (user < 0 || g->nodes[user].called != two)) {
        OCT_PROBLEM(plan,
                    "%s: was fused with %s after it, but in %s its output goes %s%s; fuse by name "
                    "only modules that pass their output to the next one and nowhere else",
                    first.text, next.text, mode_names[mode],
                    user >= 0 ? "to " : "elsewhere, too, or nowhere",
                    user >= 0 ? oct_graph_node_text(&g->nodes[user]).text : "");
        return false;
    }
    return true;
}

/* Checks all calls of a module that was fused by name after another one. */
static oct_status check_pair(void *user, oct_module *module)
{
    oct_prepare_plan *plan = user;
    const oct_graph *g = plan->graph;
    const oct_module *first = NULL;
    if (module->type == &oct_identity_type) first = ((oct_identity_module *)module)->follows;
    if (module->type == &oct_qat_conv_type && ((oct_qat_conv *)module)->operand)
        first = &((oct_qat_conv *)module)->operand->base;
    for (size_t i = 0; first && i < g->num_nodes; i++) {
        const oct_graph_node *node = &g->nodes[i];
        bool fits = true; /* what is wrong in both modes is said once */
        for (int mode = 0; mode < OCT_MODES && fits; mode++)
            if (node->in[mode]) fits = check_pair_call(plan, first, module, node, (oct_mode)mode);
    }
    return OCT_OK;
}

/* Finds which nodes run as one module. The output of a member that is fused away becomes an alias of its input. */
static oct_status fuse_nodes(oct_prepare_plan *plan)
{
    oct_graph *g = plan->graph;
    bool automatic = plan->options->method != OCT_METHOD_EAGER;
    OCT_TRY(oct_module_walk(*plan->root, check_pair, plan));
    if (plan->problems > 0) return OCT_PREPARE;
    for (const oct_fusion *f = oct_fusions; automatic && f->name; f++)
        for (size_t i = 0; i < g->num_nodes; i++)
            try_fusion(plan, f, (int64_t)i);
    for (size_t i = 0; i < g->num_nodes; i++) {
        const oct_graph_node *node = &g->nodes[i];
        if (!oct_prepare_runs_here(plan, (int64_t)i))
            g->values[node->output].alias = node->called_input[oct_graph_mode_of(node)][0];
    }
    return OCT_OK;
}

static oct_status find_hooks(void *user, oct_module *module)
{
    *(bool *)user |= module->pre_hooks || module->hooks;
    return OCT_OK;
}

/* Runs a model with hooks once with codes, since hooks were traced on floats: one that fails on codes fails here and
 * not in the first step. */
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
    snprintf(text, sizeof text, "%s", oct_error_message(0));
    return oct_fail(OCT_PREPARE, "%s (a forward with quantized values, as hooks see them)", text);
}

oct_status oct_prepare(oct_module **root, const oct_example *example,
                       const oct_prepare_options *options, oct_text *report)
{
    oct_prepare_plan plan = {.root = root, .options = options, .target = options->target};
    oct_status status;
    OCT_TRY(check_start(*root, options));
    OCT_TRY_OUT(create_plan(&plan, example));
    oct_fail_clear();
    OCT_TRY_OUT(fuse_nodes(&plan));
    OCT_TRY_OUT(options->method == OCT_METHOD_EAGER ? oct_prepare_placement_eager(&plan)
                                                    : oct_prepare_placement(&plan));
    if (plan.problems == 0) OCT_TRY_OUT(oct_prepare_scale_groups(&plan)); /* of placed values */
    OCT_TRY_OUT(oct_prepare_check(&plan));
    status = plan.problems > 0 ? OCT_PREPARE : oct_prepare_apply(&plan);
out:
    for (size_t i = 0; plan.nodes && i < plan.graph->num_nodes; i++) {
        oct_free(&plan.nodes[i].path);
        oct_free(&plan.nodes[i].note);
    }
    oct_free(&plan.nodes);
    oct_free(&plan.values);
    if (!plan.graph || oct_graph_of(*root) != plan.graph) oct_graph_destroy(&plan.graph);
    if (status == OCT_OK) status = try_hooks(*root, example);
    if (status == OCT_OK && report) status = oct_report_write(report, *root);
    return status;
}
