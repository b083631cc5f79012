/* Nodes are taken over in their order. What a node holds itself, a function that it calls, the branches of an If, the
 * rounds of a Loop, is written out beside it, so that after the reader there is one list of plain nodes. */
#include "core/base/mem.h"
#include "core/base/text.h"
#include "io/onnx/operator.h"
#include "io/onnx/read_impl.h"

#include <stdio.h>
#include <string.h>

/* One node and its attributes. */

#define KIND(name) OCT_ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__##name

static oct_status read_attribute(const char *path, const OctOnnx__AttributeProto *p,
                                 oct_onnx_attribute *a)
{
    const int kind = p->has_type ? (int)p->type : KIND(UNDEFINED);
    OCT_TRY(oct_strdup(&a->name, p->name ? p->name : ""));
    a->kind = p->g || p->n_graphs > 0 ? OCT_ONNX_GRAPH : OCT_ONNX_OTHER;
    if (kind == KIND(INT)) {
        a->kind = OCT_ONNX_INT;
        a->i = p->i;
    } else if (kind == KIND(FLOAT)) {
        a->kind = OCT_ONNX_FLOAT;
        a->f = p->f;
    } else if (kind == KIND(STRING)) {
        a->kind = OCT_ONNX_STRING; /* what is after a NUL is not read */
        OCT_TRY(oct_alloc(&a->s, p->s.len + 1, 1));
        if (p->s.len > 0) memcpy(a->s, p->s.data, p->s.len);
    } else if (kind == KIND(INTS)) {
        a->kind = OCT_ONNX_INTS;
        a->count = (int64_t)p->n_ints;
        OCT_TRY(oct_alloc(&a->ints, p->n_ints, sizeof *a->ints));
        if (p->n_ints > 0) memcpy(a->ints, p->ints, p->n_ints * sizeof *a->ints);
    } else if (kind == KIND(TENSOR) && p->t) {
        a->kind = OCT_ONNX_TENSOR;
        OCT_TRY(oct_strdup(&a->tensor.name, p->t->name ? p->t->name : ""));
        return oct_onnx_read_tensor(path, p->t, &a->tensor);
    }
    return OCT_OK;
}

static oct_status set_constant(oct_onnx_value *v, oct_dtype dtype, const void *elements,
                               size_t count)
{
    const size_t bytes = oct_dtype_bytes(dtype);
    v->dtype = dtype;
    v->dim[0] = (int64_t)count;
    OCT_TRY(oct_alloc(&v->data, count, bytes));
    if (count > 0) memcpy(v->data, elements, count * bytes);
    return OCT_OK;
}

static oct_status read_constant(const char *path, const OctOnnx__NodeProto *p, oct_onnx_value *v)
{
    const OctOnnx__AttributeProto *a = p->n_attribute == 1 ? p->attribute[0] : NULL;
    const char *name = a && a->name ? a->name : "";
    v->known = true;
    v->origin = -1;
    if (strcmp(name, "value") == 0 && a->t) return oct_onnx_read_tensor(path, a->t, v);
    if (strcmp(name, "value_float") == 0) return set_constant(v, OCT_F32, &a->f, 1);
    if (strcmp(name, "value_int") == 0) return set_constant(v, OCT_S64, &a->i, 1);
    v->ndim = 1;
    if (strcmp(name, "value_floats") == 0) return set_constant(v, OCT_F32, a->floats, a->n_floats);
    if (strcmp(name, "value_ints") == 0) return set_constant(v, OCT_S64, a->ints, a->n_ints);
    return oct_fail(OCT_DATA, "%s: the constant '%s' is no tensor of numbers", path,
                    oct_onnx_shown(v->name).text);
}

static const char *domain_of(const char *domain)
{
    return oct_onnx_is_own(domain) ? "" : domain;
}

static const char *text_or_empty(const char *text)
{
    return text ? text : "";
}

static bool is_onnx_operator(const OctOnnx__NodeProto *p, const char *type)
{
    return p->op_type && strcmp(p->op_type, type) == 0 && oct_onnx_is_own(p->domain);
}

static bool is_constant(const OctOnnx__NodeProto *p)
{
    return is_onnx_operator(p, "Constant") && p->n_output == 1;
}

static oct_status charge_node(oct_onnx_reader *r, const oct_onnx_scope *s,
                              const OctOnnx__NodeProto *p)
{
    if (s->depth == 0) return OCT_OK;
    return oct_onnx_charge(r, s,
                           2 * sizeof(oct_onnx_node) + oct_onnx__node_proto__get_packed_size(p));
}

