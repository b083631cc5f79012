/* The check report's findings: a sentence for each thing that a user may want to change or to
 * know. */
#include "quant/prepare/report.h"

#include "quant/module/rule.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

oct_call_name oct_report_anchor(const oct_graph_node *node)
{
    oct_call_name name;
    if (node->module || node->called)
        snprintf(name.text, sizeof name.text, "%s",
                 node->module ? oct_module_path(node->module).text : node->path);
    else
        snprintf(name.text, sizeof name.text, "%s%s%s()", node->path, node->path[0] ? "." : "",
                 node->op);
    return name;
}

bool oct_report_in_integers(const oct_graph *g, const oct_graph_node *node)
{
    return node->action == OCT_NODE_RUN &&
           (node->wants == OCT_WANTS_CODES || g->values[node->output].codes);
}

bool oct_report_makes_class_numbers(const oct_graph_node *node)
{
    const oct_module_type *type = oct_module_type_find(node->op);
    const oct_quant_rule *rule = type ? oct_quant_rule_find(type) : NULL;
    return rule && rule->scale == OCT_SCALE_NONE;
}

bool oct_report_is_stub(const oct_graph_node *node)
{
    const oct_module_type *type = node->module ? node->module->type : NULL;
    return type == &oct_quant_stub_type || type == &oct_dequant_stub_type;
}

bool oct_report_is_identity(const oct_graph_node *node)
{
    return node->action == OCT_NODE_ALIAS ||
           (node->module && node->module->type == &oct_identity_type);
}

/* Whether the node is a float operation in the middle of integers. */
static bool is_fallback(const oct_graph *g, const oct_graph_node *node)
{
    if (node->action == OCT_NODE_ALIAS || oct_report_in_integers(g, node) ||
        oct_report_is_stub(node))
        return false;
    if (g->values[node->output].quantize || node->note) return true;
    for (int i = 0; i < node->num_inputs; i++)
        if (g->values[oct_graph_input(g, node, i, oct_graph_mode_of(node))].dequantize) return true;
    return false;
}

typedef struct findings {
    oct_text *text;
    const oct_graph *graph;
    int count;
} findings;

/* Begins a finding: its number, and the node that it is about. */
static oct_status begin_finding(findings *f, const oct_graph_node *node)
{
    return oct_text_add(f->text, "  %d. %s: ", ++f->count, oct_report_anchor(node).text);
}

/* The same about a module. */
static oct_status begin_module_finding(findings *f, const oct_module *module)
{
    const oct_path_text path = oct_module_path(module);
    return oct_text_add(f->text, "  %d. %s: ", ++f->count, *path.text ? path.text : "the model");
}

static oct_status add_lone_batch_norm(findings *f, const oct_graph_node *node)
{
    if (node->action == OCT_NODE_ALIAS || strcmp(node->op, "batch_norm") != 0 ||
        is_fallback(f->graph, node))
        return OCT_OK;
    OCT_TRY(begin_finding(f, node));
    return oct_text_add(
        f->text, "this batch norm follows no convolution or linear layer, so it is not fused "
                 "and costs a pass over its input and a rounding of its own; move it right "
                 "after a layer to get it for nothing.\n");
}

/* Whether two float operations that follow each other stay float for one reason: they are one
 * float fallback. */
static bool same_fallback(const oct_graph *g, const oct_graph_node *a, const oct_graph_node *b)
{
    const char *x = a->note ? a->note : "", *y = b->note ? b->note : "";
    return is_fallback(g, a) && is_fallback(g, b) && strcmp(x, y) == 0;
}

/* The next node that was not fused away, forwards (step 1) or backwards (-1); or NULL. */
static const oct_graph_node *neighbour(const oct_graph *g, const oct_graph_node *node, int step)
{
    const oct_graph_node *end = g->nodes + g->num_nodes;
    do
        node += step;
    while (node >= g->nodes && node < end && node->action == OCT_NODE_ALIAS);
    return node >= g->nodes && node < end ? node : NULL;
}

/* Whether a node of a float fallback reads a value. */
static bool reads_value(const oct_graph *g, const oct_graph_node *first, const oct_graph_node *last,
                        int64_t value)
{
    for (const oct_graph_node *node = first; node && node <= last; node = neighbour(g, node, 1))
        for (int i = 0; i < node->num_inputs; i++)
            if (oct_graph_input(g, node, i, oct_graph_mode_of(node)) == value) return true;
    return false;
}

