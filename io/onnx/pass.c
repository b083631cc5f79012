/* The walk over a network, in which shapes are found and constants computed. */
#include "core/base/mem.h"
#include "core/base/text.h"
#include "io/onnx/operator.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* What folding may take and do: four times the memory of the file's constants, sixteen steps for each of their
 * numbers, and a little. */
enum { TIMES_MEMORY = 4, TIMES_WORK = 16 };
static const int64_t little_bytes = (int64_t)16 << 20, little_work = (int64_t)1 << 25;
static const int64_t dim_max = INT32_MAX, numel_max = (int64_t)1 << 34; /* of a sample */
enum { OTHERS_NAMED = 3, OTHERS_BYTES = 512 };

static void set_limits(oct_onnx_pass *p)
{
    p->bytes_left = little_bytes;
    p->work_left = little_work;
    for (int64_t i = 0; i < p->graph->num_values; i++) {
        const oct_onnx_value *v = &p->graph->values[i];
        if (!v->data) continue;
        const int64_t numel = oct_onnx_numel(v);
        p->bytes_left += TIMES_MEMORY * numel * (int64_t)oct_dtype_bytes(v->dtype);
        p->work_left += TIMES_WORK * numel;
    }
}

/* Names further nodes of a type: ", and 2 more: 'b', 'c'". */
static void name_others(const oct_onnx_call *c, char text[OTHERS_BYTES])
{
    const oct_onnx_graph *g = c->pass->graph;
    int64_t others = 0;
    char names[OTHERS_BYTES / 2] = "";
    for (const oct_onnx_node *n = c->node + 1; n < g->nodes + g->num_nodes; n++) {
        if (strcmp(n->type, c->node->type) != 0 || strcmp(n->domain, c->node->domain) != 0)
            continue;
        const size_t used = strlen(names);
        if (others++ < OTHERS_NAMED)
            snprintf(names + used, sizeof names - used, "%s'%s'", used ? ", " : ": ",
                     oct_show(n->name, strlen(n->name)).text);
    }
    text[0] = '\0';
    if (others > 0)
        snprintf(text, OTHERS_BYTES, " (and %" PRId64 " more such nodes%s%s)", others, names,
                 others > OTHERS_NAMED ? " ..." : "");
}

/* Each operator is reported once, at its first node. */
static bool already_reported(oct_onnx_pass *p, const oct_onnx_node *n)
{
    for (int i = 0; i < p->num_unknown; i++)
        if (strcmp(p->unknown[i], n->type) == 0) return true;
    if (p->num_unknown == OCT_ONNX_PROBLEMS_MAX) return true;
    p->unknown[p->num_unknown++] = n->type;
    return false;
}

static oct_status unknown_operator(const oct_onnx_call *c)
{
    const oct_onnx_node *n = c->node;
    char others[OTHERS_BYTES];
    if (already_reported(c->pass, n)) return OCT_DATA;
    name_others(c, others);
    for (int i = 0; i < n->num_attributes; i++)
        if (n->attributes[i].kind == OCT_ONNX_GRAPH)
            return oct_onnx_problem(
                c,
                "it holds a network of its own that cannot be written out: only "
                "an If can, and a Loop whose number of rounds is a constant and "
                "that collects nothing; export the model without it%s",
                others);
    if (n->domain[0] != '\0')
        return oct_onnx_problem(c,
                                "it is an operator of '%s', not of ONNX; export the model "
                                "without optimizations of a runtime%s",
                                oct_show(n->domain, strlen(n->domain)).text, others);
    for (int64_t opset = OCT_ONNX_OPSET_MIN; opset <= OCT_ONNX_OPSET_MAX; opset++)
        if (oct_onnx_operator_find(n->type, opset))
            return oct_onnx_problem(c,
                                    "opset %" PRId64 " has no such operator, but opset %" PRId64
                                    " has; export the network in that one%s",
                                    c->pass->graph->opset, opset, others);
    return oct_onnx_problem(c, "Octet does not have this operator; express it by others%s", others);
}

static void drop_data(oct_onnx_value *v)
{
    oct_free(&v->data);
    oct_free(&v->times);
}

static oct_status check_results(const oct_onnx_call *c)
{
    for (int i = 0; i < c->node->outputs; i++) {
        const oct_onnx_value *v = oct_onnx_result(c, i);
        if (!v || !v->known) continue;
        const int64_t numel = oct_onnx_numel(v);
        bool fine = numel >= 0 && numel <= numel_max;
        for (int k = 0; k < v->ndim; k++)
            fine = fine && v->dim[k] >= -dim_max && v->dim[k] <= dim_max;
        if (!fine) return oct_onnx_problem(c, "its output is too large");
    }
    return OCT_OK;
}

/* Are all of its inputs constants? Sets whether they come from the shape of a computed value. */
static bool has_constants_alone(const oct_onnx_call *c, bool *from_shape)
{
    const char *type = c->node->type;
    const bool shape_only = strcmp(type, "Shape") == 0 || strcmp(type, "Size") == 0;
    *from_shape = false;
    for (int i = 0; i < c->node->inputs; i++) {
        const oct_onnx_value *v = oct_onnx_in(c, i);
        if (!v) continue;
        if (!v->data && !shape_only) return false;
        *from_shape = *from_shape || !v->data || v->from_shape;
    }
    return c->node->inputs > 0 && oct_onnx_result(c, 0);
}