/* Defines all results of these nodes first, since a node may stand before what it needs; reads constants. */
static oct_status define_results(oct_onnx_reader *r, oct_onnx_scope *s,
                                 OctOnnx__NodeProto *const *nodes, size_t count)
{
    oct_onnx_value *v;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < nodes[i]->n_output; k++) {
            if (nodes[i]->output[k][0] == '\0') continue;
            OCT_TRY(oct_onnx_define_value(r, s, nodes[i]->output[k], &v));
            if (!is_constant(nodes[i])) continue;
            OCT_OWNED(oct_onnx_free_resolved) oct_onnx_resolved node = {0};
            OCT_TRY(oct_onnx_resolve(r, s, nodes[i], &node));
            OCT_TRY(charge_node(r, s, &node.node));
            OCT_TRY(read_constant(r->graph->path, &node.node, v));
        }
    return oct_onnx_end_binding(s, r->graph->path);
}

static oct_status find_input(const oct_onnx_reader *r, const oct_onnx_scope *s,
                             const OctOnnx__NodeProto *p, size_t k, int32_t *value)
{
    const char *name = p->input[k], *node = oct_onnx_name_of(p);
    *value = -1;
    if (name[0] == '\0') return OCT_OK;
    const oct_onnx_names_entry *found = oct_onnx_find_name(s, name);
    OCT_CHECK(found, OCT_DATA, "%s: the node '%s' (%s) wants '%s', which nothing makes",
              r->graph->path, oct_onnx_shown(node).text, oct_onnx_shown(p->op_type).text,
              oct_onnx_shown(name).text);
    *value = found->value;
    return OCT_OK;
}

/* Adds a node of this scope. */
static oct_status new_node(oct_onnx_reader *r, const oct_onnx_scope *s, const char *name,
                           const char *type, const char *domain, oct_onnx_node **n)
{
    oct_onnx_graph *g = r->graph;
    *n = NULL;
    OCT_TRY(oct_grow(&g->nodes, &r->nodes_capacity, (size_t)g->num_nodes + 1, sizeof *g->nodes));
    *n = &g->nodes[g->num_nodes++];
    **n = (oct_onnx_node){.branch = s->branch};
    OCT_TRY(oct_format(&(*n)->name, "%s%s", s->prefix, name));
    OCT_TRY(oct_strdup(&(*n)->type, type));
    return oct_strdup(&(*n)->domain, domain);
}

static oct_status find_outputs(const oct_onnx_scope *s, const OctOnnx__NodeProto *p,
                               oct_onnx_node *n)
{
    OCT_TRY(oct_alloc(&n->output, p->n_output, sizeof *n->output));
    n->outputs = (int)p->n_output;
    for (size_t k = 0; k < p->n_output; k++)
        n->output[k] = p->output[k][0] == '\0' ? -1 : oct_onnx_find_name(s, p->output[k])->value;
    return OCT_OK;
}

static oct_status read_plain_node(oct_onnx_reader *r, const oct_onnx_scope *s,
                                  const OctOnnx__NodeProto *p)
{
    oct_onnx_node *n;
    OCT_TRY(charge_node(r, s, p));
    OCT_CHECK(p->op_type && p->op_type[0] != '\0', OCT_DATA,
              "%s: has a node without an operator; it is damaged", r->graph->path);
    OCT_TRY(new_node(r, s, oct_onnx_name_of(p), p->op_type, domain_of(p->domain), &n));
    OCT_TRY(oct_alloc(&n->attributes, p->n_attribute, sizeof *n->attributes));
    for (size_t i = 0; i < p->n_attribute; i++) {
        n->num_attributes++;
        OCT_TRY(read_attribute(r->graph->path, p->attribute[i], &n->attributes[i]));
    }
    OCT_TRY(oct_alloc(&n->input, p->n_input, sizeof *n->input));
    n->inputs = (int)p->n_input;
    for (size_t k = 0; k < p->n_input; k++)
        OCT_TRY(find_input(r, s, p, k, &n->input[k]));
    return find_outputs(s, p, n);
}

/* Adds an Identity by which a node's result `name` is the value `from`. */
static oct_status add_identity(oct_onnx_reader *r, const oct_onnx_scope *s, int32_t from,
                               const char *name)
{
    oct_onnx_node *n;
    if (name[0] == '\0') return OCT_OK;
    OCT_TRY(new_node(r, s, name, "Identity", "", &n));
    OCT_TRY(oct_alloc(&n->input, 1, sizeof *n->input));
    OCT_TRY(oct_alloc(&n->output, 1, sizeof *n->output));
    n->inputs = n->outputs = 1;
    n->input[0] = from;
    n->output[0] = oct_onnx_find_name(s, name)->value;
    return OCT_OK;
}

