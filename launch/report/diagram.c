#include "launch/report/diagram.h"

#include "core/base/mem.h"
#include "launch/report/page_run.h"
#include "quant/program/step.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const size_t no_box = SIZE_MAX;

/* Adds a box with lines of text; returns its number. `codes`: a third line, or NULL. */
static size_t add_box(json_t *d, const char *kind, const char *name, const char *what,
                      const char *codes)
{
    json_t *boxes = json_object_get(d, "boxes"), *lines = json_array();
    const char *const all[] = {name, what, codes};
    for (size_t i = 0; i < OCT_COUNT(all) && all[i]; i++)
        json_array_append_new(lines, oct_page_name(all[i]));
    json_array_append_new(boxes, json_pack("{s:s, s:o}", "kind", kind, "lines", lines));
    return json_array_size(boxes) - 1;
}

static void add_arrow(json_t *d, size_t from, size_t to, bool codes, const char *note)
{
    json_array_append_new(json_object_get(d, "arrows"),
                          json_pack("{s:I, s:I, s:b, s:s*}", "from", (json_int_t)from, "to",
                                    (json_int_t)to, "codes", codes, "note", note));
}

/* Programs. */

static void describe_step(const oct_program *p, const oct_step *s, char *text, size_t room)
{
    const oct_value *v = &p->values[s->output];
    char window[OCT_WINDOW_TEXT];
    oct_step_window_text(s, window);
    oct_snprintf(text, room, "%s%.40s%s%s → %" PRId64 "×%" PRId64 "×%" PRId64,
                 s->kind == OCT_STEP_FLOAT ? "float " : "", oct_step_operation(s),
                 window[0] ? " " : "", window, v->h, v->w, v->c);
}

/* Starts a diagram; maker: of each value of a program or graph the box that makes it, none yet. */
static oct_status begin_diagram(json_t **diagram, size_t **maker, size_t values)
{
    *maker = NULL;
    OCT_TRY(oct_alloc(maker, values, sizeof **maker));
    for (size_t v = 0; v < values; v++)
        (*maker)[v] = no_box;
    *diagram = json_pack("{s:[], s:[], s:i}", "boxes", "arrows", "left_out", 0);
    return OCT_OK;
}

oct_status oct_diagram_of_program(const oct_program *p, size_t limit, json_t **diagram)
{
    size_t *maker;
    OCT_TRY(begin_diagram(diagram, &maker, (size_t)p->num_values));
    json_t *d = *diagram;
    for (int i = 0; i < p->num_inputs; i++) {
        char name[32], what[96];
        const oct_value *v = &p->values[p->inputs[i]];
        snprintf(name, sizeof name, p->num_inputs > 1 ? "input %d" : "input%.0d", i);
        snprintf(what, sizeof what, "float %" PRId64 "×%" PRId64 "×%" PRId64, v->h, v->w, v->c);
        maker[p->inputs[i]] = add_box(d, "border", name, what, NULL);
    }
    for (int64_t i = 0; i < p->num_steps && (size_t)i < limit; i++) {
        const oct_step *s = &p->steps[i];
        const oct_value *v = &p->values[s->output];
        const bool border = s->kind == OCT_STEP_QUANTIZE || s->kind == OCT_STEP_DEQUANTIZE;
        char what[160], codes[160];
        describe_step(p, s, what, sizeof what);
        if (v->dtype == OCT_U8 || v->dtype == OCT_U16)
            oct_snprintf(codes, sizeof codes, "%s, scale %.4g, zero %d", oct_dtype_name(v->dtype),
                         (double)v->q.scale, v->q.zero_point);
        else
            snprintf(codes, sizeof codes, "%s", v->dtype == OCT_F32 ? "float" : "class numbers");
        maker[s->output] = add_box(d,
                                   s->kind == OCT_STEP_FLOAT            ? "float"
                                   : border                             ? "border"
                                   : oct_step_type_of(s->kind)->weights ? "weights"
                                                                        : "plain",
                                   s->name, what, codes);
        for (int k = 0; k < s->num_inputs; k++)
            add_arrow(d, maker[s->input[k]], maker[s->output],
                      p->values[s->input[k]].dtype != OCT_F32, NULL);
    }
    if ((size_t)p->num_steps > limit)
        json_object_set_new(d, "left_out", json_integer(p->num_steps - (json_int_t)limit));
    oct_free(&maker);
    return OCT_OK;
}

/* Prepared graphs. */

static void describe_quantizer(const oct_graph_value *value, char *text, size_t room)
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

