/* Forms groups of values that must have one scale. A group has one fake-quant, with the qconfig of
 * the first that makes values for it, so each tensor has one quantizer. */
#include "quant/prepare/prepare_plan.h"

#include <stdio.h>

/* The root of a value's group: the first value of it. Chains to it are halved on the way. */
static int64_t find_root(oct_prepare_plan *plan, int64_t value)
{
    while (plan->values[value].group != value)
        value = plan->values[value].group = plan->values[plan->values[value].group].group;
    return value;
}

int64_t oct_prepare_group_of(oct_prepare_plan *plan, int64_t value)
{
    return plan->values[value].group < 0 ? OCT_NO_INDEX : find_root(plan, value);
}

/* Merges two groups under the smaller number, which was made first. */
static void merge_groups(oct_prepare_plan *plan, int64_t a, int64_t b)
{
    a = find_root(plan, a), b = find_root(plan, b);
    if (a < b) plan->values[b].group = a;
    if (b < a) plan->values[a].group = b;
}

/* Whether the node that makes a value gives it a fixed scale. */
static bool makes_fixed_scale(const oct_prepare_plan *plan, int64_t value)
{
    int64_t producer = plan->graph->values[value].producer;
    return producer >= 0 && plan->nodes[producer].quantized &&
           oct_prepare_scale(&plan->nodes[producer]) == OCT_SCALE_FIXED;
}

/* Whether a value's group may be merged with others: one with a fixed scale is not. */
static bool may_merge(oct_prepare_plan *plan, int64_t value)
{
    int64_t root = find_root(plan, value);
    for (size_t v = 0; v < plan->graph->num_values; v++)
        if (oct_prepare_group_of(plan, (int64_t)v) == root && makes_fixed_scale(plan, (int64_t)v))
            return false;
    return true;
}

/* Gives the values that later runs of a dynamic block pass to a node the scale of the node's output. */
static void share_with_carried(oct_prepare_plan *plan, int64_t i)
{
    const oct_graph *g = plan->graph;
    for (size_t r = 0; r < g->num_carried; r++) {
        if (plan->nodes[g->carried[r].node].runs_at != i) continue;
        for (int mode = 0; mode < OCT_MODES; mode++) {
            const int64_t value = oct_graph_resolve(g, g->carried[r].value, (oct_mode)mode);
            if (plan->values[value].group >= 0 && may_merge(plan, value))
                merge_groups(plan, g->nodes[i].output, value);
        }
    }
}

/* Gives a node's inputs the scale of its output, where its form or the target asks for that. */
static void share_with_inputs(oct_prepare_plan *plan, int64_t i)
{
    const oct_prepare_node *p = &plan->nodes[i];
    int64_t output = plan->graph->nodes[i].output;
    oct_output_scale scale = oct_prepare_scale(p);
    if (!p->quantized || !p->codes) return;
    if (scale == OCT_SCALE_INPUT) merge_groups(plan, output, oct_prepare_input(plan, i, 0));
    const bool shares = scale == OCT_SCALE_SHARED && plan->options->method != OCT_METHOD_EAGER;
    bool target_shares = false; /* it computes a member with one scale for inputs and output */
    for (int m = 0; m < p->num_members; m++)
        target_shares |=
            oct_list_has(plan->target->one_scale, oct_prepare_type(plan, p->member[m]));
    if (!shares && !target_shares) return;
    const oct_graph_node *node = &plan->graph->nodes[i];
    for (int mode = 0; mode < OCT_MODES; mode++)
        for (int k = 0; node->in[mode] && k < node->num_inputs; k++) {
            int64_t input = oct_graph_input(plan->graph, node, k, mode);
            if (may_merge(plan, input)) merge_groups(plan, output, input);
        }
    if (target_shares) share_with_carried(plan, i);
}

/* Gives a value that a node reads in evaluation and that training does not make, so that no range is observed for it,
 * the scale of what the node reads in training instead. */
static void share_between_modes(oct_prepare_plan *plan, int64_t i)
{
    const oct_graph *g = plan->graph;
    const oct_graph_node *node = &g->nodes[i];
    if (!node->in[OCT_MODE_EVALUATION] || !node->in[OCT_MODE_TRAINING]) return;
    for (int k = 0; k < node->num_inputs; k++) {
        int64_t eval = oct_graph_input(g, node, k, OCT_MODE_EVALUATION);
        int64_t train = oct_graph_input(g, node, k, OCT_MODE_TRAINING),
                maker = g->values[eval].producer;
        bool grouped = plan->values[eval].group >= 0 && plan->values[train].group >= 0;
        if (!grouped || maker < 0 || g->nodes[maker].in[OCT_MODE_TRAINING]) continue;
        if (may_merge(plan, eval) && may_merge(plan, train)) merge_groups(plan, eval, train);
    }
}

