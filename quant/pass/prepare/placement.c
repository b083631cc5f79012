/* What is quantized, and where codes are made and taken back, in the methods that know the graph: each
 * call site that can be is quantized wherever it stands; those that only move values follow their
 * input, so that no float value is quantized for their sake alone. */
#include "quant/pass/prepare/prepare_plan.h"

/* Shapes values only: what comes out is the unquantized result still. */
static bool only_moves(const oct_prepare_node *p)
{
    return p->role == OCT_ROLE_RULE && p->rule->scale == OCT_SCALE_INPUT && !p->rule->create;
}

static bool reads(const oct_graph_node *node, int64_t value, oct_mode mode)
{
    for (int k = 0; node->in[mode] && k < node->num_inputs; k++)
        if (node->called_input[mode][k] == value) return true;
    return false;
}

static bool is_read(const oct_prepare_plan *plan, int64_t value, oct_mode mode)
{
    for (size_t i = 0; i < plan->graph->num_nodes; i++)
        if (reads(&plan->graph->nodes[i], value, mode)) return true;
    return false;
}

/* The last layer before a DeQuantStub, or before the output of a model that needs none, as evaluation
 * has it. */
static bool before_dequant(const oct_prepare_plan *plan, int64_t value)
{
    const oct_graph *g = plan->graph;
    const oct_mode mode = OCT_MODE_EVALUATION;
    bool eager = plan->options->method == OCT_METHOD_EAGER;
    for (;;) {
        if (value == g->output[mode]) return !eager && !is_read(plan, value, mode);
        int64_t reader = oct_prepare_only_user_in(plan, value, mode);
        if (reader < 0) return false;
        if (plan->nodes[reader].role == OCT_ROLE_DEQUANT_STUB) return true;
        if (!only_moves(&plan->nodes[reader])) return false;
        value = g->nodes[reader].output;
    }
}

/* Whether training, too, does nothing with a value that wants codes. */
static bool stays_float_in_training(const oct_prepare_plan *plan, int64_t value)
{
    const oct_graph *g = plan->graph;
    for (size_t i = 0; i < g->num_nodes; i++) {
        const oct_graph_node *node = &g->nodes[i];
        const oct_prepare_node *p = &plan->nodes[i];
        if (!reads(node, value, OCT_MODE_TRAINING) || p->role == OCT_ROLE_DEQUANT_STUB) continue;
        if (!node->in[OCT_MODE_EVALUATION] && !p->eligible) continue;
        if (!only_moves(p) || !stays_float_in_training(plan, node->output)) return false;
    }
    return true;
}

static bool hands_over(const oct_prepare_plan *plan, int64_t place)
{
    int64_t value = plan->graph->nodes[oct_prepare_last_member(plan, place)].output;
    return before_dequant(plan, value) && stays_float_in_training(plan, value);
}

/* A conv or linear whose result nothing is done to. */
static bool is_plain_layer(const oct_prepare_plan *plan, int64_t place)
{
    const oct_prepare_node *p = &plan->nodes[place];
    const oct_module *called = plan->graph->nodes[place].called;
    if (p->role == OCT_ROLE_FUSED && called->type == &oct_qat_conv_type)
        return ((const oct_qat_conv *)called)->activation == OCT_ACT_NONE;
    if (p->fusion && (oct_fusion_has(p->fusion, OCT_MEMBER_ADD) ||
                      oct_fusion_activation(p->fusion) != OCT_ACT_NONE))
        return false;
    return oct_prepare_layer(plan, place) >= 0;
}

void oct_prepare_decide_output(oct_prepare_plan *plan, int64_t place)
{
    oct_prepare_node *p = &plan->nodes[place];
    oct_qconfig_site where = {.path = p->path,
                              .type = oct_prepare_type(plan, p->member[0]),
                              .before_dequant = is_plain_layer(plan, place) &&
                                                plan->graph->nodes[place].block < 0 &&
                                                hands_over(plan, place)};
    p->qconfig = oct_qconfig_of(plan->options->setters, plan->options->num_setters, &where);
    p->decider = oct_qconfig_decider(plan->options->setters, plan->options->num_setters, &where);
    p->qconfig.float_output &= where.before_dequant;
    p->codes = p->quantized && !p->qconfig.float_output && oct_prepare_scale(p) != OCT_SCALE_NONE;
    plan->values[plan->graph->nodes[place].output].codes = p->codes;
}