/* Adds how many numbers are converted around a float fallback. */
static oct_status add_cost(findings *f, const oct_graph_node *first, const oct_graph_node *last)
{
    const oct_graph *g = f->graph;
    int64_t in = 0, out = 0;
    for (int64_t v = 0; v < (int64_t)g->num_values; v++)
        if (g->values[v].dequantize && reads_value(g, first, last, v))
            in += oct_shape_numel(&g->values[v].shape);
    for (const oct_graph_node *node = first; node && node <= last; node = neighbour(g, node, 1))
        if (g->values[node->output].quantize)
            out += oct_shape_numel(&g->values[node->output].shape);
    if (in > 0)
        OCT_TRY(oct_text_add(
            f->text, "; for each sample, %" PRId64 " codes are turned into floats before it", in));
    if (out > 0)
        OCT_TRY(oct_text_add(f->text, "%s %" PRId64 " floats are quantized after it",
                             in > 0 ? " and" : "; for each sample,", out));
    return oct_text_add(f->text, ".\n");
}

/* Says at the first operation of a float fallback how far it reaches, why, and what it costs. */
static oct_status add_fallback(findings *f, const oct_graph_node *node)
{
    const oct_graph *g = f->graph;
    const oct_graph_node *last = node, *next, *before = neighbour(g, node, -1);
    int count = 1;
    if (!is_fallback(g, node) || (before && same_fallback(g, before, node))) return OCT_OK;
    for (; (next = neighbour(g, last, 1)) && same_fallback(g, node, next); count++)
        last = next;
    const char *note = node->note ? node->note : "stays float";
    if (count == 1) {
        OCT_TRY(begin_finding(f, node));
        OCT_TRY(oct_text_add(f->text, "%s", note));
    } else {
        OCT_TRY(oct_text_add(f->text, "  %d. %s to %s (%d operations): each %s", ++f->count,
                             oct_report_anchor(node).text, oct_report_anchor(last).text, count,
                             note));
    }
    return add_cost(f, node, last);
}

static oct_status add_note(findings *f, const oct_graph_node *node)
{
    if (!node->note || is_fallback(f->graph, node)) return OCT_OK;
    OCT_TRY(begin_finding(f, node));
    return oct_text_add(f->text, "%s.\n", node->note);
}

/* Says what is unusual about the codes that a module makes. */
static oct_status add_codes(findings *f, const oct_graph_node *node)
{
    const oct_graph_value *value = &f->graph->values[node->output];
    const oct_fake_quant *fq = value->fq;
    if (node->action != OCT_NODE_RUN || !value->codes || !fq || fq->base.parent != node->module)
        return OCT_OK;
    if (fq->fixed || fq->qconfig.fixed_scale) {
        OCT_TRY(begin_finding(f, node));
        OCT_TRY(oct_text_add(
            f->text, fq->fixed ? "its scale is given by what it computes, so it observes nothing.\n"
                               : "its scale stays as calibration left it, as its qconfig asks.\n"));
    }
    if (fq->qconfig.bits == 8) return OCT_OK;
    OCT_TRY(begin_finding(f, node));
    return oct_text_add(
        f->text,
        "its output has %d-bit codes, as its qconfig asks; what reads it multiplies "
        "two bytes for each number.\n",
        fq->qconfig.bits);
}

static oct_status add_float_output(findings *f, const oct_graph_node *node)
{
    if (!oct_report_in_integers(f->graph, node) || f->graph->values[node->output].codes ||
        oct_report_is_stub(node) || oct_report_makes_class_numbers(node))
        return OCT_OK;
    OCT_TRY(begin_finding(f, node));
    return oct_text_add(f->text, "returns its result unquantized, in full precision, because a "
                                 "DeQuantStub or the end of the model follows.\n");
}

/* The quantizer of what this call of a module computes; NULL: it stays float. */
static const oct_fake_quant *quantizer_of(const oct_graph *g, const oct_graph_node *call)
{
    int64_t output = g->nodes[call->runs_at].output;
    return g->values[oct_graph_resolve(g, output, oct_graph_mode_of(call))].fq;
}

/* Lists, at the first call of a module, where its calls are computed. */
static oct_status add_shared(findings *f, const oct_graph_node *node)
{
    const oct_graph *g = f->graph;
    const oct_graph_node *end = g->nodes + g->num_nodes;
    int calls = 0;
    bool one_range = quantizer_of(g, node);
    for (const oct_graph_node *n = g->nodes; node->called && n < end; n++) {
        if (n->called != node->called) continue;
        if (n < node) return OCT_OK; /* said there */
        one_range &= quantizer_of(g, n) == quantizer_of(g, node);
        calls++;
    }
    if (calls < 2) return OCT_OK;
    OCT_TRY(begin_module_finding(f, node->called));
    OCT_TRY(oct_text_add(f->text,
                         "is called %d times, with one set of weights if it has any; the calls are "
                         "computed at",
                         calls));
    for (const oct_graph_node *n = node; n < end; n++)
        if (n->called == node->called)
            OCT_TRY(oct_text_add(f->text, "%s %s", n == node ? "" : ",",
                                 oct_report_anchor(&g->nodes[n->runs_at]).text));
    return oct_text_add(f->text, one_range ? ", all with one range.\n"
                                           : ", each with a range of its own.\n");
}