/* Gives calls of one module one range: as asked, because one module computes them all, or because
 * training, where ranges are observed, does not make one of the calls. */
static void share_between_calls(oct_prepare_plan *plan, int64_t i)
{
    const oct_graph *g = plan->graph;
    const oct_prepare_node *p = &plan->nodes[i];
    const oct_module *called = g->nodes[p->member[0]].called;
    bool one = plan->options->shared_range || oct_prepare_one_module(plan, i);
    if (!called || !p->codes || oct_prepare_scale(p) == OCT_SCALE_INPUT) return;
    for (int64_t k = 0; k < i; k++)
        if (oct_prepare_runs_here(plan, k) && plan->nodes[k].codes &&
            g->nodes[plan->nodes[k].member[0]].called == called &&
            (one || !g->nodes[k].in[OCT_MODE_TRAINING] || !g->nodes[i].in[OCT_MODE_TRAINING]))
            merge_groups(plan, g->nodes[k].output, g->nodes[i].output);
}

/* Whether values after an activation are >= 0; lo: the lower bound of a clip. */
static bool cuts_at_zero(oct_activation activation, double lo)
{
    return activation == OCT_ACT_CLIP ? lo >= 0 : activation != OCT_ACT_NONE;
}

/* Whether the values that a node makes are >= 0, as its activation or its rule says. */
static bool is_non_negative(const oct_prepare_plan *plan, int64_t i)
{
    const oct_prepare_node *p = &plan->nodes[i];
    if (p->fusion) {
        oct_clip_args clip; /* of the last member, where that is a clip */
        oct_args_get(&oct_clip_arg_list, &plan->graph->nodes[oct_prepare_last_member(plan, i)].args,
                     &clip);
        return cuts_at_zero(oct_fusion_activation(p->fusion), clip.lo);
    }
    if (p->role == OCT_ROLE_RULE) return oct_quant_rule_is_non_negative(p->rule);
    if (p->role != OCT_ROLE_FUSED) return false;
    const oct_quantized *fused = (const oct_quantized *)plan->graph->nodes[i].called;
    return cuts_at_zero(fused->activation, fused->clip.lo);
}

/* Adds a producer of values to a group: the group has the qconfig of its first one, with the largest number of bits. */
static void add_producer_to_group(oct_prepare_value *group, const oct_qconfig *qconfig,
                                  bool is_signed)
{
    if (!group->has_producer) group->qconfig = *qconfig;
    group->has_producer = true;
    group->is_signed |= is_signed;
    if (qconfig->bits > group->qconfig.bits) group->qconfig.bits = qconfig->bits;
}

/* Adds what makes a value, if it decides the scale, to the producers of its group; values come in order. */
static void add_maker_to_group(oct_prepare_plan *plan, int64_t value)
{
    int64_t producer = plan->graph->values[value].producer;
    const oct_prepare_node *p = producer < 0 ? NULL : &plan->nodes[producer];
    oct_prepare_value *group = &plan->values[find_root(plan, value)];
    OCT_ASSERT(p || plan->values[value].quantize);
    if (plan->values[value].quantize) {
        add_producer_to_group(group, &plan->values[value].qconfig, true);
    } else if (oct_prepare_scale(p) == OCT_SCALE_SHARED) {
        /* A concat that is alone in its group makes signed values if it gets some. */
        bool is_signed = false;
        for (int k = 0; !group->has_producer && k < plan->graph->nodes[producer].num_inputs; k++)
            is_signed |=
                plan->values[find_root(plan, oct_prepare_input(plan, producer, k))].is_signed;
        add_producer_to_group(group, &p->qconfig, is_signed);
    } else if (oct_prepare_scale(p) != OCT_SCALE_INPUT) {
        add_producer_to_group(group, &p->qconfig, !is_non_negative(plan, producer));
    } else if (p->rule->makes_negative) {
        group->is_signed |= p->rule->makes_negative(&plan->graph->nodes[producer].args);
    }
    group->fixed |= makes_fixed_scale(plan, value);
}