static bool gets_codes(const oct_prepare_plan *plan, int64_t node, int inputs)
{
    const oct_graph_node *n = &plan->graph->nodes[node];
    for (int mode = 0; mode < OCT_MODES; mode++)
        for (int k = 0; n->in[mode] && k < inputs; k++)
            if (plan->values[oct_graph_input(plan->graph, n, k, mode)].codes) return true;
    return false;
}

void oct_prepare_place_quant_stub(oct_prepare_plan *plan, int64_t i)
{
    oct_prepare_node *p = &plan->nodes[i];
    char maker[320];
    if (gets_codes(plan, i, 1))
        OCT_PROBLEM(
            plan,
            "%s: what it gets from %s is quantized already; remove this QuantStub, or put a "
            "DeQuantStub before it",
            p->path, oct_prepare_producer_text(plan, oct_prepare_input(plan, i, 0), maker));
    p->quantized = p->eligible;
    oct_prepare_decide_output(plan, i);
}

/* Behind what was quantized on its own accord, with no other stub of the user's before it, a QuantStub
 * has nothing to do: its tensor has a quantizer. */
static oct_status pass_stub_by(oct_prepare_plan *plan, int64_t i)
{
    oct_prepare_node *p = &plan->nodes[i];
    oct_graph *g = plan->graph;
    char maker[320];
    p->passes = true;
    g->values[g->nodes[i].output].alias = oct_prepare_input(plan, i, 0);
    return oct_prepare_note(p, "does nothing: what it gets from %s is quantized already",
                            oct_prepare_producer_text(plan, oct_prepare_input(plan, i, 0), maker));
}

static oct_status place_quant_stub(oct_prepare_plan *plan, int64_t i)
{
    const oct_graph_node *node = &plan->graph->nodes[i];
    oct_mode mode = oct_graph_mode_of(node);
    if (gets_codes(plan, i, 1) && !plan->values[node->called_input[mode][0]].after[mode])
        return pass_stub_by(plan, i);
    oct_prepare_place_quant_stub(plan, i);
    return OCT_OK;
}

void oct_prepare_check_dequant_stub(oct_prepare_plan *plan, int64_t i)
{
    int64_t producer = plan->graph->values[oct_prepare_input(plan, i, 0)].producer;
    if (producer >= 0 && plan->nodes[producer].role == OCT_ROLE_DEQUANT_STUB)
        OCT_PROBLEM(plan, "%s: follows the DeQuantStub %s directly; remove one of them",
                    plan->nodes[i].path, plan->nodes[producer].path);
}

static oct_status place_node(oct_prepare_plan *plan, int64_t i)
{
    oct_prepare_node *p = &plan->nodes[i];
    if (p->role == OCT_ROLE_QUANT_STUB) return place_quant_stub(plan, i);
    if (p->role == OCT_ROLE_DEQUANT_STUB) {
        oct_prepare_check_dequant_stub(plan, i);
    } else if (p->eligible) {
        bool shared = oct_prepare_scale(p) == OCT_SCALE_SHARED;
        p->quantized = !oct_prepare_follows_input(p) ||
                       gets_codes(plan, i, shared ? plan->graph->nodes[i].num_inputs : 1);
        oct_prepare_decide_output(plan, i);
    }
    return OCT_OK;
}

/* Shifting cannot multiply by a batch norm's factor, which only a layer's weights can take in. */
static oct_status leave_lone_norm(oct_prepare_plan *plan, int64_t i)
{
    oct_prepare_node *p = &plan->nodes[i];
    if (p->role != OCT_ROLE_BATCH_NORM || p->place != i || oct_prepare_layer(plan, i) >= 0 ||
        plan->target->requantizer != OCT_REQUANT_SHIFT || !p->eligible)
        return OCT_OK;
    p->eligible = false;
    return oct_prepare_note(
        p,
        "stays float: target %s shifts and cannot run a batch norm that follows "
        "no convolution",
        plan->target->name);
}

