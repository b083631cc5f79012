/* Placement: what is quantized, and where codes are made and taken back. The user's stubs are checked first. In the methods
 * that know the graph each call site that can be is quantized wherever it is; those that only move values follow their
 * input, so that no float value is quantized for their sake alone. */
#include "quant/prepare/prepare_plan.h"

#include <stdio.h>

/* Refuses a QuantStub that gets codes. */
static void refuse_second_stub(oct_prepare_plan *plan, int64_t i)
{
    OCT_PROBLEM(plan,
                "%s: what it gets from %s is quantized already; remove this QuantStub, or put a "
                "DeQuantStub before it",
                plan->graph->nodes[i].path, oct_prepare_input_text(plan, i, 0).text);
}

oct_call_name oct_prepare_stub_line(oct_module *parent, bool quant)
{
    oct_call_name line;
    const char *kind = quant ? "quant" : "dequant";
    char name[32];
    int number = 0;
    snprintf(name, sizeof name, "%s", kind);
    while (oct_module_find(parent, name))
        snprintf(name, sizeof name, "%s%d", kind, ++number);
    snprintf(line.text, sizeof line.text,
             "x = oct_call(cx, m->%s, x); /* made by oct_%s_stub_create(&m->%s) */", name, kind,
             name);
    return line;
}

static oct_mode mode_of(const oct_prepare_plan *plan, int64_t node)
{
    return oct_graph_mode_of(&plan->graph->nodes[node]);
}

static int64_t first_input(const oct_prepare_plan *plan, int64_t node)
{
    return plan->graph->nodes[node].called_input[mode_of(plan, node)][0];
}

/* Whether a DeQuantStub gets floats on every way from the model's inputs. */
static bool is_dequant_stub_of_floats(const oct_prepare_plan *plan, int64_t node)
{
    return plan->nodes[node].role == OCT_ROLE_DEQUANT_STUB &&
           !plan->values[first_input(plan, node)].from_quant_stub[mode_of(plan, node)];
}

/* Whether nothing reads what a QuantStub makes. */
static bool is_unread_quant_stub(const oct_prepare_plan *plan, int64_t node)
{
    const int64_t output = plan->graph->nodes[node].output;
    for (int mode = 0; mode < OCT_MODES; mode++)
        if (output == plan->graph->output[mode] ||
            oct_prepare_is_read_in(plan, output, (oct_mode)mode))
            return false;
    return plan->nodes[node].role == OCT_ROLE_QUANT_STUB;
}

/* Whether a QuantStub gets what another one has made codes already. */
static bool is_second_quant_stub(const oct_prepare_plan *plan, int64_t node)
{
    return plan->nodes[node].role == OCT_ROLE_QUANT_STUB &&
           oct_prepare_has_role(plan, OCT_ROLE_DEQUANT_STUB) &&
           plan->graph->values[first_input(plan, node)].producer >= 0 &&
           plan->values[first_input(plan, node)].from_quant_stub[mode_of(plan, node)];
}

/* Whether no DeQuantStub takes a QuantStub's codes on any way to the model's output. */
static bool is_quant_stub_without_end(const oct_prepare_plan *plan, int64_t node)
{
    return plan->nodes[node].role == OCT_ROLE_QUANT_STUB && !is_unread_quant_stub(plan, node) &&
           oct_prepare_has_role(plan, OCT_ROLE_DEQUANT_STUB) &&
           !plan->values[plan->graph->nodes[node].output].to_dequant_stub[mode_of(plan, node)];
}

/* The first node for which a question has the answer yes, or OCT_NO_INDEX. */
static int64_t find_first(const oct_prepare_plan *plan,
                          bool (*question)(const oct_prepare_plan *, int64_t))
{
    for (int64_t i = 0; i < (int64_t)plan->graph->num_nodes; i++)
        if (question(plan, i)) return i;
    return OCT_NO_INDEX;
}

static oct_call_name first_input_text(const oct_prepare_plan *plan, int64_t node)
{
    return oct_graph_producer_text(plan->graph, first_input(plan, node));
}

/* Refuses a DeQuantStub that gets floats and a QuantStub that no DeQuantStub follows: they are swapped. */
static void refuse_swapped(oct_prepare_plan *plan, int64_t dequant, int64_t quant)
{
    const char *a = plan->graph->nodes[dequant].path, *b = plan->graph->nodes[quant].path;
    const oct_call_name into_a = first_input_text(plan, dequant);
    const oct_call_name into_b = first_input_text(plan, quant);
    OCT_PROBLEM(plan,
                "%s and %s are swapped, so nothing would be quantized: %s is a DeQuantStub, but "
                "what it gets from %s is float, and %s is a QuantStub that no DeQuantStub follows; "
                "pass what comes from %s through %s and what comes from %s through %s",
                a, b, a, into_a.text, b, into_a.text, b, into_b.text, a);
}