static oct_status wrong_ports(const oct_onnx_reader *r, const OctOnnx__NodeProto *p)
{
    const char *name = oct_onnx_name_of(p);
    return oct_fail(OCT_DATA,
                    "%s: the node '%s' (%s) and what it holds have different inputs or outputs; "
                    "the file is damaged",
                    r->graph->path, oct_onnx_shown(name).text, oct_onnx_shown(p->op_type).text);
}

enum { PREFIX_MAX = 160 };

/* Opens a scope inside of another, with names under "node<suffix>/"; the caller frees its prefix and its list. It is that
 * of a called function, or of a network inside of the node, which sees what is around it (called: NULL). */
static oct_status open_scope(oct_onnx_reader *r, const oct_onnx_scope *outer,
                             const OctOnnx__NodeProto *p, const OctOnnx__FunctionProto *called,
                             const char *suffix, oct_onnx_scope *s)
{
    char *prefix = NULL;
    *s = (oct_onnx_scope){.outer = called ? NULL : outer,
                          .function = called ? called : outer->function,
                          .call = called ? p : outer->call,
                          .prefix = "",
                          .depth = outer->depth + 1,
                          .branch = outer->branch};
    OCT_CHECK(s->depth <= OCT_ONNX_SCOPES_MAX, OCT_DATA,
              "%s: its functions call each other more than %d deep, as no network does",
              r->graph->path, OCT_ONNX_SCOPES_MAX);
    OCT_TRY(oct_onnx_charge(r, s, 2 * (sizeof *s + PREFIX_MAX)));
    if (strlen(outer->prefix) < PREFIX_MAX)
        OCT_TRY(oct_format(&prefix, "%s%.*s%s/", outer->prefix, PREFIX_MAX, oct_onnx_name_of(p),
                           suffix));
    else
        OCT_TRY(oct_strdup(&prefix, outer->prefix));
    s->prefix = prefix;
    return OCT_OK;
}

static void close_scope(oct_onnx_scope *s)
{
    char *prefix = s->prefix[0] ? (char *)(uintptr_t)s->prefix : NULL;
    oct_free(&prefix);
    oct_free(&s->list);
}

/* Finds the value of a result of the function, branch or loop body that the scope is of. */
static oct_status find_result(const oct_onnx_reader *r, const oct_onnx_scope *s, const char *name,
                              int32_t *value)
{
    const oct_onnx_names_entry *found = oct_onnx_find_name(s, name ? name : "");
    OCT_CHECK(found && found->value >= 0, OCT_DATA, "%s: the result '%s' is made by nothing",
              r->graph->path, oct_onnx_shown(name).text);
    *value = found->value;
    return OCT_OK;
}

/* Replaces a call by the function's nodes, with the call's inputs bound to its parameters. */
static oct_status write_out_call(oct_onnx_reader *r, const oct_onnx_scope *outer,
                                 const OctOnnx__NodeProto *p, const OctOnnx__FunctionProto *f)
{
    OCT_OWNED(close_scope) oct_onnx_scope s = {.prefix = ""};
    int32_t value;
    if (p->n_input > f->n_input || p->n_output > f->n_output) return wrong_ports(r, p);
    OCT_TRY(open_scope(r, outer, p, f, "", &s));
    for (size_t k = 0; k < f->n_input; k++) {
        value = -1;
        if (k < p->n_input) OCT_TRY(find_input(r, outer, p, k, &value));
        OCT_TRY(oct_onnx_bind(r, &s, f->input[k], value));
    }
    OCT_TRY(oct_onnx_read_nodes(r, &s, f->node, f->n_node));
    for (size_t k = 0; k < p->n_output; k++) {
        OCT_TRY(find_result(r, &s, f->output[k], &value));
        OCT_TRY(add_identity(r, outer, value, p->output[k]));
    }
    return OCT_OK;
}

static const OctOnnx__GraphProto *find_subgraph(const OctOnnx__NodeProto *p, const char *name)
{
    for (size_t i = 0; i < p->n_attribute; i++)
        if (p->attribute[i]->name && strcmp(p->attribute[i]->name, name) == 0)
            return p->attribute[i]->g;
    return NULL;
}