/* The qconfig of the first node that reads a value as codes. */
static oct_qconfig qconfig_of_reader(const oct_prepare_plan *plan, int64_t value)
{
    const oct_graph *g = plan->graph;
    for (size_t i = 0; i < g->num_nodes; i++) {
        const oct_prepare_node *p = &plan->nodes[i];
        if (!oct_prepare_runs_here(plan, (int64_t)i) || !p->quantized) continue;
        if (p->role == OCT_ROLE_QUANT_STUB) continue;
        for (int k = 0; k < g->nodes[i].num_inputs; k++)
            if (oct_prepare_input(plan, (int64_t)i, k) == value) return p->qconfig;
    }
    for (size_t r = 0; r < g->num_carried; r++)
        if (oct_graph_resolve(g, g->carried[r].value, OCT_MODE_EVALUATION) == value)
            return plan->nodes[plan->nodes[g->carried[r].node].runs_at].qconfig;
    return oct_qconfig_default();
}

oct_module *oct_prepare_stub_parent(const oct_prepare_plan *plan, int64_t value)
{
    int64_t producer = plan->graph->values[value].producer;
    return producer < 0 ? *plan->root : plan->nodes[producer].parent;
}

oct_call_name oct_prepare_stub_path(const oct_prepare_plan *plan, int64_t value)
{
    oct_call_name name;
    const oct_module *parent = oct_prepare_stub_parent(plan, value);
    int number = 0; /* stubs before it in the same container */
    for (int64_t v = 0; v < value; v++)
        number += plan->values[v].quantize && oct_prepare_stub_parent(plan, v) == parent;
    const oct_path_text path = oct_module_path(parent);
    snprintf(name.text, sizeof name.text, "%s%s_generated_quant_stub_%d", path.text,
             *path.text ? "." : "", number);
    return name;
}

/* Notes that a node asks for more bits than it gets, because it is a member of a fusion or follows
 * its input: who set its qconfig should know. */
static oct_status note_fewer_bits(oct_prepare_plan *plan, int64_t i)
{
    const oct_graph *g = plan->graph;
    oct_prepare_node *p = &plan->nodes[i];
    int64_t group = oct_prepare_group_of(plan, g->nodes[p->runs_at].output);
    if (group < 0 || p->qconfig.none || p->qconfig.bits <= plan->values[group].qconfig.bits)
        return OCT_OK;
    int64_t producer = g->values[group].producer;
    const oct_call_name decides = plan->values[group].quantize || producer < 0
                                      ? oct_prepare_stub_path(plan, group)
                                      : oct_prepare_site_text(plan, producer);
    return oct_prepare_note(
        p, "its qconfig asks for %d-bit codes, but the qconfig of %s decides their width",
        p->qconfig.bits, decides.text);
}

/* Puts values that must have one scale into one group (union-find), and decides the qconfig and sign of each group. */
oct_status oct_prepare_scale_groups(oct_prepare_plan *plan)
{
    size_t num_values = plan->graph->num_values, num_nodes = plan->graph->num_nodes;
    const oct_prepare_options *o = plan->options;
    for (size_t v = 0; v < num_values; v++) {
        oct_prepare_value *value = &plan->values[v];
        if (value->codes || value->quantize) value->group = (int64_t)v;
        if (!value->quantize) continue;
        /* A generated stub has the qconfig of its own path or, where that is none, that of what needs it. */
        const oct_call_name stub = oct_prepare_stub_path(plan, (int64_t)v);
        const oct_qconfig_site site = {.path = stub.text, .type = "quant_stub"};
        value->qconfig = oct_qconfig_of(o->setters, o->num_setters, &site);
        if (value->qconfig.none) value->qconfig = qconfig_of_reader(plan, (int64_t)v);
        value->qconfig.float_output = false;
    }
    for (size_t i = 0; i < num_nodes; i++)
        if (oct_prepare_runs_here(plan, (int64_t)i)) share_with_inputs(plan, (int64_t)i);
    for (size_t i = 0; i < num_nodes; i++)
        if (oct_prepare_runs_here(plan, (int64_t)i)) share_between_calls(plan, (int64_t)i);
    for (size_t i = 0; i < num_nodes && plan->options->method != OCT_METHOD_EAGER; i++)
        if (oct_prepare_runs_here(plan, (int64_t)i)) share_between_modes(plan, (int64_t)i);
    for (size_t v = 0; v < num_values; v++)
        if (plan->values[v].group >= 0) add_maker_to_group(plan, (int64_t)v);
    for (size_t i = 0; i < num_nodes; i++)
        OCT_TRY(note_fewer_bits(plan, (int64_t)i));
    return OCT_OK;
}