/* Finds stubs that cannot be meant where they are, before anything is placed: a DeQuantStub that no QuantStub comes before,
 * and a QuantStub that no DeQuantStub follows although the model has some. Both together are swapped. They are problems
 * where stubs decide what is quantized (eager, jit_strip); elsewhere they are noted. Where eager can say better what is
 * missing, it does (eager.c). */
oct_status oct_prepare_check_stubs(oct_prepare_plan *plan)
{
    int64_t dequant = find_first(plan, is_dequant_stub_of_floats),
            quant = find_first(plan, is_quant_stub_without_end);
    bool decide =
        plan->options->method == OCT_METHOD_EAGER || plan->options->method == OCT_METHOD_JIT_STRIP;
    if (decide && dequant >= 0 && quant >= 0) {
        refuse_swapped(plan, dequant, quant);
        return OCT_OK;
    }
    bool strip = plan->options->method == OCT_METHOD_JIT_STRIP;
    for (int64_t i = 0; i < (int64_t)plan->graph->num_nodes; i++) {
        if (decide && is_unread_quant_stub(plan, i))
            OCT_PROBLEM(
                plan,
                "%s: nothing reads what this QuantStub makes; pass its result on, or remove "
                "it",
                plan->graph->nodes[i].path);
        if (strip && is_second_quant_stub(plan, i)) refuse_second_stub(plan, i);
    }
    if (plan->problems > 0) return OCT_OK;
    for (int64_t i = 0; i < (int64_t)plan->graph->num_nodes; i++) {
        const char *path = plan->graph->nodes[i].path;
        oct_module *parent = plan->nodes[i].parent;
        if (strip && is_dequant_stub_of_floats(plan, i))
            OCT_PROBLEM(plan,
                        "%s: what it gets from %s is float, since no QuantStub comes before this "
                        "DeQuantStub; put one where its codes are to begin, or remove the "
                        "DeQuantStub:\n%s",
                        path, first_input_text(plan, i).text,
                        oct_prepare_stub_line(parent, true).text);
        if (strip && is_quant_stub_without_end(plan, i))
            OCT_PROBLEM(plan,
                        "%s: no DeQuantStub follows this QuantStub, so nothing after it would be "
                        "quantized; put one where its codes are to end, or remove the "
                        "QuantStub:\n%s",
                        path, oct_prepare_stub_line(parent, false).text);
        if (!strip && is_dequant_stub_of_floats(plan, i))
            OCT_TRY(oct_prepare_note(&plan->nodes[i], "does nothing: what it gets from %s is float",
                                     first_input_text(plan, i).text));
    }
    return OCT_OK;
}

/* Whether a node only moves values, so that what it makes of floats can stay float. */
static bool only_moves(const oct_prepare_node *p)
{
    return p->role == OCT_ROLE_RULE && p->rule->scale == OCT_SCALE_INPUT && !p->rule->made;
}

/* Whether a value goes to a DeQuantStub alone, or to the output of a model that needs none, in
 * evaluation. */
static bool feeds_dequant_stub_alone(const oct_prepare_plan *plan, int64_t value)
{
    const oct_graph *g = plan->graph;
    const oct_mode mode = OCT_MODE_EVALUATION;
    bool eager = plan->options->method == OCT_METHOD_EAGER;
    for (;;) {
        if (value == g->output[mode]) return !eager && !oct_prepare_is_read_in(plan, value, mode);
        int64_t user = oct_prepare_only_user_in(plan, value, mode);
        if (user < 0) return false;
        if (plan->nodes[user].role == OCT_ROLE_DEQUANT_STUB) return true;
        if (!only_moves(&plan->nodes[user])) return false;
        value = g->nodes[user].output;
    }
}

/* Whether training, too, passes a value to nothing that wants codes. */
static bool stays_float_in_training(const oct_prepare_plan *plan, int64_t value)
{
    const oct_graph *g = plan->graph;
    for (size_t i = 0; i < g->num_nodes; i++) {
        const oct_graph_node *node = &g->nodes[i];
        const oct_prepare_node *p = &plan->nodes[i];
        if (!oct_graph_reads(node, value, OCT_MODE_TRAINING) || p->role == OCT_ROLE_DEQUANT_STUB)
            continue;
        if (!node->in[OCT_MODE_EVALUATION] && !p->eligible) continue;
        if (!only_moves(p) || !stays_float_in_training(plan, node->output)) return false;
    }
    return true;
}

