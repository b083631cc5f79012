/* Boxes are added in the order in which things run. */
#include "launch/report/diagram.h"

#include "core/base/mem.h"
#include "quant/program/step.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static oct_status add_box(oct_diagram *d, oct_box_kind kind, size_t *box)
{
    OCT_TRY(oct_grow(&d->box, &d->box_capacity, d->boxes + 1, sizeof *d->box));
    *box = d->boxes++;
    d->box[*box] = (oct_diagram_box){.kind = kind};
    return OCT_OK;
}

static oct_status add_line(oct_diagram *d, size_t box, const char *text)
{
    for (int i = 0; i < OCT_BOX_LINES; i++)
        if (!d->box[box].line[i]) return oct_strdup(&d->box[box].line[i], text);
    return OCT_OK;
}

static oct_status add_arrow(oct_diagram *d, oct_diagram_arrow arrow)
{
    OCT_TRY(oct_grow(&d->arrow, &d->arrow_capacity, d->arrows + 1, sizeof *d->arrow));
    d->arrow[d->arrows++] = arrow;
    return OCT_OK;
}

void oct_diagram_free(oct_diagram *diagram)
{
    for (size_t i = 0; i < diagram->boxes; i++)
        for (int line = 0; line < OCT_BOX_LINES; line++)
            oct_free(&diagram->box[i].line[line]);
    oct_free(&diagram->box);
    oct_free(&diagram->arrow);
    *diagram = (oct_diagram){0};
}

/* Programs. */

static void codes_text(const oct_value *value, char *text, size_t room)
{
    if (value->dtype == OCT_U8 || value->dtype == OCT_U16)
        oct_snprintf(text, room, "%s, scale %.4g, zero %d", oct_dtype_name(value->dtype),
                     (double)value->q.scale, value->q.zero_point);
    else
        snprintf(text, room, "%s", value->dtype == OCT_F32 ? "float" : "class numbers");
}

static void step_text(const oct_program *p, const oct_step *s, char *text, size_t room)
{
    const oct_step_type *type = oct_step_type_of(s->kind);
    const oct_value *v = &p->values[s->output];
    char window[OCT_WINDOW_TEXT] = "";
    if (type->window) oct_window_text(&s->conv, window);
    oct_snprintf(text, room, "%s%s%.40s%s%s → %" PRId64 "×%" PRId64 "×%" PRId64,
                 s->island ? "float " : "", s->island ? "" : type->name,
                 s->island ? s->island->type : "", window[0] ? " " : "", window, v->h, v->w, v->c);
}

static oct_box_kind kind_of(const oct_step *s)
{
    if (s->kind == OCT_STEP_FLOAT) return OCT_BOX_ISLAND;
    if (s->kind == OCT_STEP_QUANTIZE || s->kind == OCT_STEP_DEQUANTIZE) return OCT_BOX_BORDER;
    return oct_step_type_of(s->kind)->weights ? OCT_BOX_WEIGHTS : OCT_BOX_PLAIN;
}

static oct_status add_step(oct_diagram *d, const oct_program *p, const oct_step *s, size_t *box)
{
    char text[160];
    OCT_TRY(add_box(d, kind_of(s), box));
    OCT_TRY(add_line(d, *box, s->name));
    step_text(p, s, text, sizeof text);
    OCT_TRY(add_line(d, *box, text));
    codes_text(&p->values[s->output], text, sizeof text);
    return add_line(d, *box, text);
}

static oct_status add_input(oct_diagram *d, const oct_program *p, int i, size_t *box)
{
    char text[96];
    const oct_value *v = &p->values[p->inputs[i]];
    OCT_TRY(add_box(d, OCT_BOX_BORDER, box));
    snprintf(text, sizeof text, p->num_inputs > 1 ? "input %d" : "input%.0d", i);
    OCT_TRY(add_line(d, *box, text));
    snprintf(text, sizeof text, "float %" PRId64 "×%" PRId64 "×%" PRId64, v->h, v->w, v->c);
    return add_line(d, *box, text);
}

