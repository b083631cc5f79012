/* The check report: a table of what became of each module, then what there is to say about it. It holds
 * nothing that moves (no date, no range), so the same model gives the same bytes. */
#include "quant/pass/prepare/report.h"

#include "core/base/mem.h"
#include "quant/module/rule.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const method_words[OCT_METHODS] = {
    [OCT_METHOD_JIT_STRIP] = "your forward runs; what lies between QuantStubs and DeQuantStubs is "
                             "quantized",
    [OCT_METHOD_JIT] = "your forward runs; all of it is quantized that can be",
    [OCT_METHOD_SYMBOLIC] = "the recorded graph runs in place of your forward",
    [OCT_METHOD_EAGER] = "your forward runs; stubs and fusions are those that you placed",
};

/* What is asked about a node more than once. */

static const oct_graph_value *output_of(const oct_graph *g, const oct_graph_node *node)
{
    return &g->values[node->output];
}

static const oct_graph_node *producer_of(const oct_graph *g, int64_t value)
{
    int64_t producer = g->values[value].producer;
    return producer < 0 ? NULL : &g->nodes[producer];
}

static bool in_integers(const oct_graph *g, const oct_graph_node *node)
{
    return node->action == OCT_NODE_RUN &&
           (node->wants == OCT_WANTS_CODES || output_of(g, node)->codes);
}

/* Its output is class numbers. */
static bool makes_numbers(const oct_graph_node *node)
{
    const oct_module_type *type = oct_module_type_find(node->op);
    const oct_quant_rule *rule = type ? oct_quant_rule_find(type) : NULL;
    return rule && rule->scale == OCT_SCALE_NONE;
}

static bool is_stub(const oct_graph_node *node)
{
    const oct_module_type *type = node->module ? node->module->type : NULL;
    return type == &oct_quant_stub_type || type == &oct_dequant_stub_type;
}

/* Nothing is computed here: the user's own identity, or what is left of a module fused by name. */
static bool hands_on(const oct_graph_node *node)
{
    return node->action == OCT_NODE_ALIAS ||
           (node->module && node->module->type == &oct_identity_type);
}

/* A float operation in the middle of integers. */
static bool is_island(const oct_graph *g, const oct_graph_node *node)
{
    if (node->action == OCT_NODE_ALIAS || in_integers(g, node) || is_stub(node)) return false;
    if (output_of(g, node)->quantize || node->note) return true;
    for (int i = 0; i < node->num_inputs; i++)
        if (g->values[oct_graph_input(g, node, i, oct_graph_mode_of(node))].dequantize) return true;
    return false;
}

/* The place in the model: a module's path, or an operation in its caller's forward. */
static const char *place_of(const oct_graph_node *node, char text[320])
{
    char path[256];
    if (node->module)
        snprintf(text, 320, "%s", oct_module_path(node->module, path));
    else if (node->called)
        snprintf(text, 320, "%s", node->path);
    else
        snprintf(text, 320, "%s%s%s()", node->path, node->path[0] ? "." : "", node->op);
    return text;
}

/* As the forward names it. */
static const char *called_name(const oct_graph_node *node, char text[320])
{
    if (node->called)
        snprintf(text, 320, "%s", node->path);
    else
        snprintf(text, 320, "%s%s%s()", node->path, node->path[0] ? "." : "", node->op);
    return text;
}

static bool is_layer(const char *op)
{
    return strcmp(op, "conv2d") == 0 || strcmp(op, "conv_transpose2d") == 0 ||
           strcmp(op, "linear") == 0;
}

static const oct_graph_node *handed_on_by(const oct_graph *g, const oct_graph_node *node)
{
    return producer_of(g, node->called_input[oct_graph_mode_of(node)][0]);
}

/* Whether a node that was fused away went into one that comes later: the members before an add, whose
 * fused module runs where the add was. */
static bool fused_forward(const oct_graph *g, const oct_graph_node *node)
{
    while (node && node->action == OCT_NODE_ALIAS) {
        if (is_layer(node->op)) return true;
        node = handed_on_by(g, node);
    }
    return false;
}

