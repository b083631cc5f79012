/* Placement without a graph to change: the user's stubs say where codes begin and end, and where
 * they do not fit the modules between them, prepare says which stub is missing and where. */
#include "quant/prepare/prepare_plan.h"

#include <stdio.h>

/* Whether an input of a node is codes. */
static bool gets_codes(const oct_prepare_plan *plan, int64_t node, int input)
{
    return plan->values[oct_prepare_input(plan, node, input)].codes;
}

static bool gets_any_codes(const oct_prepare_plan *plan, int64_t node)
{
    for (int k = 0; k < plan->graph->nodes[node].num_inputs; k++)
        if (gets_codes(plan, node, k)) return true;
    return false;
}

/* Decides that a node is quantized. */
static void quantize_node(oct_prepare_plan *plan, int64_t node)
{
    plan->nodes[node].quantized = true;
    oct_prepare_decide_output(plan, node);
}

static void report_missing_quant_stub(oct_prepare_plan *plan, int64_t node, int input)
{
    const oct_prepare_node *p = &plan->nodes[node];
    const int64_t producer = plan->graph->values[oct_prepare_input(plan, node, input)].producer;
    const oct_prepare_node *stub = producer < 0 ? NULL : &plan->nodes[producer];
    if (stub && stub->role == OCT_ROLE_QUANT_STUB && !stub->eligible) {
        OCT_PROBLEM(plan,
                    "%s: works on quantized values, but the QuantStub %s before it %s; give %s a "
                    "qconfig, or set that of %s to none",
                    p->path, stub->path, stub->note, stub->path, p->path);
        return;
    }
    const oct_call_name maker = oct_prepare_input_text(plan, node, input);
    OCT_PROBLEM(plan,
                "%s: works on quantized values, but what it gets from %s is float; put a QuantStub "
                "between %s and %s, or set the qconfig of %s to none:\n%s",
                p->path, maker.text, maker.text, p->path, p->path,
                oct_prepare_stub_line(p->parent, true).text);
}

static void report_missing_dequant_stub(oct_prepare_plan *plan, int64_t node, int input)
{
    const oct_prepare_node *p = &plan->nodes[node];
    const oct_call_name maker = oct_prepare_input_text(plan, node, input);
    OCT_PROBLEM(
        plan,
        "%s: gets quantized values from %s, but it %s; put a DeQuantStub between %s and %s:\n%s",
        p->path, maker.text, p->note ? p->note : "stays float", maker.text, p->path,
        oct_prepare_stub_line(p->parent, false).text);
}

/* Notes why a node with a qconfig and a quantized form stays float. */
static void note_float_input(oct_prepare_plan *plan, int64_t node)
{
    oct_prepare_node *p = &plan->nodes[node];
    if (!p->eligible || plan->graph->nodes[node].num_inputs == 0) return;
    oct_prepare_keep_status(plan, oct_prepare_note(p, "stays float: what it gets from %s is float",
                                                   oct_prepare_input_text(plan, node, 0).text));
}

/* An op that is called between modules stays as it is on floats, and on codes if its rule needs no module. */
static void place_op(oct_prepare_plan *plan, int64_t node)
{
    const oct_graph_node *n = &plan->graph->nodes[node];
    oct_prepare_node *p = &plan->nodes[node];
    if (!gets_any_codes(plan, node)) {
        note_float_input(plan, node);
        return;
    }
    const oct_call_name name = oct_graph_node_text(&plan->graph->nodes[node]);
    if (p->rule && !p->rule->made) {
        p->quantized = true;
        p->codes = plan->values[n->output].codes = oct_prepare_scale(p) != OCT_SCALE_NONE;
        return;
    }
    if (!p->rule) {
        OCT_PROBLEM(plan,
                    "%s gets quantized values from %s and has no quantized form; put a DeQuantStub "
                    "before it",
                    name.text, oct_prepare_input_text(plan, node, 0).text);
        return;
    }
    if (n->hook)
        OCT_PROBLEM(plan,
                    "%s works on quantized values, and eager cannot put a module there; let the "
                    "hook pass what it gets through a DeQuantStub first, or prepare with jit",
                    name.text);
    else
        OCT_PROBLEM(plan,
                    "%s works on quantized values, and eager cannot put a module there; give the "
                    "forward a module for it (oct_%s_create), or prepare with jit",
                    name.text, p->type->name);
    p->codes = plan->values[n->output].codes = true;
}

/* Quantizes a batch norm, which is right only where it has no layer before it and no activation after it that
 * oct_fuse_modules could fuse it with. */