/* maker: of each value its box; SIZE_MAX: it is not drawn. */
static oct_status add_program(oct_diagram *d, const oct_program *p, size_t limit, size_t *maker)
{
    for (int64_t v = 0; v < p->num_values; v++)
        maker[v] = SIZE_MAX;
    for (int i = 0; i < p->num_inputs; i++)
        OCT_TRY(add_input(d, p, i, &maker[p->inputs[i]]));
    for (int64_t i = 0; i < p->num_steps; i++) {
        const oct_step *s = &p->steps[i];
        if ((size_t)i >= limit) {
            d->left_out = (size_t)(p->num_steps - i);
            return OCT_OK;
        }
        OCT_TRY(add_step(d, p, s, &maker[s->output]));
        for (int k = 0; k < s->num_inputs; k++)
            OCT_TRY(add_arrow(
                d, (oct_diagram_arrow){.from = maker[s->input[k]],
                                       .to = maker[s->output],
                                       .codes = p->values[s->input[k]].dtype != OCT_F32}));
    }
    return OCT_OK;
}

oct_status oct_diagram_of_program(oct_diagram *diagram, const oct_program *program, size_t limit)
{
    size_t *maker = NULL;
    OCT_TRY(oct_alloc(&maker, (size_t)program->num_values, sizeof *maker));
    oct_status status = add_program(diagram, program, limit, maker);
    oct_free(&maker);
    return status;
}

/* Prepared graphs. */

static void quantizer_text(const oct_graph_value *value, char *text, size_t room)
{
    if (!value->codes || !value->fq) {
        snprintf(text, room, "%s", value->codes ? "codes" : "float");
        return;
    }
    oct_qparams q = oct_fake_quant_qparams(value->fq);
    if (*value->fq->updates > 0)
        oct_snprintf(text, room, "%d bits, scale %.4g, zero %d", value->fq->qconfig.bits,
                     (double)q.scale, (int)q.zero_point);
    else
        snprintf(text, room, "%d bits, not calibrated", value->fq->qconfig.bits);
}

static bool has_parameters(const oct_module *module)
{
    if (module->num_params > 0) return true;
    for (size_t i = 0; i < module->num_children; i++) {
        const oct_module *child = *module->children[i].slot;
        if (child && has_parameters(child)) return true;
    }
    return false;
}

static oct_box_kind kind_of_node(const oct_graph_node *node)
{
    if (strcmp(node->op, "quant_stub") == 0 || strcmp(node->op, "dequant_stub") == 0)
        return OCT_BOX_BORDER;
    if (node->action == OCT_NODE_UNTOUCHED) return OCT_BOX_ISLAND;
    return node->module && has_parameters(node->module) ? OCT_BOX_WEIGHTS : OCT_BOX_PLAIN;
}

static oct_status add_node(oct_diagram *d, const oct_graph *g, const oct_graph_node *node,
                           size_t *box)
{
    char text[160];
    OCT_TRY(add_box(d, kind_of_node(node), box));
    OCT_TRY(add_line(d, *box, node->path[0] ? node->path : node->op));
    snprintf(text, sizeof text, "%.60s", node->fusion ? node->fusion : node->op);
    OCT_TRY(add_line(d, *box, text));
    quantizer_text(&g->values[oct_graph_resolve(g, node->output, oct_graph_mode_of(node))], text,
                   sizeof text);
    return add_line(d, *box, text);
}