/* Adds the nodes of one branch of an If, and sets the If's inputs for its results: of `then` first, then of `else`. */
static oct_status write_out_branch(oct_onnx_reader *r, const oct_onnx_scope *outer,
                                   const OctOnnx__NodeProto *p, bool when, int32_t *input)
{
    const OctOnnx__GraphProto *inside = find_subgraph(p, when ? "then_branch" : "else_branch");
    oct_onnx_graph *g = r->graph;
    OCT_OWNED(close_scope) oct_onnx_scope s = {.prefix = ""};
    if (!inside || inside->n_input != 0 || inside->n_output < p->n_output) return wrong_ports(r, p);
    OCT_TRY(open_scope(r, outer, p, NULL, when ? "/then" : "/else", &s));
    OCT_TRY(oct_grow(&g->branches, &r->branches_capacity, (size_t)g->num_branches + 1,
                     sizeof *g->branches));
    g->branches[g->num_branches] = (oct_onnx_branch){input[0], when, outer->branch};
    s.branch = (int32_t)g->num_branches++;
    OCT_TRY(oct_onnx_define_initializers(r, &s, inside));
    OCT_TRY(oct_onnx_read_nodes(r, &s, inside->node, inside->n_node));
    for (size_t k = 0; k < p->n_output; k++)
        OCT_TRY(
            find_result(r, &s, inside->output[k]->name, &input[1 + k + (when ? 0 : p->n_output)]));
    return OCT_OK;
}

/* Adds the nodes of both branches, and an If whose inputs are the condition and the results of both. */
static oct_status write_out_if(oct_onnx_reader *r, const oct_onnx_scope *s,
                               const OctOnnx__NodeProto *p)
{
    oct_onnx_node *n;
    OCT_OWNED(oct_free) int32_t *input = NULL;
    OCT_TRY(oct_alloc(&input, 1 + 2 * p->n_output, sizeof *input));
    if (p->n_input != 1) return wrong_ports(r, p);
    OCT_TRY(find_input(r, s, p, 0, &input[0]));
    if (input[0] < 0) return wrong_ports(r, p);
    OCT_TRY(write_out_branch(r, s, p, true, input));
    OCT_TRY(write_out_branch(r, s, p, false, input));
    OCT_TRY(new_node(r, s, oct_onnx_name_of(p), "If", "", &n));
    n->input = input;
    n->inputs = (int)(1 + 2 * p->n_output);
    input = NULL;
    return find_outputs(s, p, n);
}

/* Loops. */

/* The number of rounds of a Loop whose count is a constant and whose condition is true or left out; else -1. */
static int64_t count_rounds(const oct_onnx_reader *r, const oct_onnx_scope *s,
                            const OctOnnx__NodeProto *p)
{
    const oct_onnx_value *values = r->graph->values;
    const oct_onnx_names_entry *count = p->n_input > 0 ? oct_onnx_find_name(s, p->input[0]) : NULL;
    const oct_onnx_names_entry *go = p->n_input > 1 ? oct_onnx_find_name(s, p->input[1]) : NULL;
    const oct_onnx_value *v = count && count->value >= 0 ? &values[count->value] : NULL;
    if (!v || !v->data || v->dtype != OCT_S64 || oct_onnx_numel(v) != 1) return -1;
    bool runs = !(p->n_input > 1 && p->input[1][0]);
    if (!runs && (!go || go->value < 0 || !oct_onnx_truth(&values[go->value], &runs) || !runs))
        return -1;
    const int64_t rounds = *(const int64_t *)v->data;
    return rounds >= 0 && rounds <= OCT_ONNX_ROUNDS_MAX ? rounds : -1;
}

/* The body never ends the loop: its first result is its own condition, or true. */
static bool never_breaks(const OctOnnx__GraphProto *body)
{
    const char *name = body->output[0]->name ? body->output[0]->name : "";
    for (size_t i = body->n_node; i-- > 0;) {
        const OctOnnx__NodeProto *n = body->node[i];
        if (n->n_output != 1 || strcmp(n->output[0], name) != 0) continue;
        if (n->n_input == 1 && (is_onnx_operator(n, "Identity") || is_onnx_operator(n, "Cast")))
            name = n->input[0];
        else
            return false;
    }
    return body->input[1]->name && strcmp(name, body->input[1]->name) == 0;
}

/* The body of a Loop that can be written out, and its number of rounds; NULL: it cannot. */
static const OctOnnx__GraphProto *find_loop_body(const oct_onnx_reader *r, const oct_onnx_scope *s,
                                                 const OctOnnx__NodeProto *p, int64_t *rounds)
{
    const OctOnnx__GraphProto *body = find_subgraph(p, "body");
    *rounds = count_rounds(r, s, p);
    if (!body || *rounds < 0 || body->n_input != p->n_input || body->n_input < 2 ||
        body->n_output + 1 != body->n_input || p->n_output + 2 > body->n_input ||
        !never_breaks(body))
        return NULL;
    return body;
}

