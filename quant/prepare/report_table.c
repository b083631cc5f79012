/* The check report's table: what became of each call site, a line each. */
#include "quant/prepare/report_impl.h"

#include "core/base/mem.h"

#include <stdio.h>
#include <string.h>

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
    char path[256];
    if (!fq)
        CELL(r, CODES, "float");
    else if (fq->fixed)
        CELL(r, CODES, "u%d, scale given", fq->qconfig.bits);
    else if (fq->base.parent != maker)
        CELL(r, CODES, "u%d, shared with %s", fq->qconfig.bits,
             oct_module_path(fq->base.parent, path));
    else
        CELL(r, CODES, "u%d, own range (%s)%s", fq->qconfig.bits, fq->qconfig.observer->name,
             fq->qconfig.fixed_scale ? ", stays as calibrated" : "");
}

/* Writes "conv_bn_relu" as "conv + bn + relu". A module that was fused by name says it of itself,
 * up to the first comma, since no node of the graph does. */
static void write_fusion(row *r, const oct_graph_node *node)
{
    char *cell = r->cell[FUSION];
    size_t length = 0;
    for (const char *c = node->fusion; c && *c && length + 4 < CELL_BYTES; c++)
        length +=
            (size_t)snprintf(cell + length, CELL_BYTES - length, *c == '_' ? " + " : "%c", *c);
    if (node->fusion || !node->module || !node->module->type->describe) return;
    node->module->type->describe(node->module, cell, CELL_BYTES);
    cell[strcspn(cell, ",")] = '\0';
    if (!strstr(cell, " + ")) cell[0] = '\0';
}

/* Adds a stub that prepare generated after a value. */
static oct_status add_stub(table *t, const oct_module *stub, const oct_fake_quant *fq)
{
    row *r;
    char path[256];
    OCT_TRY(new_row(t, &r));
    CELL(r, ANCHOR, "%s", oct_module_path(stub, path));
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

static const char *arithmetic_of(const oct_graph *g, const oct_graph_node *node)
{
    if (oct_report_is_stub(node))
        return node->module->type == &oct_quant_stub_type ? "quantizes" : "to float";
    if (!oct_report_in_integers(g, node)) return "float";
    return oct_report_output(g, node)->codes || oct_report_makes_class_numbers(node)
               ? "integers"
               : "integers, float out";
}

static const char *mode_of(const oct_graph_node *node)
{
    if (!node->in[OCT_MODE_EVALUATION]) return ", in training only";
    return node->in[OCT_MODE_TRAINING] ? "" : ", in evaluation only";
}

/* Fills the row of a node that computes nothing. */
static void write_identity(const oct_graph *g, const oct_graph_node *node, row *r)
{
    char anchor[OCT_ANCHOR_BYTES];
    const oct_graph_node *at = &g->nodes[node->runs_at];
    if (at == node)
        CELL(r, BECOMES, "passes its input on");
    else
        CELL(r, BECOMES, "part of %s", oct_report_anchor(at, anchor));
}

static oct_status add_node(table *t, const oct_graph_node *node)
{
    row *r;
    const oct_graph *g = t->graph;
    const oct_graph_value *output = oct_report_output(g, node);
    OCT_TRY(new_row(t, &r));
    oct_report_anchor(node, r->cell[ANCHOR]);
    if (oct_report_is_identity(node)) {
        write_identity(g, node, r);
        return node->action == OCT_NODE_ALIAS ? OCT_OK : add_stubs(t, output);
    }
    CELL(r, BECOMES, "%s", node->module ? node->module->type->name : node->op);
    write_fusion(r, node);
    write_codes(r, output->codes ? output->fq : NULL, node->module);
    if (oct_report_makes_class_numbers(node)) CELL(r, CODES, "class numbers");
    if (t->deciders && node->decider) CELL(r, DECIDER, "%s", node->decider);
    CELL(r, COMPUTES, "%s%s", arithmetic_of(g, node), mode_of(node));
    return add_stubs(t, output);
}

static bool many_decide(const oct_graph *g)
{
    const char *one = NULL;
    for (size_t i = 0; i < g->num_nodes; i++) {
        const char *decider = g->nodes[i].decider;
        if (one && decider && strcmp(one, decider) != 0) return true;
        if (decider) one = decider;
    }
    return false;
}

static oct_status fill_table(table *t)
{
    row *head;
    const oct_graph *g = t->graph;
    t->deciders = many_decide(g);
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

static oct_status print_row(oct_text *text, const row *r, const int widths[COLUMNS])
{
    size_t begin = text->length;
    for (int c = 0; c < COLUMNS; c++)
        if (widths[c] > 0) OCT_TRY(oct_text_add(text, "  %-*s", widths[c], r->cell[c]));
    while (text->length > begin && text->data[text->length - 1] == ' ')
        text->data[--text->length] = '\0';
    return oct_text_add(text, "\n");
}

static oct_status print_table(oct_text *text, const table *t)
{
    int widths[COLUMNS] = {0};
    for (const row *r = t->rows; r < t->rows + t->count; r++)
        for (int c = 0; c < COLUMNS; c++) {
            int width = (int)strlen(r->cell[c]);
            bool overhangs = c == BECOMES && !r->cell[CODES][0]; /* into the next columns */
            if (width > widths[c] && !overhangs) widths[c] = width;
        }
    for (size_t i = 0; i < t->count; i++)
        OCT_TRY(print_row(text, &t->rows[i], widths));
    return OCT_OK;
}

oct_status oct_report_table(oct_text *text, const oct_graph *g)
{
    table t = {.graph = g};
    OCT_TRY(oct_text_add(text, "\nModules, in the order in which they run\n\n"));
    oct_status status = fill_table(&t);
    if (status == OCT_OK) status = print_table(text, &t);
    oct_free(&t.rows);
    return status;
}