static const oct_graph_node *user_of(const oct_graph *g, const oct_graph_node *node)
{
    for (const oct_graph_node *user = node + 1; user < g->nodes + g->num_nodes; user++)
        for (int i = 0; i < user->num_inputs; i++)
            if (user->called_input[oct_graph_mode_of(user)][i] == node->output) return user;
    return NULL;
}

/* The node that computes what this one would have. */
static const oct_graph_node *fused_into(const oct_graph *g, const oct_graph_node *node)
{
    bool forward = fused_forward(g, node);
    while (node && node->action == OCT_NODE_ALIAS)
        node = forward ? user_of(g, node) : handed_on_by(g, node);
    return node;
}

/* The table. */

/* How the codes that `maker` makes get their scale. */
static void scale_words(const oct_fake_quant *fq, const oct_module *maker, char text[400])
{
    char path[256];
    int bits = fq ? fq->qconfig.bits : 0;
    if (!fq)
        snprintf(text, 400, "float");
    else if (fq->fixed)
        snprintf(text, 400, "u%d, scale given", bits);
    else if (fq->base.parent != maker)
        snprintf(text, 400, "u%d, shared with %s", bits, oct_module_path(fq->base.parent, path));
    else
        snprintf(text, 400, "u%d, own range (%s)%s", bits, fq->qconfig.observer->name,
                 fq->qconfig.fixed_scale ? ", stays as calibrated" : "");
}

static const char *arithmetic(const oct_graph *g, const oct_graph_node *node)
{
    if (is_stub(node)) return node->module->type == &oct_quant_stub_type ? "quantizes" : "to float";
    if (in_integers(g, node))
        return output_of(g, node)->codes || makes_numbers(node) ? "integers"
                                                                : "integers, float out";
    return "float";
}

/* "conv_bn_relu" as "conv + bn + relu". */
static const char *fusion_words(const char *fusion, char text[320])
{
    size_t length = 0;
    text[0] = '\0';
    for (; fusion && *fusion && length + 4 < 320; fusion++)
        length +=
            (size_t)snprintf(text + length, 320 - length, *fusion == '_' ? " + " : "%c", *fusion);
    return text;
}

/* Of a module fused by name, which no node tells: what it says of itself, up to the first comma. */
static const char *own_fusion_words(const oct_module *module, char text[320])
{
    text[0] = '\0';
    if (module && module->type->describe) module->type->describe(module, text, 320);
    text[strcspn(text, ",")] = '\0';
    if (!strstr(text, " + ")) text[0] = '\0';
    return text;
}

enum { PLACE, BECOMES, FUSION, CODES, DECIDER, COLUMNS };

typedef struct row {
    char cell[COLUMNS][400];
    char computes[64];
} row;