static void want(oct_prepare_plan *plan, int64_t node, int64_t value)
{
    const oct_prepare_node *p = &plan->nodes[node];
    oct_prepare_value *v = &plan->values[value];
    if (p->role == OCT_ROLE_DEQUANT_STUB || p->passes) return;
    bool codes = p->quantized && p->role != OCT_ROLE_QUANT_STUB;
    v->quantize |= codes && !v->codes;
    v->dequantize |= !codes && v->codes;
}

static void want_inputs(oct_prepare_plan *plan, int64_t node)
{
    const oct_graph_node *n = &plan->graph->nodes[node];
    for (int mode = 0; mode < OCT_MODES; mode++)
        for (int k = 0; n->in[mode] && k < n->num_inputs; k++)
            want(plan, node, oct_graph_input(plan->graph, n, k, mode));
}

/* What a later run of a block reads counts when it enters what runs there. */
static bool enters(const oct_prepare_plan *plan, const oct_graph_carried_use *read)
{
    const oct_graph *g = plan->graph;
    int64_t place = plan->nodes[read->node].place;
    const oct_graph_node *node = &g->nodes[read->node];
    oct_mode mode = oct_graph_mode_of(node);
    int64_t first = oct_graph_resolve(g, node->called_input[mode][read->input], mode);
    for (int k = 0; k < g->nodes[place].num_inputs; k++)
        if (oct_prepare_input(plan, place, k) == first) return true;
    return false;
}

/* Of a block that ran once in the trace, nobody knows which of its inputs is its own result later: the
 * result can be had in float where one of them is wanted so. */
static void place_in_block(oct_prepare_plan *plan, const oct_graph_block *block)
{
    const oct_graph *g = plan->graph;
    if (block->begin == block->end) return;
    const oct_graph_node *last = &g->nodes[block->end - 1];
    int64_t result = oct_graph_resolve(g, last->output, oct_graph_mode_of(last));
    for (size_t i = block->begin; i < block->end && plan->values[result].codes; i++)
        for (int k = 0; oct_prepare_runs_here(plan, (int64_t)i) && k < g->nodes[i].num_inputs;
             k++) {
            int64_t producer = g->values[oct_prepare_input(plan, (int64_t)i, k)].producer;
            bool outside = producer < (int64_t)block->begin;
            if (outside) want(plan, (int64_t)i, result);
        }
}

static void place_stubs(oct_prepare_plan *plan)
{
    const oct_graph *g = plan->graph;
    for (size_t b = 0; b < g->num_blocks; b++)
        if (oct_prepare_ran_once(plan, (int)b)) place_in_block(plan, &g->blocks[b]);
    for (size_t i = 0; i < g->num_nodes; i++)
        if (oct_prepare_runs_here(plan, (int64_t)i)) want_inputs(plan, (int64_t)i);
    for (size_t r = 0; r < g->num_reads; r++)
        for (int mode = 0; mode < OCT_MODES && enters(plan, &g->reads[r]); mode++)
            want(plan, plan->nodes[g->reads[r].node].place,
                 oct_graph_resolve(g, g->reads[r].value, mode));
    for (int mode = 0; mode < OCT_MODES; mode++) {
        oct_prepare_value *output = &plan->values[oct_graph_resolve(g, g->output[mode], mode)];
        output->dequantize |= output->codes;
    }
}

static oct_status note_follower(oct_prepare_plan *plan, int64_t i)
{
    oct_prepare_node *p = &plan->nodes[i];
    if (p->role != OCT_ROLE_RULE || !p->eligible || p->quantized || !oct_prepare_runs_here(plan, i))
        return OCT_OK;
    return oct_prepare_note(p, "stays float, as its input is");
}

oct_status oct_prepare_placement(oct_prepare_plan *plan)
{
    for (int64_t i = 0; i < (int64_t)plan->graph->num_nodes; i++)
        if (oct_prepare_runs_here(plan, i)) {
            OCT_TRY(leave_lone_norm(plan, i));
            OCT_TRY(place_node(plan, i));
            OCT_TRY(note_follower(plan, i));
        }
    place_stubs(plan);
    return OCT_OK;
}