/* Whether a convolution or linear layer, which the target lets hand over float, runs with nothing fused after it but a
 * batch norm. */
static bool is_plain_layer(const oct_prepare_plan *plan, int64_t at)
{
    const oct_prepare_node *p = &plan->nodes[at];
    if (plan->target->float_outputs &&
        !oct_list_has(plan->target->float_outputs, oct_prepare_type(plan, p->member[0])))
        return false;
    const oct_module *called = plan->graph->nodes[at].called;
    if (p->role == OCT_ROLE_FUSED && called->type == &oct_qat_conv_type)
        return ((const oct_quantized *)called)->activation == OCT_ACT_NONE;
    if (p->fusion && (oct_fusion_has(p->fusion, OCT_MEMBER_ADD) ||
                      oct_fusion_activation(p->fusion) != OCT_ACT_NONE))
        return false;
    return oct_prepare_layer(plan, at) >= 0;
}

/* A layer in front of a DeQuantStub may hand over its sums as float, where no training step needs them as codes. */
void oct_prepare_decide_output(oct_prepare_plan *plan, int64_t at)
{
    oct_prepare_node *p = &plan->nodes[at];
    const int64_t result = plan->graph->nodes[oct_prepare_last_member(plan, at)].output;
    oct_qconfig_site where = {.path = p->path,
                              .type = oct_prepare_type(plan, p->member[0]),
                              .before_dequant = is_plain_layer(plan, at) &&
                                                plan->graph->nodes[at].block < 0 &&
                                                feeds_dequant_stub_alone(plan, result) &&
                                                stays_float_in_training(plan, result)};
    p->qconfig = oct_qconfig_of(plan->options->setters, plan->options->num_setters, &where);
    p->decider = oct_qconfig_decider(plan->options->setters, plan->options->num_setters, &where);
    p->qconfig.float_output &= where.before_dequant;
    p->codes = p->quantized && !p->qconfig.float_output && oct_prepare_scale(p) != OCT_SCALE_NONE;
    plan->values[plan->graph->nodes[at].output].codes = p->codes;
}

void oct_prepare_place_quant_stub(oct_prepare_plan *plan, int64_t i)
{
    oct_prepare_node *p = &plan->nodes[i];
    if (oct_prepare_reads_codes(plan, i, 1)) refuse_second_stub(plan, i);
    p->quantized = p->eligible;
    oct_prepare_decide_output(plan, i);
}

void oct_prepare_check_dequant_stub(oct_prepare_plan *plan, int64_t i)
{
    int64_t producer = plan->graph->values[oct_prepare_input(plan, i, 0)].producer;
    if (producer >= 0 && plan->nodes[producer].role == OCT_ROLE_DEQUANT_STUB)
        OCT_PROBLEM(plan, "%s: follows the DeQuantStub %s directly; remove one of them",
                    plan->graph->nodes[i].path, plan->graph->nodes[producer].path);
}

/* Decides about a QuantStub of the user's. One whose input is codes already, though no other stub comes before it, does
 * nothing. */
static oct_status place_quant_stub(oct_prepare_plan *plan, int64_t i)
{
    const oct_graph_node *node = &plan->graph->nodes[i];
    oct_mode mode = oct_graph_mode_of(node);
    if (!oct_prepare_reads_codes(plan, i, 1) ||
        plan->values[node->called_input[mode][0]].from_quant_stub[mode]) {
        oct_prepare_place_quant_stub(plan, i);
        return OCT_OK;
    }
    plan->nodes[i].passes_codes = true;
    plan->graph->values[node->output].alias = oct_prepare_input(plan, i, 0);
    return oct_prepare_note(&plan->nodes[i],
                            "does nothing: what it gets from %s is quantized already",
                            oct_prepare_input_text(plan, i, 0).text);
}

/* Keeps a lone batch norm float on a target that shifts: it cannot multiply by the factor, which
 * only a layer's weights can take in. */
static oct_status keep_lone_norm_float(oct_prepare_plan *plan, int64_t i)
{
    oct_prepare_node *p = &plan->nodes[i];
    if (p->role != OCT_ROLE_BATCH_NORM || p->runs_at != i || oct_prepare_layer(plan, i) >= 0 ||
        !oct_requantizer_shifts(plan->target->requantizer) || !p->eligible)
        return OCT_OK;
    p->eligible = false;
    return oct_prepare_note(
        p,
        "stays float: target %s shifts and cannot run a batch norm that follows "
        "no convolution",
        plan->target->name);
}