/* Adds an arrow from the box that makes each input of a node, with the conversion that the input goes through. */
static void add_input_arrows(json_t *d, const oct_graph *g, const oct_graph_node *node,
                             const size_t *maker, size_t box)
{
    for (int i = 0; i < node->num_inputs; i++) {
        const int64_t value = oct_graph_input(g, node, i, oct_graph_mode_of(node));
        const oct_graph_value *v = &g->values[value];
        const bool to_codes = node->wants == OCT_WANTS_CODES && !v->codes,
                   to_float = node->wants == OCT_WANTS_FLOAT && v->codes;
        if (maker[value] != no_box)
            add_arrow(d, maker[value], box, v->codes,
                      to_codes   ? "quantize"
                      : to_float ? "dequantize"
                                 : NULL);
    }
}

/* Draws a prepared graph: a box for each node, without those that only rename a value. */
static oct_status draw_graph(const oct_graph *g, json_t **diagram)
{
    size_t *maker;
    OCT_TRY(begin_diagram(diagram, &maker, g->num_values));
    json_t *d = *diagram;
    for (int i = 0; i < g->num_inputs[OCT_MODE_TRAINING]; i++) {
        char name[32];
        snprintf(name, sizeof name, "input %d", i);
        maker[g->inputs[i]] = add_box(d, "border", name, NULL, NULL);
    }
    for (size_t i = 0; i < g->num_nodes; i++) {
        const oct_graph_node *node = &g->nodes[i];
        if (node->action == OCT_NODE_ALIAS) continue;
        const int64_t output = oct_graph_resolve(g, node->output, oct_graph_mode_of(node));
        const bool border =
            strcmp(node->op, "quant_stub") == 0 || strcmp(node->op, "dequant_stub") == 0;
        char what[64], codes[160];
        snprintf(what, sizeof what, "%.60s", node->fusion ? node->fusion : node->op);
        describe_quantizer(&g->values[output], codes, sizeof codes);
        const size_t box = add_box(d,
                                   border                                         ? "border"
                                   : node->action == OCT_NODE_UNTOUCHED           ? "float"
                                   : node->module && has_parameters(node->module) ? "weights"
                                                                                  : "plain",
                                   node->path[0] ? node->path : node->op, what, codes);
        add_input_arrows(d, g, node, maker, box);
        maker[output] = box;
    }
    oct_free(&maker);
    return OCT_OK;
}

/* Graphviz. */

static oct_status add_dot_box(const json_t *box, size_t number, oct_text *text)
{
    static const char *const styles[][2] = {{"weights", ", color=\"#0b62c4\""},
                                            {"border", ", color=\"#157a3c\""},
                                            {"float", ", color=\"#b4470c\", style=dashed"}};
    size_t i;
    const json_t *line;
    OCT_TRY(oct_text_add(text, "  n%zu [label=\"", number));
    json_array_foreach(json_object_get(box, "lines"), i, line)
    {
        if (i) OCT_TRY(oct_text_add(text, "\\n"));
        for (const char *at = json_string_value(line); *at; at++)
            OCT_TRY(oct_text_add(text, *at == '"' || *at == '\\' ? "\\%c" : "%c", *at));
    }
    const char *kind = json_string_value(json_object_get(box, "kind")), *style = "";
    for (size_t k = 0; k < OCT_COUNT(styles); k++)
        if (strcmp(styles[k][0], kind) == 0) style = styles[k][1];
    return oct_text_add(text, "\"%s];\n", style);
}

oct_status oct_diagram_write_dot(const oct_graph *graph, const oct_program *program, oct_text *text)
{
    size_t i;
    json_auto_t *d = NULL;
    const json_t *it;
    OCT_TRY(graph ? draw_graph(graph, &d) : oct_diagram_of_program(program, SIZE_MAX, &d));
    OCT_TRY(oct_text_add(text, "digraph model {\n"
                               "  node [shape=box, fontname=\"sans-serif\", fontsize=11];\n"
                               "  edge [fontname=\"sans-serif\", fontsize=10];\n"));
    json_array_foreach(json_object_get(d, "boxes"), i, it) OCT_TRY(add_dot_box(it, i, text));
    json_array_foreach(json_object_get(d, "arrows"), i, it)
    {
        const char *note = json_string_value(json_object_get(it, "note"));
        OCT_TRY(oct_text_add(text, "  n%lld -> n%lld [style=%s%s%s%s];\n",
                             (long long)json_integer_value(json_object_get(it, "from")),
                             (long long)json_integer_value(json_object_get(it, "to")),
                             json_is_true(json_object_get(it, "codes")) ? "solid" : "dashed",
                             note ? ", label=\"" : "", note ? note : "", note ? "\"" : ""));
    }
    return oct_text_add(text, "}\n");
}