static oct_status add_uses(oct_diagram *d, const oct_graph *g, const oct_graph_node *node,
                           const size_t *maker, size_t box)
{
    for (int i = 0; i < node->num_inputs; i++) {
        int64_t value = oct_graph_input(g, node, i, oct_graph_mode_of(node));
        const oct_graph_value *v = &g->values[value];
        const bool to_codes = node->wants == OCT_WANTS_CODES && !v->codes,
                   to_float = node->wants == OCT_WANTS_FLOAT && v->codes;
        if (maker[value] == SIZE_MAX) continue;
        OCT_TRY(add_arrow(d, (oct_diagram_arrow){.from = maker[value],
                                                 .to = box,
                                                 .codes = v->codes,
                                                 .note = to_codes   ? "quantize"
                                                         : to_float ? "dequantize"
                                                                    : NULL}));
    }
    return OCT_OK;
}

static oct_status add_graph(oct_diagram *d, const oct_graph *g, size_t *maker)
{
    char text[32];
    size_t box;
    for (size_t v = 0; v < g->num_values; v++)
        maker[v] = SIZE_MAX;
    for (int i = 0; i < g->num_inputs[OCT_MODE_TRAINING]; i++) {
        OCT_TRY(add_box(d, OCT_BOX_BORDER, &box));
        snprintf(text, sizeof text, "input %d", i);
        OCT_TRY(add_line(d, box, text));
        maker[g->inputs[i]] = box;
    }
    for (size_t i = 0; i < g->num_nodes; i++) {
        const oct_graph_node *node = &g->nodes[i];
        if (node->action == OCT_NODE_ALIAS) continue;
        OCT_TRY(add_node(d, g, node, &box));
        OCT_TRY(add_uses(d, g, node, maker, box));
        maker[oct_graph_resolve(g, node->output, oct_graph_mode_of(node))] = box;
    }
    return OCT_OK;
}

oct_status oct_diagram_of_graph(oct_diagram *diagram, const oct_graph *graph)
{
    size_t *maker = NULL;
    OCT_TRY(oct_alloc(&maker, graph->num_values, sizeof *maker));
    oct_status status = add_graph(diagram, graph, maker);
    oct_free(&maker);
    return status;
}

/* Graphviz. */

static oct_status add_quoted(oct_text *text, const char *line)
{
    for (; *line; line++)
        OCT_TRY(oct_text_add(text, *line == '"' || *line == '\\' ? "\\%c" : "%c", *line));
    return OCT_OK;
}

static oct_status add_dot_box(const oct_diagram *d, size_t i, oct_text *text)
{
    static const char *const styles[] = {
        [OCT_BOX_PLAIN] = "",
        [OCT_BOX_WEIGHTS] = ", color=\"#0b62c4\"",
        [OCT_BOX_BORDER] = ", color=\"#157a3c\"",
        [OCT_BOX_ISLAND] = ", color=\"#b4470c\", style=dashed",
    };
    const oct_diagram_box *box = &d->box[i];
    OCT_TRY(oct_text_add(text, "  n%zu [label=\"", i));
    for (int line = 0; line < OCT_BOX_LINES && box->line[line]; line++) {
        OCT_TRY(oct_text_add(text, "%s", line ? "\\n" : ""));
        OCT_TRY(add_quoted(text, box->line[line]));
    }
    return oct_text_add(text, "\"%s];\n", styles[box->kind]);
}

oct_status oct_diagram_dot(const oct_diagram *diagram, oct_text *text)
{
    OCT_TRY(oct_text_add(text, "digraph model {\n"
                               "  node [shape=box, fontname=\"sans-serif\", fontsize=11];\n"
                               "  edge [fontname=\"sans-serif\", fontsize=10];\n"));
    for (size_t i = 0; i < diagram->boxes; i++)
        OCT_TRY(add_dot_box(diagram, i, text));
    for (size_t i = 0; i < diagram->arrows; i++) {
        const oct_diagram_arrow *a = &diagram->arrow[i];
        OCT_TRY(oct_text_add(text, "  n%zu -> n%zu [style=%s%s%s%s];\n", a->from, a->to,
                             a->codes ? "solid" : "dashed", a->note ? ", label=\"" : "",
                             a->note ? a->note : "", a->note ? "\"" : ""));
    }
    return oct_text_add(text, "}\n");
}