/* Marks a value for a generated stub where a node wants its other form, codes or float. */
static void mark_conversion(oct_prepare_plan *plan, int64_t node, int64_t value)
{
    const oct_prepare_node *p = &plan->nodes[node];
    oct_prepare_value *v = &plan->values[value];
    if (p->role == OCT_ROLE_DEQUANT_STUB || p->passes_codes) return;
    bool codes = p->quantized && p->role != OCT_ROLE_QUANT_STUB;
    v->quantize |= codes && !v->codes;
    v->dequantize |= !codes && v->codes;
}

/* Whether a later run's value for a node is an input of the module that runs the node, not inside of its fusion. */
static bool enters_module(const oct_prepare_plan *plan, const oct_graph_carried_use *read)
{
    const oct_graph *g = plan->graph;
    int64_t at = plan->nodes[read->node].runs_at;
    const oct_graph_node *node = &g->nodes[read->node];
    oct_mode mode = oct_graph_mode_of(node);
    int64_t first = oct_graph_resolve(g, node->called_input[mode][read->input], mode);
    for (int k = 0; k < g->nodes[at].num_inputs; k++)
        if (oct_prepare_input(plan, at, k) == first) return true;
    return false;
}

/* Makes the result of a block that ran once in the trace available in the kind in which its inputs
 * are wanted, since it is unknown which of them is its own result later. */
static void mark_block_result(oct_prepare_plan *plan, const oct_graph_block *block)
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
            if (outside) mark_conversion(plan, (int64_t)i, result);
        }
}

/* Marks the values between what makes codes and what makes floats, where stubs are to be generated. */
static void mark_conversions(oct_prepare_plan *plan)
{
    const oct_graph *g = plan->graph;
    for (size_t b = 0; b < g->num_blocks; b++)
        if (oct_prepare_ran_once(plan, (int)b)) mark_block_result(plan, &g->blocks[b]);
    for (int64_t i = 0; i < (int64_t)g->num_nodes; i++) {
        const oct_graph_node *n = &g->nodes[i];
        for (int mode = 0; oct_prepare_runs_here(plan, i) && mode < OCT_MODES; mode++)
            for (int k = 0; n->in[mode] && k < n->num_inputs; k++)
                mark_conversion(plan, i, oct_graph_input(g, n, k, mode));
    }
    for (size_t r = 0; r < g->num_carried; r++)
        for (int mode = 0; mode < OCT_MODES && enters_module(plan, &g->carried[r]); mode++)
            mark_conversion(plan, plan->nodes[g->carried[r].node].runs_at,
                            oct_graph_resolve(g, g->carried[r].value, mode));
    for (int mode = 0; mode < OCT_MODES; mode++) {
        oct_prepare_value *output = &plan->values[oct_graph_resolve(g, g->output[mode], mode)];
        output->dequantize |= output->codes;
    }
}

/* Decides, in the order of calls, which nodes are quantized, which values are codes, and where stubs are generated. */
oct_status oct_prepare_placement(oct_prepare_plan *plan)
{
    OCT_TRY(oct_prepare_check_stubs(plan));
    for (int64_t i = 0; i < (int64_t)plan->graph->num_nodes; i++) {
        oct_prepare_node *p = &plan->nodes[i];
        if (!oct_prepare_runs_here(plan, i)) continue;
        OCT_TRY(keep_lone_norm_float(plan, i));
        if (p->role == OCT_ROLE_QUANT_STUB) {
            OCT_TRY(place_quant_stub(plan, i));
        } else if (p->role == OCT_ROLE_DEQUANT_STUB) {
            oct_prepare_check_dequant_stub(plan, i);
        } else if (p->eligible) {
            /* What only moves values is quantized if its input is; a concat, if one of its inputs is. */
            bool shared = oct_prepare_scale(p) == OCT_SCALE_SHARED;
            p->quantized =
                !oct_prepare_follows_input(p) ||
                oct_prepare_reads_codes(plan, i, shared ? plan->graph->nodes[i].num_inputs : 1);
            oct_prepare_decide_output(plan, i);
        }
        if (p->role == OCT_ROLE_RULE && p->eligible && !p->quantized)
            OCT_TRY(oct_prepare_note(p, "stays float, as its input is"));
    }
    mark_conversions(plan);
    return OCT_OK;
}