typedef struct table {
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

/* A module that prepare put behind a value, to turn it into codes or floats. */
static oct_status add_stub(table *t, const oct_module *stub, const oct_fake_quant *fq)
{
    row *r;
    char path[256];
    OCT_TRY(new_row(t, &r));
    snprintf(r->cell[PLACE], sizeof(r->cell[PLACE]), "%s", oct_module_path(stub, path));
    snprintf(r->cell[BECOMES], sizeof(r->cell[BECOMES]), "%s", stub->type->name);
    scale_words(fq, stub, r->cell[CODES]);
    snprintf(r->computes, sizeof r->computes, "%s", fq ? "quantizes" : "to float");
    return OCT_OK;
}

static oct_status add_stubs(table *t, const oct_graph_value *value)
{
    if (value->quantize) OCT_TRY(add_stub(t, value->quantize, value->fq));
    if (value->dequantize) OCT_TRY(add_stub(t, value->dequantize, NULL));
    return OCT_OK;
}

/* Behind what a row computes in. */
static const char *mode_words(const oct_graph_node *node)
{
    if (!node->in[OCT_MODE_EVALUATION]) return ", in training only";
    return node->in[OCT_MODE_TRAINING] ? "" : ", in evaluation only";
}

static oct_status add_node(table *t, const oct_graph *g, const oct_graph_node *node)
{
    row *r;
    char place[320];
    const oct_graph_value *output = output_of(g, node);
    OCT_TRY(new_row(t, &r));
    if (hands_on(node)) {
        bool part = node->action == OCT_NODE_ALIAS && fused_into(g, node);
        called_name(node, r->cell[PLACE]);
        snprintf(r->cell[BECOMES], sizeof(r->cell[BECOMES]), "%s%s",
                 part ? "part of " : "hands its input on",
                 part ? place_of(fused_into(g, node), place) : "");
        return node->action == OCT_NODE_ALIAS ? OCT_OK : add_stubs(t, output);
    }
    place_of(node, r->cell[PLACE]);
    snprintf(r->cell[BECOMES], sizeof(r->cell[BECOMES]), "%s",
             node->module ? node->module->type->name : node->op);
    if (node->fusion)
        fusion_words(node->fusion, r->cell[FUSION]);
    else
        own_fusion_words(node->module, r->cell[FUSION]);
    if (makes_numbers(node))
        snprintf(r->cell[CODES], sizeof(r->cell[CODES]), "class numbers");
    else
        scale_words(output->codes ? output->fq : NULL, node->module, r->cell[CODES]);
    if (t->deciders && node->decider)
        snprintf(r->cell[DECIDER], sizeof(r->cell[DECIDER]), "%s", node->decider);
    snprintf(r->computes, sizeof r->computes, "%s%s", arithmetic(g, node), mode_words(node));
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

static oct_status fill_table(table *t, const oct_graph *g)
{
    row *head;
    OCT_TRY(new_row(t, &head));
    *head = (row){{"module", "becomes", "fused from", "codes of its output"}, "computes in"};
    t->deciders = many_decide(g);
    if (t->deciders) snprintf(head->cell[DECIDER], sizeof(head->cell[DECIDER]), "qconfig from");
    for (int i = 0; i < g->num_inputs[OCT_MODE_TRAINING]; i++)
        OCT_TRY(add_stubs(t, &g->values[g->inputs[i]]));
    for (size_t i = 0; i < g->num_nodes; i++)
        OCT_TRY(add_node(t, g, &g->nodes[i]));
    return OCT_OK;
}

static oct_status print_row(oct_text *text, const row *r, const int widths[COLUMNS])
{
    size_t begin = text->length;
    for (int c = 0; c < COLUMNS; c++)
        if (widths[c] > 0) OCT_TRY(oct_text_add(text, "  %-*s", widths[c], r->cell[c]));
    OCT_TRY(oct_text_add(text, "  %s", r->computes));
    while (text->length > begin && text->data[text->length - 1] == ' ')
        text->data[--text->length] = '\0';
    return oct_text_add(text, "\n");
}

static oct_status print_table(oct_text *text, const table *t)
{
    int widths[COLUMNS] = {0};
    for (size_t i = 0; i < t->count; i++)
        for (int c = 0; c < COLUMNS; c++) {
            const row *r = &t->rows[i];
            int width = (int)strlen(r->cell[c]);
            bool open = c == BECOMES && !r->cell[CODES][0]; /* may reach into the next ones */
            if (width > widths[c] && !open) widths[c] = width;
        }
    for (size_t i = 0; i < t->count; i++)
        OCT_TRY(print_row(text, &t->rows[i], widths));
    return OCT_OK;
}

static oct_status add_table(oct_text *text, const oct_graph *g)
{
    table t = {0};
    OCT_TRY(oct_text_add(text, "\nModules, in the order in which they run\n\n"));
    oct_status status = fill_table(&t, g);
    if (status == OCT_OK) status = print_table(text, &t);
    oct_free(&t.rows);
    return status;
}

/* The findings: a sentence each. */

typedef struct findings {
    oct_text *text;
    const oct_graph *graph;
    int count;
} findings;

static oct_status begin(findings *f)
{
    return oct_text_add(f->text, "  %d. ", ++f->count);
}

static int64_t numbers_of(const oct_graph *g, int64_t value)
{
    return oct_shape_numel(&g->values[value].shape);
}

static oct_status find_batch_norm(findings *f, const oct_graph_node *node)
{
    char place[320];
    if (node->action == OCT_NODE_ALIAS || strcmp(node->op, "batch_norm") != 0 ||
        is_island(f->graph, node))
        return OCT_OK;
    OCT_TRY(begin(f));
    return oct_text_add(f->text,
                        "%s: this batch norm follows no convolution or linear layer, so it is not "
                        "fused and costs a pass over its input and a rounding of its own; put it "
                        "right behind a layer to have it for nothing.\n",
                        place_of(node, place));
}

/* Float operations that follow each other for one reason are one island. */
static bool same_island(const oct_graph *g, const oct_graph_node *a, const oct_graph_node *b)
{
    const char *x = a->note ? a->note : "", *y = b->note ? b->note : "";
    return is_island(g, a) && is_island(g, b) && strcmp(x, y) == 0;
}

static const oct_graph_node *beside(const oct_graph *g, const oct_graph_node *node, int step)
{
    do
        node += step;
    while (node >= g->nodes && node < g->nodes + g->num_nodes && node->action == OCT_NODE_ALIAS);
    return node >= g->nodes && node < g->nodes + g->num_nodes ? node : NULL;
}

static bool reads(const oct_graph *g, const oct_graph_node *first, const oct_graph_node *last,
                  int64_t value)
{
    for (const oct_graph_node *node = first; node && node <= last; node = beside(g, node, 1))
        for (int i = 0; i < node->num_inputs; i++)
            if (oct_graph_input(g, node, i, oct_graph_mode_of(node)) == value) return true;
    return false;
}

/* What passes between codes and floats around an island. */
static oct_status add_cost(findings *f, const oct_graph_node *first, const oct_graph_node *last)
{
    const oct_graph *g = f->graph;
    int64_t in = 0, out = 0;
    for (int64_t v = 0; v < (int64_t)g->num_values; v++)
        if (g->values[v].dequantize && reads(g, first, last, v)) in += numbers_of(g, v);
    for (const oct_graph_node *node = first; node && node <= last; node = beside(g, node, 1))
        if (output_of(g, node)->quantize) out += numbers_of(g, node->output);
    if (in > 0)
        OCT_TRY(oct_text_add(
            f->text, "; for each sample, %" PRId64 " codes are turned into floats before it", in));
    if (out > 0)
        OCT_TRY(oct_text_add(f->text, "%s %" PRId64 " floats are quantized behind it",
                             in > 0 ? " and" : "; for each sample,", out));
    return oct_text_add(f->text, ".\n");
}

static oct_status find_island(findings *f, const oct_graph_node *node)
{
    const oct_graph *g = f->graph;
    const oct_graph_node *last = node, *next, *before = beside(g, node, -1);
    char place[320];
    int count = 1;
    if (!is_island(g, node) || (before && same_island(g, before, node))) return OCT_OK;
    while ((next = beside(g, last, 1)) && same_island(g, node, next)) {
        last = next;
        count++;
    }
    OCT_TRY(begin(f));
    OCT_TRY(oct_text_add(f->text, "%s", place_of(node, place)));
    if (count > 1)
        OCT_TRY(oct_text_add(f->text, " to %s (%d operations)", place_of(last, place), count));
    OCT_TRY(oct_text_add(f->text, ": %s%s", count > 1 ? "each " : "",
                         node->note ? node->note : "stays float"));
    return add_cost(f, node, last);
}

static oct_status find_remark(findings *f, const oct_graph_node *node)
{
    char place[320];
    if (!node->note || is_island(f->graph, node)) return OCT_OK;
    OCT_TRY(begin(f));
    return oct_text_add(f->text, "%s: %s.\n", place_of(node, place), node->note);
}

static oct_status find_range(findings *f, const oct_graph_node *node)
{
    char place[320];
    const oct_graph_value *value = output_of(f->graph, node);
    const oct_fake_quant *fq = value->fq;
    if (node->action != OCT_NODE_RUN || !value->codes || !fq || fq->base.parent != node->module)
        return OCT_OK;
    place_of(node, place);
    if (fq->fixed) {
        OCT_TRY(begin(f));
        OCT_TRY(oct_text_add(
            f->text, "%s: its scale is given by what it computes; it observes nothing.\n", place));
    } else if (fq->qconfig.fixed_scale) {
        OCT_TRY(begin(f));
        OCT_TRY(oct_text_add(f->text,
                             "%s: its scale stays as calibration leaves it, as its qconfig asks.\n",
                             place));
    }
    if (fq->qconfig.bits == 8) return OCT_OK;
    OCT_TRY(begin(f));
    return oct_text_add(f->text,
                        "%s: its output has %d-bit codes, as its qconfig asks; what reads it "
                        "multiplies two bytes a number.\n",
                        place, fq->qconfig.bits);
}

static oct_status find_float_output(findings *f, const oct_graph_node *node)
{
    char place[320];
    if (!in_integers(f->graph, node) || output_of(f->graph, node)->codes || is_stub(node) ||
        makes_numbers(node))
        return OCT_OK;
    OCT_TRY(begin(f));
    return oct_text_add(f->text,
                        "%s: hands over its result unquantized, in full precision, since a "
                        "DeQuantStub or the end of the model follows.\n",
                        place_of(node, place));
}

/* The node that computes what this call of a module asks for. */
static const oct_graph_node *computed_at(const oct_graph *g, const oct_graph_node *node)
{
    return node->action == OCT_NODE_ALIAS ? fused_into(g, node) : node;
}

/* One range at all places that compute calls of this module. */
static bool one_range(const oct_graph *g, const oct_module *called)
{
    const oct_fake_quant *range = NULL;
    for (const oct_graph_node *n = g->nodes; n < g->nodes + g->num_nodes; n++) {
        const oct_graph_node *at = n->called == called ? computed_at(g, n) : NULL;
        if (!at) continue;
        if (range && output_of(g, at)->fq != range) return false;
        range = output_of(g, at)->fq;
    }
    return range != NULL;
}

/* A line at the first call, with all places. */
static oct_status find_shared(findings *f, const oct_graph_node *node)
{
    const oct_graph *g = f->graph;
    char place[320];
    int calls = 0;
    if (!node->called) return OCT_OK;
    for (const oct_graph_node *n = g->nodes; n < g->nodes + g->num_nodes; n++) {
        if (n->called != node->called) continue;
        if (n < node) return OCT_OK; /* said there */
        calls++;
    }
    if (calls < 2) return OCT_OK;
    OCT_TRY(begin(f));
    OCT_TRY(oct_text_add(f->text,
                         "%s: is called %d times, with one set of weights if it has any, "
                         "and computed at",
                         node->path, calls));
    for (const oct_graph_node *n = node; n < g->nodes + g->num_nodes; n++)
        if (n->called == node->called) {
            const oct_graph_node *at = computed_at(g, n);
            OCT_TRY(oct_text_add(f->text, "%s %s", n == node ? "" : ",",
                                 at ? place_of(at, place) : "no place"));
        }
    return oct_text_add(f->text, "; %s.\n",
                        one_range(g, node->called) ? "they have one range"
                                                   : "each has a range of its own");
}

static oct_status add_node_findings(findings *f)
{
    static oct_status (*const find[])(findings *, const oct_graph_node *) = {
        find_batch_norm, find_island, find_remark, find_range, find_float_output, find_shared,
    };
    for (size_t i = 0; i < f->graph->num_nodes; i++)
        for (size_t k = 0; k < OCT_COUNT(find); k++)
            OCT_TRY(find[k](f, &f->graph->nodes[i]));
    return OCT_OK;
}

static oct_status add_blocks(findings *f)
{
    char path[256];
    for (size_t i = 0; i < f->graph->num_blocks; i++) {
        const oct_graph_block *b = &f->graph->blocks[i];
        OCT_TRY(begin(f));
        OCT_TRY(oct_text_add(f->text,
                             "%s: the dynamic block %s may run any number of times; all its runs "
                             "use the same modules and ranges.\n",
                             oct_module_path(b->module, path)[0] ? path : "the model", b->name));
    }
    return OCT_OK;
}

/* Modules that no call site of the graph knows. */

static bool is_in_graph(const oct_graph *g, const oct_module *module)
{
    for (size_t i = 0; i < g->num_nodes; i++)
        if (g->nodes[i].called == module || g->nodes[i].module == module) return true;
    for (size_t i = 0; i < g->num_values; i++)
        if (g->values[i].quantize == module || g->values[i].dequantize == module) return true;
    return false;
}

/* What lies inside of a quantized module belongs to it. */
static bool is_inside_leaf(const oct_module *module)
{
    for (const oct_module *m = module->parent; m; m = m->parent)
        if (m->type->atomic) return true;
    return false;
}

static oct_status find_uncalled(void *user, oct_module *module)
{
    findings *f = user;
    char path[256];
    if (!module->type->atomic || is_inside_leaf(module) || is_in_graph(f->graph, module))
        return OCT_OK;
    OCT_TRY(begin(f));
    return oct_text_add(f->text,
                        "%s: is never called by the forward on the example, so it was left as it "
                        "is; remove it, or call it.\n",
                        oct_module_path(module, path));
}

static oct_status add_branch(findings *f)
{
    const oct_graph *g = f->graph;
    int evaluation = g->num_inputs[OCT_MODE_EVALUATION], all = g->num_inputs[OCT_MODE_TRAINING];
    OCT_TRY(begin(f));
    OCT_TRY(oct_text_add(f->text,
                         "%s: the forward does other things in training mode than in "
                         "evaluation; both were recorded, and what evaluation does is "
                         "deployed",
                         g->root->type->name));
    if (all == evaluation + 1)
        OCT_TRY(oct_text_add(f->text, "; input %d is for training only", evaluation));
    if (all > evaluation + 1)
        OCT_TRY(
            oct_text_add(f->text, "; inputs %d to %d are for training only", evaluation, all - 1));
    return oct_text_add(f->text, ".\n");
}

static oct_status add_findings(oct_text *text, const oct_graph *g)
{
    findings f = {.text = text, .graph = g};
    OCT_TRY(oct_text_add(text, "\nWhat there is to know\n\n"));
    OCT_TRY(add_node_findings(&f));
    OCT_TRY(add_blocks(&f));
    OCT_TRY(oct_module_walk(g->root, find_uncalled, &f));
    if (oct_graph_branches(g)) OCT_TRY(add_branch(&f));
    if (f.count == 0)
        OCT_TRY(oct_text_add(text, "  Nothing: every operation computes in integers.\n"));
    return OCT_OK;
}

static oct_status add_weights(oct_text *text, const oct_graph *g)
{
    size_t own = 0;
    const oct_weight_fake_quant *last = NULL;
    for (size_t i = 0; i < g->num_nodes; i++) {
        const oct_module *m = g->nodes[i].module;
        if (g->nodes[i].action != OCT_NODE_RUN || m->type != &oct_qat_conv_type) continue;
        if (!((const oct_qat_conv *)m)->weight_fake_quant) continue;
        last = (const oct_weight_fake_quant *)((const oct_qat_conv *)m)->weight_fake_quant;
        own++;
    }
    OCT_TRY(oct_text_add(text, "  %-10s s8, ", "weights"));
    if (own > 0)
        OCT_TRY(oct_text_add(text, "those of %zu layers by the fake-quant %s%s; otherwise ", own,
                             last->kind->name, last->scale ? ", which learns its scales" : ""));
    return oct_text_add(text, "one scale for each output channel, from the weights of each step\n");
}

static oct_status add_head(oct_text *text, const oct_graph *g)
{
    size_t nodes = 0, integers = 0, for_training = 0;
    for (size_t i = 0; i < g->num_nodes; i++) {
        const oct_graph_node *node = &g->nodes[i];
        if (hands_on(node) || is_stub(node)) continue;
        for_training += !node->in[OCT_MODE_EVALUATION];
        if (!node->in[OCT_MODE_EVALUATION]) continue;
        nodes++;
        integers += in_integers(g, node);
    }
    OCT_TRY(oct_text_add(text,
                         "Check report of prepare\n\n  %-10s %s\n  %-10s %s: %s\n  %-10s %s: %s\n",
                         "model", g->root->type->name, "target", g->target->name, g->target->help,
                         "method", oct_method_name(g->method), method_words[g->method]));
    OCT_TRY(oct_text_add(text, "  %-10s %zu operations, %zu in integers, %zu in float\n", "outcome",
                         nodes, integers, nodes - integers));
    if (for_training > 0)
        OCT_TRY(oct_text_add(text, "  %-10s %zu operations more, which are not deployed\n",
                             "training", for_training));
    return add_weights(text, g);
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
    OCT_TRY(add_head(text, graph));
    OCT_TRY(add_table(text, graph));
    OCT_TRY(add_findings(text, graph));
    return oct_text_add(text, "%s", words);
}