static void place_norm(oct_prepare_plan *plan, int64_t norm)
{
    const oct_graph_node *nodes = plan->graph->nodes;
    char layer[264] = "", activation[264] = "";
    const int64_t before = plan->graph->values[oct_prepare_input(plan, norm, 0)].producer;
    const int64_t after = oct_prepare_only_user(plan, nodes[norm].output);
    if (before >= 0 && plan->nodes[before].role == OCT_ROLE_LAYER &&
        oct_prepare_only_user(plan, nodes[before].output) == norm)
        snprintf(layer, sizeof layer, "\"%s\", ", nodes[before].path);
    const oct_member member = after < 0 ? OCT_MEMBER_NONE : oct_member_of(plan->nodes[after].type);
    if ((member == OCT_MEMBER_RELU || member == OCT_MEMBER_RELU6 || member == OCT_MEMBER_CLIP) &&
        nodes[after].called)
        snprintf(activation, sizeof activation, ", \"%s\"", nodes[after].path);
    if (*layer || *activation)
        OCT_PROBLEM(plan,
                    "%s: a batch norm between quantized modules is not fused; call this before "
                    "prepare:\noct_fuse_modules(&model, (const char *[]){%s\"%s\"%s}, %d, false)",
                    nodes[norm].path, layer, nodes[norm].path, activation,
                    1 + (*layer != '\0') + (*activation != '\0'));
    quantize_node(plan, norm);
}

/* Quantizes a module that gets codes, or that must get them; reports the stubs that are missing before it. */
static void place_module(oct_prepare_plan *plan, int64_t node)
{
    oct_prepare_node *p = &plan->nodes[node];
    const oct_graph_node *n = &plan->graph->nodes[node];
    /* One with weights and a qconfig must get codes everywhere; others may work on floats outside of the stubs, such as a
     * softmax after the last one. */
    const bool wants_codes = p->eligible && !oct_prepare_follows_input(p) &&
                             (oct_prepare_has_weights(p) ||
                              plan->values[n->output].to_dequant_stub[oct_graph_mode_of(n)]);
    if (!gets_any_codes(plan, node) && !wants_codes) {
        note_float_input(plan, node);
        return;
    }
    for (int k = 0; k < n->num_inputs; k++) {
        if (p->eligible && !gets_codes(plan, node, k)) report_missing_quant_stub(plan, node, k);
        if (!p->eligible && gets_codes(plan, node, k)) report_missing_dequant_stub(plan, node, k);
    }
    if (!p->eligible) return;
    if (p->role == OCT_ROLE_BATCH_NORM)
        place_norm(plan, node);
    else
        quantize_node(plan, node);
}

/* Eager has the same modules in both modes, so a value that one of them reads is codes in both or in neither. */
static void check_modes(oct_prepare_plan *plan, int64_t node)
{
    const oct_graph *g = plan->graph;
    const oct_graph_node *n = &g->nodes[node];
    for (int k = 0; n->in[OCT_MODE_EVALUATION] && n->in[OCT_MODE_TRAINING] && k < n->num_inputs;
         k++) {
        const int64_t evaluation = oct_graph_input(g, n, k, OCT_MODE_EVALUATION);
        const int64_t training = oct_graph_input(g, n, k, OCT_MODE_TRAINING);
        const bool codes = plan->values[evaluation].codes;
        if (codes == plan->values[training].codes) continue;
        OCT_PROBLEM(
            plan,
            "%s: gets %s values from %s in evaluation and %s ones from %s in training; call "
            "the same stubs in both modes",
            oct_graph_node_text(n).text, codes ? "quantized" : "float",
            oct_graph_producer_text(g, evaluation).text, codes ? "float" : "quantized",
            oct_graph_producer_text(g, training).text);
    }
}

static void report_no_quant_stub(oct_prepare_plan *plan)
{
    OCT_PROBLEM(plan,
                "the model has no QuantStub, so eager would quantize nothing; pass the input "
                "through one, or prepare with jit:\n%s",
                oct_prepare_stub_line(*plan->root, true).text);
}

/* Quantizes what is between the user's stubs. Eager generates no stub, so each that is missing is a problem. */
oct_status oct_prepare_placement_eager(oct_prepare_plan *plan)
{
    const oct_graph *g = plan->graph;
    bool quant = oct_prepare_has_role(plan, OCT_ROLE_QUANT_STUB);
    OCT_TRY(oct_prepare_check_stubs(plan));
    if (plan->problems > 0) return OCT_OK; /* stubs that cannot be meant */
    if (!quant && !oct_prepare_has_role(plan, OCT_ROLE_DEQUANT_STUB)) {
        report_no_quant_stub(plan);
        return OCT_OK;
    }
    for (int64_t i = 0; i < (int64_t)g->num_nodes; i++) {
        check_modes(plan, i);
        if (!g->nodes[i].called)
            place_op(plan, i);
        else if (plan->nodes[i].role == OCT_ROLE_QUANT_STUB)
            oct_prepare_place_quant_stub(plan, i);
        else if (plan->nodes[i].role == OCT_ROLE_DEQUANT_STUB)
            oct_prepare_check_dequant_stub(plan, i);
        else
            place_module(plan, i);
    }
    for (int mode = 0; mode < OCT_MODES; mode++) {
        if (!plan->values[g->output[mode]].codes || (mode && g->output[mode] == g->output[0]))
            continue;
        const oct_call_name maker = oct_graph_producer_text(plan->graph, g->output[mode]);
        OCT_PROBLEM(plan,
                    "the model's output is quantized: it comes from %s; put a DeQuantStub between "
                    "%s and the end of the forward:\n%s",
                    maker.text, maker.text, oct_prepare_stub_line(*plan->root, false).text);
    }
    if (plan->problems == 0 && !quant) report_no_quant_stub(plan);
    return plan->status;
}
