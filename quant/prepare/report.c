/* The check report: what was prepared, a table of what became of each call site, and findings. It
 * holds nothing that moves (no date, no range), so the same model gives the same bytes. And the module tree. */
#include "quant/prepare/report.h"

#include "core/base/mem.h"
#include "quant/module/rule.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const method_words[OCT_METHODS] = {
    [OCT_METHOD_JIT_STRIP] = "your forward runs; what lies between QuantStubs and DeQuantStubs is "
                             "quantized",
    [OCT_METHOD_JIT] = "your forward runs; whatever can be quantized is quantized",
    [OCT_METHOD_SYMBOLIC] = "the recorded graph runs in place of your forward",
    [OCT_METHOD_EAGER] = "your forward runs; stubs and fusions are those that you placed",
};

/* Adds the line about the scales of weights. */
static oct_status add_weights(oct_text *text, const oct_graph *g)
{
    size_t custom = 0, by_target = 0;
    const oct_weight_fake_quant *last = NULL;
    for (size_t i = 0; i < g->num_nodes; i++) {
        const oct_module *m = g->nodes[i].module;
        if (g->nodes[i].action != OCT_NODE_RUN || m->type != &oct_qat_conv_type) continue;
        const oct_weight_fake_quant *wq =
            (const oct_weight_fake_quant *)((const oct_qat_conv *)m)->weight_fake_quant;
        by_target += wq && wq->by_target;
        if (!wq || wq->kind == &oct_fake_quant_affine) continue;
        last = wq;
        custom++;
    }
    OCT_TRY(oct_text_add(text, "  %-10s s8, ", "weights"));
    if (custom > 0)
        OCT_TRY(oct_text_add(text, "those of %zu layers by the fake-quant %s%s; otherwise ", custom,
                             last->kind->name, last->scale ? ", which learns its scales" : ""));
    if (by_target > 0)
        OCT_TRY(oct_text_add(
            text, "in %zu layers one scale for all, as the target wants; otherwise ", by_target));
    return oct_text_add(text, "one scale for each output channel, from the weights of each step\n");
}

/* Adds what was prepared for what target, and how many operations compute in integers. */
static oct_status add_head(oct_text *text, const oct_graph *g)
{
    size_t nodes = 0, integers = 0, for_training = 0;
    for (size_t i = 0; i < g->num_nodes; i++) {
        const oct_graph_node *node = &g->nodes[i];
        if (oct_report_is_identity(node) || oct_report_is_stub(node)) continue;
        for_training += !node->in[OCT_MODE_EVALUATION];
        nodes += node->in[OCT_MODE_EVALUATION];
        integers += node->in[OCT_MODE_EVALUATION] && oct_report_in_integers(g, node);
    }
    OCT_TRY(oct_text_add(text,
                         "Check report of prepare\n\n  %-10s %s\n  %-10s %s: %s\n  %-10s %s: %s\n",
                         "model", g->root->type->name, "target", g->target->name, g->target->help,
                         "method", oct_method_name(g->method), method_words[g->method]));
    OCT_TRY(oct_text_add(text, "  %-10s %zu operations, %zu in integers, %zu in float\n", "outcome",
                         nodes, integers, nodes - integers));
    if (for_training > 0)
        OCT_TRY(oct_text_add(text, "  %-10s %zu more operations, which are not deployed\n",
                             "training", for_training));
    return add_weights(text, g);
}

enum { ANCHOR, BECOMES, FUSION, CODES, DECIDER, COMPUTES, COLUMNS };

enum { CELL_BYTES = 400 };
typedef struct row {
    char cell[COLUMNS][CELL_BYTES];
} row;
#define CELL(r, column, ...) oct_snprintf((r)->cell[column], CELL_BYTES, __VA_ARGS__)

typedef struct table {
    const oct_graph *graph;
    row *rows;
    size_t count, capacity;
    bool deciders; /* not all modules have their qconfig from one setter */
} table;

static oct_status new_row(table *t, row **made)
{
    OCT_TRY(oct_grow(&t->rows, &t->capacity, t->count + 1, sizeof(row)));
    *made = &t->rows[t->count++];
    **made = (row){0};
    return OCT_OK;
}

/* Says where the codes that `maker` makes get their scale from; fq NULL: they are no codes. */
static void write_codes(row *r, const oct_fake_quant *fq, const oct_module *maker)
{
    if (!fq)
        CELL(r, CODES, "float");
    else if (fq->fixed)
        CELL(r, CODES, "u%d, scale given", fq->qconfig.bits);
    else if (fq->base.parent != maker)
        CELL(r, CODES, "u%d, shared with %s", fq->qconfig.bits,
             oct_module_path(fq->base.parent).text);
    else
        CELL(r, CODES, "u%d, own range (%s)%s", fq->qconfig.bits, fq->qconfig.observer->name,
             fq->qconfig.fixed_scale ? ", stays as calibrated" : "");
}

/* Writes the fusion "conv_bn_relu" of a node as "conv + bn + relu". Of modules that oct_fuse_modules has fused no node
 * records one: there the module's description begins with it, up to the first comma. */