/* Binds the inputs of a loop's body: the number of the round, true, and the values that the round before has left. */
static oct_status bind_round(oct_onnx_reader *r, oct_onnx_scope *s, const OctOnnx__GraphProto *body,
                             const int32_t *carried, int64_t round)
{
    oct_onnx_value *v;
    for (size_t k = 0; k < body->n_input; k++) {
        const char *name = body->input[k]->name;
        if (k >= 2) {
            OCT_TRY(oct_onnx_bind(r, s, name ? name : "", carried[k - 2]));
            continue;
        }
        OCT_TRY(oct_onnx_define_value(r, s, name, &v));
        v->dtype = k == 0 ? OCT_S64 : OCT_U8;
        v->known = true;
        OCT_TRY(oct_alloc(&v->data, 1, oct_dtype_bytes(v->dtype)));
        if (k == 0)
            *(int64_t *)v->data = round;
        else
            *(uint8_t *)v->data = 1;
    }
    return OCT_OK;
}

/* Adds the nodes of one round; `carried` are the values that the round takes, and then those that it leaves. */
static oct_status write_out_round(oct_onnx_reader *r, const oct_onnx_scope *outer,
                                  const OctOnnx__NodeProto *p, int32_t *carried, int64_t round)
{
    const OctOnnx__GraphProto *body = find_subgraph(p, "body");
    char suffix[32];
    OCT_OWNED(close_scope) oct_onnx_scope s = {.prefix = ""};
    snprintf(suffix, sizeof suffix, "/%d", (int)round);
    OCT_TRY(open_scope(r, outer, p, NULL, suffix, &s));
    OCT_TRY(bind_round(r, &s, body, carried, round));
    OCT_TRY(oct_onnx_define_initializers(r, &s, body));
    OCT_TRY(oct_onnx_read_nodes(r, &s, body->node, body->n_node));
    for (size_t k = 1; k < body->n_output; k++)
        OCT_TRY(find_result(r, &s, body->output[k]->name, &carried[k - 1]));
    return OCT_OK;
}

static oct_status write_out_loop(oct_onnx_reader *r, const oct_onnx_scope *s,
                                 const OctOnnx__NodeProto *p, int64_t rounds)
{
    OCT_OWNED(oct_free) int32_t *carried = NULL;
    OCT_TRY(oct_alloc(&carried, p->n_input, sizeof *carried));
    for (size_t k = 2; k < p->n_input; k++)
        OCT_TRY(find_input(r, s, p, k, &carried[k - 2]));
    for (int64_t i = 0; i < rounds; i++)
        OCT_TRY(write_out_round(r, s, p, carried, i));
    for (size_t k = 0; k < p->n_output; k++)
        OCT_TRY(add_identity(r, s, carried[k], p->output[k]));
    return OCT_OK;
}

/* Functions that a file brings along, as exporters write modules and decompositions. They are written out where they
 * are called. */

bool oct_onnx_is_called(const OctOnnx__FunctionProto *f, const char *name, const char *domain,
                        const char *overload)
{
    return strcmp(f->name, name) == 0 && strcmp(domain_of(f->domain), domain_of(domain)) == 0 &&
           strcmp(text_or_empty(f->overload), text_or_empty(overload)) == 0;
}

oct_status oct_onnx_read_nodes(oct_onnx_reader *r, oct_onnx_scope *s,
                               OctOnnx__NodeProto *const *nodes, size_t count)
{
    OCT_TRY(define_results(r, s, nodes, count));
    for (size_t i = 0; i < count; i++) {
        OCT_OWNED(oct_onnx_free_resolved) oct_onnx_resolved node = {0};
        if (is_constant(nodes[i])) continue;
        OCT_TRY(oct_onnx_resolve(r, s, nodes[i], &node));
        const OctOnnx__NodeProto *p = &node.node;
        const OctOnnx__FunctionProto *called = NULL;
        for (size_t k = 0; p->op_type && !called && k < r->model->n_functions; k++)
            if (oct_onnx_is_called(r->model->functions[k], p->op_type, p->domain, p->overload))
                called = r->model->functions[k];
        int64_t rounds;
        if (called)
            OCT_TRY(write_out_call(r, s, p, called));
        else if (is_onnx_operator(p, "If"))
            OCT_TRY(write_out_if(r, s, p));
        else if (is_onnx_operator(p, "Loop") && find_loop_body(r, s, p, &rounds))
            OCT_TRY(write_out_loop(r, s, p, rounds));
        else
            OCT_TRY(read_plain_node(r, s, p));
    }
    return OCT_OK;
}