/* Warns of a plug-in's weight scale that leaves the largest weight a code below 4, of 127. */
static oct_status add_coarse_weights(findings *f, const oct_graph_node *node)
{
    if (node->action != OCT_NODE_RUN || node->module->type != &oct_qat_conv_type) return OCT_OK;
    const oct_weight_fake_quant *wq =
        (const oct_weight_fake_quant *)((const oct_qat_conv *)node->module)->weight_fake_quant;
    if (!wq || wq->kind == &oct_fake_quant_affine) return OCT_OK;
    const oct_tensor *weight = &wq->weight->value;
    const float codes = OCT_WEIGHT_CODES * oct_weight_scale(oct_f32(weight), oct_numel(weight)) /
                        wq->kind->weight_scale(oct_f32(weight), oct_numel(weight));
    if (!(codes < 4)) return OCT_OK;
    OCT_TRY(begin_finding(f, node));
    return oct_text_add(f->text,
                        "the fake-quant '%s' gives its weights a scale with which the largest has "
                        "the code %.0f of 127, so they lose nearly all of their precision.\n",
                        wq->kind->name, (double)codes);
}

/* Whether a node or a stub of the graph is, or calls, this module. */
static bool is_in_graph(const oct_graph *g, const oct_module *module)
{
    for (size_t i = 0; i < g->num_nodes; i++)
        if (g->nodes[i].called == module || g->nodes[i].module == module) return true;
    for (size_t i = 0; i < g->num_values; i++)
        if (g->values[i].quantize == module || g->values[i].dequantize == module) return true;
    return false;
}

/* Says that the forward never called a module, unless it is inside of a quantized one. */
static oct_status add_uncalled(void *user, oct_module *module)
{
    findings *f = user;
    if (!module->type->atomic || is_in_graph(f->graph, module)) return OCT_OK;
    for (const oct_module *m = module->parent; m; m = m->parent)
        if (m->type->atomic) return OCT_OK; /* it belongs to a quantized module */
    OCT_TRY(begin_module_finding(f, module));
    return oct_text_add(f->text, "is never called by the forward on the example, so it was left as "
                                 "it is; remove it, or call it.\n");
}

static oct_status add_branching(findings *f)
{
    const oct_graph *g = f->graph;
    int evaluation = g->num_inputs[OCT_MODE_EVALUATION], all = g->num_inputs[OCT_MODE_TRAINING];
    if (!oct_graph_branches(g)) return OCT_OK;
    OCT_TRY(oct_text_add(f->text,
                         "  %d. %s: the forward does other things in training mode than in "
                         "evaluation; both were recorded, and what evaluation does is deployed",
                         ++f->count, g->root->type->name));
    if (all == evaluation + 1)
        OCT_TRY(oct_text_add(f->text, "; input %d is for training only", evaluation));
    if (all > evaluation + 1)
        OCT_TRY(
            oct_text_add(f->text, "; inputs %d to %d are for training only", evaluation, all - 1));
    return oct_text_add(f->text, ".\n");
}

oct_status oct_report_findings(oct_text *text, const oct_graph *g)
{
    static oct_status (*const add[])(findings *, const oct_graph_node *) = {
        add_lone_batch_norm, add_fallback, add_note,           add_codes,
        add_float_output,    add_shared,   add_coarse_weights,
    };
    findings f = {.text = text, .graph = g};
    OCT_TRY(oct_text_add(text, "\nFindings\n\n"));
    for (size_t i = 0; i < g->num_nodes; i++)
        for (size_t k = 0; k < OCT_COUNT(add); k++)
            OCT_TRY(add[k](&f, &g->nodes[i]));
    for (size_t i = 0; i < g->num_blocks; i++) {
        OCT_TRY(begin_module_finding(&f, g->blocks[i].module));
        OCT_TRY(oct_text_add(text,
                             "the dynamic block '%s' may run any number of times; all its runs use "
                             "the same modules and ranges.\n",
                             g->blocks[i].name));
    }
    OCT_TRY(oct_module_walk(g->root, add_uncalled, &f));
    OCT_TRY(add_branching(&f));
    return f.count > 0 ? OCT_OK
                       : oct_text_add(text, "  None: every operation computes in integers.\n");
}