static void write_fusion(row *r, const oct_graph_node *node)
{
    char *cell = r->cell[FUSION];
    size_t length = 0;
    for (const char *c = node->fusion; c && *c && length + 4 < CELL_BYTES; c++)
        length += (size_t)snprintf(cell + length, CELL_BYTES - length, "%s",
                                   *c == '_' ? " + " : (char[]){*c, '\0'});
    if (node->fusion || !node->module) return;
    oct_module_describe(node->module, cell, CELL_BYTES);
    cell[strcspn(cell, ",")] = '\0';
    if (!strstr(cell, " + ")) cell[0] = '\0';
}

/* Adds a stub that prepare generated after a value. */
static oct_status add_stub(table *t, const oct_module *stub, const oct_fake_quant *fq)
{
    row *r;
    OCT_TRY(new_row(t, &r));
    CELL(r, ANCHOR, "%s", oct_module_path(stub).text);
    CELL(r, BECOMES, "%s", stub->type->name);
    write_codes(r, fq, stub);
    CELL(r, COMPUTES, fq ? "quantizes" : "to float");
    return OCT_OK;
}

static oct_status add_stubs(table *t, const oct_graph_value *value)
{
    if (value->quantize) OCT_TRY(add_stub(t, value->quantize, value->fq));
    if (value->dequantize) OCT_TRY(add_stub(t, value->dequantize, NULL));
    return OCT_OK;
}

/* In what arithmetic a node computes. */
static const char *arithmetic_of(const oct_graph *g, const oct_graph_node *node)
{
    if (oct_report_is_stub(node))
        return node->module->type == &oct_quant_stub_type ? "quantizes" : "to float";
    if (!oct_report_in_integers(g, node)) return "float";
    return g->values[node->output].codes || oct_report_makes_class_numbers(node)
               ? "integers"
               : "integers, float out";
}

/* Adds the row of a node, and those of the stubs after it. */
static oct_status add_node(table *t, const oct_graph_node *node)
{
    row *r;
    const oct_graph *g = t->graph;
    const char *mode = !node->in[OCT_MODE_EVALUATION] ? ", in training only"
                       : !node->in[OCT_MODE_TRAINING] ? ", in evaluation only"
                                                      : "";
    const oct_graph_value *output = &g->values[node->output];
    OCT_TRY(new_row(t, &r));
    CELL(r, ANCHOR, "%s", oct_report_anchor(node).text);
    if (oct_report_is_identity(node)) {
        const oct_graph_node *at = &g->nodes[node->runs_at];
        if (at == node)
            CELL(r, BECOMES, "passes its input on");
        else
            CELL(r, BECOMES, "part of %s", oct_report_anchor(at).text);
        return node->action == OCT_NODE_ALIAS ? OCT_OK : add_stubs(t, output);
    }
    CELL(r, BECOMES, "%s", node->module ? node->module->type->name : node->op);
    write_fusion(r, node);
    write_codes(r, output->codes ? output->fq : NULL, node->module);
    if (oct_report_makes_class_numbers(node)) CELL(r, CODES, "class numbers");
    if (t->deciders && node->decider) CELL(r, DECIDER, "%s", node->decider);
    CELL(r, COMPUTES, "%s%s", arithmetic_of(g, node), mode);
    return add_stubs(t, output);
}

/* Fills the table: a title, the stubs after inputs, a row for each node. */
static oct_status fill_table(table *t)
{
    row *head;
    const oct_graph *g = t->graph;
    const char *one = NULL;
    for (size_t i = 0; i < g->num_nodes; i++) {
        const char *decider = g->nodes[i].decider;
        t->deciders |= one && decider && strcmp(one, decider) != 0;
        if (decider) one = decider;
    }
    OCT_TRY(new_row(t, &head));
    *head = (row){
        {"module", "becomes", "fused from", "codes of its output", [COMPUTES] = "computes in"}};
    if (t->deciders) CELL(head, DECIDER, "qconfig from");
    for (int i = 0; i < g->num_inputs[OCT_MODE_TRAINING]; i++)
        OCT_TRY(add_stubs(t, &g->values[g->inputs[i]]));
    for (size_t i = 0; i < g->num_nodes; i++)
        OCT_TRY(add_node(t, &g->nodes[i]));
    return OCT_OK;
}

/* Prints the rows in columns as wide as their longest cell, but for what reaches over empty cells. */
static oct_status print_table(oct_text *text, const table *t)
{
    int widths[COLUMNS] = {0};
    for (const row *r = t->rows; r < t->rows + t->count; r++)
        for (int c = 0; c < COLUMNS; c++) {
            int width = (int)strlen(r->cell[c]);
            bool overhangs = c == BECOMES && !r->cell[CODES][0]; /* into the next columns */
            if (width > widths[c] && !overhangs) widths[c] = width;
        }
    for (const row *r = t->rows; r < t->rows + t->count; r++) {
        const size_t begin = text->length;
        for (int c = 0; c < COLUMNS; c++)
            if (widths[c] > 0) OCT_TRY(oct_text_add(text, "  %-*s", widths[c], r->cell[c]));
        while (text->length > begin && text->data[text->length - 1] == ' ')
            text->data[--text->length] = '\0';
        OCT_TRY(oct_text_add(text, "\n"));
    }
    return OCT_OK;
}