/* Real numbers that are computed from parameters are learned in their place. */
static void mark_learned(const oct_onnx_call *c)
{
    bool learned = false;
    for (int i = 0; i < c->node->inputs; i++)
        learned = learned || (oct_onnx_in(c, i) && oct_onnx_in(c, i)->learned);
    for (int i = 0; i < c->node->outputs; i++)
        if (oct_onnx_result(c, i))
            oct_onnx_result(c, i)->learned = learned && oct_onnx_result(c, i)->dtype == OCT_F32;
}

/* Computes the results, where they are constants that each batch has. */
static oct_status compute(oct_onnx_call *c, const oct_onnx_operator *operator)
{
    bool from_shape;
    if (!operator->evaluate || !has_constants_alone(c, &from_shape)) return OCT_OK;
    if (oct_onnx_batch_dim(oct_onnx_result(c, 0)) >= 0) return OCT_OK;
    const oct_status status = operator->evaluate(c);
    if (status == OCT_OK) mark_learned(c);
    for (int i = 0; i < c->node->outputs; i++) {
        oct_onnx_value *v = oct_onnx_result(c, i);
        if (!v) continue;
        v->from_shape = from_shape;
        const int64_t numel = oct_onnx_numel(v);
        bool depends = false;
        for (int64_t k = 0; v->times && k < numel; k++)
            depends = depends || oct_onnx_depends(v, k);
        if (!depends) oct_free(&v->times);
        if (status != OCT_OK) drop_data(v);
    }
    return status;
}

/* Is the condition of each branch that the node is in a constant, and as the branch wants it? */
static bool is_live(const oct_onnx_graph *g, const oct_onnx_node *n)
{
    for (int32_t i = n->branch; i >= 0; i = g->branches[i].outer) {
        const oct_onnx_branch *b = &g->branches[i];
        bool when;
        if (!oct_onnx_truth(&g->values[b->condition], &when) || when != b->when) return false;
    }
    return true;
}

/* An If has the results of one branch, and shares its data until the walk ends; what is inside of the other is not
 * known. */
static oct_status choose(oct_onnx_call *c)
{
    const oct_onnx_node *n = c->node;
    const oct_onnx_value *condition = oct_onnx_in(c, 0);
    bool when;
    if (!condition || !condition->known) return OCT_OK;
    if (!oct_onnx_truth(condition, &when))
        return oct_onnx_problem(
            c,
            "whether it runs one network or the other is computed from %s; export the model with "
            "the one that counts",
            condition->from_shape ? "the number of samples" : "images");
    for (int i = 0; i < n->outputs; i++) {
        const oct_onnx_value *from = oct_onnx_in(c, 1 + i + (when ? 0 : n->outputs));
        oct_onnx_value *out = oct_onnx_result(c, i);
        char *name = out ? out->name : NULL;
        if (!out || !from) continue;
        *out = *from;
        out->name = name;
    }
    return OCT_OK;
}

/* Finds the shapes of a node's results and computes those that are constants. */
static oct_status run_node(oct_onnx_call *c)
{
    if (!is_live(c->pass->graph, c->node)) return OCT_OK;
    if (oct_onnx_is_if(c->node)) return choose(c);
    const oct_onnx_operator *operator= c->node->domain[0] == '\0'
        ? oct_onnx_operator_find(c->node->type, c->pass->graph->opset)
        : NULL;
    if (!operator) return unknown_operator(c);
    for (int i = 0; i < c->node->inputs; i++)
        if (oct_onnx_in(c, i) && !oct_onnx_in(c, i)->known) return OCT_OK;
    const int all = c->node->inputs > 0 ? c->node->inputs : 1;
    for (int i = 0; i < (operator->inputs<0 ? all : operator->inputs); i++)
        if (!oct_onnx_in(c, i))
            return oct_onnx_problem(c, "it has too few inputs; the file is damaged");
    c->node->args = (oct_onnx_arguments){0};
    oct_status status = operator->shape(c);
    if (status == OCT_OK) status = check_results(c);
    for (int i = 0; status != OCT_OK && i < c->node->outputs; i++)
        if (oct_onnx_result(c, i)) oct_onnx_result(c, i)->known = false;
    return status == OCT_OK ? compute(c, operator) : status;
}

/* Leaves only what is a constant: integers may depend on the batch, in a known way. */
static void settle_result(const oct_onnx_node *n, oct_onnx_value *v)
{
    const int64_t numel = oct_onnx_numel(v);
    bool fine = !v->times || v->dtype == OCT_S64;
    for (int64_t i = 0; v->times && i < numel; i++)
        fine = fine && !isnan(v->times[i]);
    if (oct_onnx_is_if(n)) { /* its data are another value's */
        v->data = NULL;
        v->times = NULL;
        v->parameter = false;
    }
    if (!fine) drop_data(v);
}

oct_status oct_onnx_find_shapes(oct_onnx_graph *g)
{
    oct_onnx_pass p = {.graph = g};
    oct_status status = OCT_OK;
    set_limits(&p);
    for (int64_t i = 0; i < g->num_nodes && (status == OCT_OK || status == OCT_DATA); i++)
        status = run_node(&(oct_onnx_call){.pass = &p, .node = &g->nodes[i]});
    for (int64_t i = g->num_nodes - 1; i >= 0; i--)
        for (int k = 0; k < g->nodes[i].outputs; k++)
            if (g->nodes[i].output[k] >= 0)
                settle_result(&g->nodes[i], &g->values[g->nodes[i].output[k]]);
    if (status != OCT_OK && status != OCT_DATA) return status;
    return oct_fail_code() == OCT_OK ? OCT_OK : OCT_DATA;
}