static const char words[] =
    "\nWords\n\n"
    "  u8, u16      numbers kept as codes of 8 or 16 bits: real value = scale * (code - "
    "zero_point)\n"
    "  own range    the scale follows from the smallest and largest values that training sees "
    "here\n"
    "  shared with  tensors with one scale, so that numbers pass between them unchanged\n"
    "  part of      computed inside of the module that is named, without rounding in between\n";

oct_status oct_report_write(oct_text *text, const oct_module *root)
{
    const oct_graph *graph = oct_graph_of(root);
    OCT_CHECK(graph, OCT_USAGE, "the model is not prepared, so there is nothing to report");
    table t = {.graph = graph};
    OCT_TRY(add_head(text, graph));
    OCT_TRY(oct_text_add(text, "\nModules, in the order in which they run\n\n"));
    oct_status status = fill_table(&t);
    if (status == OCT_OK) status = print_table(text, &t);
    oct_free(&t.rows);
    OCT_TRY(status);
    OCT_TRY(oct_report_findings(text, graph));
    return oct_text_add(text, "%s", words);
}

/* The module tree: a module on each line, with the quantizer of each tensor and of each weight where it belongs. */

/* Writes by what scales weights are quantized in the next step. */
static oct_status add_weight_line(oct_text *text, const oct_qat_conv *conv, int depth)
{
    const oct_weight_fake_quant *wq = (const oct_weight_fake_quant *)conv->weight_fake_quant;
    const int64_t channels = oct_dim(&oct_layer_weight(conv->layer)->value, 0);
    float *scale = NULL, min = INFINITY, max = 0;
    OCT_TRY(oct_alloc(&scale, (size_t)channels, sizeof *scale));
    oct_qat_conv_weight_scales(conv, scale);
    for (int64_t c = 0; c < channels; c++) {
        min = fminf(min, scale[c]);
        max = fmaxf(max, scale[c]);
    }
    oct_free(&scale);
    OCT_TRY(oct_text_add(text, "%*s(weight_fake_quant): fake_quant(", 2 * depth, ""));
    if (wq)
        OCT_TRY(oct_text_add(text, "kind=%s%s, ", wq->kind->name, wq->scale ? ", learned" : ""));
    return oct_text_add(text,
                        "dtype=s8, codes=-127..127, scheme=%s_symmetric, ch_axis=0, channels=%lld, "
                        "scale=%.6g..%.6g, zero_point=0)\n",
                        wq && wq->per_tensor ? "per_tensor" : "per_channel", (long long)channels,
                        (double)min, (double)max);
}

/* Whether prepare has given this module its place in the model. */
static bool is_prepared(const oct_module *module)
{
    return oct_is_quantized(module) && ((const oct_quantized *)module)->target;
}

static oct_status add_module(oct_text *text, const oct_module *module, int depth);

/* Adds the modules and quantizers below a module. */
static oct_status add_children(oct_text *text, const oct_module *module, int depth)
{
    const oct_qat_conv *conv =
        module->type == &oct_qat_conv_type ? (const oct_qat_conv *)module : NULL;
    if (conv && conv->borrows)
        OCT_TRY(oct_text_add(text, "%*s(weights): those of %s\n", 2 * depth, "",
                             oct_module_path(conv->layer->parent).text));
    for (size_t i = 0; i < module->num_children; i++)
        if ((*module->children[i].slot)->type != &oct_weight_fake_quant_type)
            OCT_TRY(add_module(text, *module->children[i].slot, depth));
    const oct_module *fq = is_prepared(module) ? ((const oct_quantized *)module)->fake_quant : NULL;
    if (is_prepared(module) && (!fq || fq->parent != module)) /* not one of its children */
        OCT_TRY(oct_text_add(text, "%*s(fake_quant): %s%s\n", 2 * depth, "",
                             fq ? "shared with " : "none, the output stays float",
                             fq ? oct_module_path(fq->parent).text : ""));
    if (conv && !conv->borrows) OCT_TRY(add_weight_line(text, conv, depth));
    return OCT_OK;
}

/* Adds a module with everything below it. */
static oct_status add_module(oct_text *text, const oct_module *module, int depth)
{
    char about[512];
    OCT_TRY(oct_text_add(text, "%*s", 2 * depth, ""));
    if (module->parent) OCT_TRY(oct_text_add(text, "(%s): ", module->name));
    oct_module_describe(module, about, sizeof(about));
    OCT_TRY(oct_text_add(text, "%s(%s", module->type->name, about));
    if (module->num_children == 0 && !is_prepared(module)) return oct_text_add(text, ")\n");
    OCT_TRY(oct_text_add(text, "\n"));
    OCT_TRY(add_children(text, module, depth + 1));
    return oct_text_add(text, "%*s)\n", 2 * depth, "");
}

oct_status oct_tree_write(oct_text *text, const oct_module *root)
{
    return add_module(text, root, 0);
}
