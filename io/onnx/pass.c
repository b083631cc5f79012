/* One walk over a network with one batch size, and what two of them say together. */
#include "core/base/mem.h"
#include "core/base/text.h"
#include "io/onnx/operator.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* What folding may take and do: four times the memory of the file's constants, sixteen steps for each of their
 * numbers, and a little. */
enum { TIMES_MEMORY = 4, TIMES_WORK = 16 };
static const int64_t little_bytes = (int64_t)16 << 20, little_work = (int64_t)1 << 25;
static const int64_t dim_max = INT32_MAX, numel_max = (int64_t)1 << 44;
/* Numbers of a constant that comes from the batch: shape arithmetic has few, and others are left to be computed. */
enum { OF_BATCH_MAX = 4096, OTHERS_NAMED = 3, OTHERS_BYTES = 512 };

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

static oct_status begin(oct_onnx_pass *p, oct_onnx_graph *g, int64_t batch)
{
    const size_t count = (size_t)g->num_values;
    *p = (oct_onnx_pass){.graph = g, .batch = batch};
    set_limits(p);
    OCT_TRY(oct_alloc(&p->values, count, sizeof *p->values));
    OCT_TRY(oct_alloc(&p->own, count, sizeof *p->own));
    OCT_TRY(oct_alloc(&p->of_batch, count, sizeof *p->of_batch));
    for (size_t i = 0; i < count; i++) {
        oct_onnx_value *v = &p->values[i];
        *v = g->values[i];
        v->name = NULL;
        if (!v->data) v->known = false;
    }
    for (int i = 0; i < g->num_inputs; i++) {
        oct_onnx_value *v = &p->values[g->inputs[i]];
        v->known = g->values[g->inputs[i]].known;
        for (int k = 0; k < v->ndim; k++)
            if (v->dim[k] < 0) v->dim[k] *= -batch;
    }
    return OCT_OK;
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

/* Drops what a failed function has left. */
static void forget(const oct_onnx_call *c, bool shapes)
{
    for (int i = 0; i < c->node->outputs; i++) {
        oct_onnx_value *v = oct_onnx_result(c, i);
        if (!v) continue;
        if (c->pass->own[c->node->output[i]]) oct_free(&v->data);
        c->pass->own[c->node->output[i]] = false;
        v->data = NULL;
        if (shapes) v->known = false;
    }
}

static oct_status check_results(const oct_onnx_call *c)
{
    for (int i = 0; i < c->node->outputs; i++) {
        const oct_onnx_value *v = oct_onnx_result(c, i);
        if (!v || !v->known) continue;
        const int64_t numel = oct_onnx_numel(v);
        bool fine = numel >= 0 && numel <= numel_max;
        for (int k = 0; k < v->ndim; k++)
            fine = fine && v->dim[k] >= 0 && v->dim[k] <= dim_max;
        if (!fine) return oct_onnx_problem(c, "its output is too large");
    }
    return OCT_OK;
}

/* Are its results constants? Sets whether they come from the batch. */
static bool is_constant(const oct_onnx_call *c, bool *of_batch)
{
    const char *type = c->node->type;
    const bool shape_only = strcmp(type, "Shape") == 0 || strcmp(type, "Size") == 0;
    *of_batch = false;
    for (int i = 0; i < c->node->inputs; i++) {
        const oct_onnx_value *v = oct_onnx_in(c, i);
        if (!v) continue;
        if (!v->data && !shape_only) return false;
        *of_batch = *of_batch || !v->data || c->pass->of_batch[c->node->input[i]];
    }
    return c->node->inputs > 0 && oct_onnx_result(c, 0);
}

/* Takes over what the first walk has computed. */
static bool is_done(const oct_onnx_call *c, const oct_onnx_pass *first)
{
    const int32_t value = c->node->output[0];
    if (!first || !first->values[value].data || first->of_batch[value]) return false;
    for (int i = 0; i < c->node->outputs; i++)
        if (oct_onnx_result(c, i)) *oct_onnx_result(c, i) = first->values[c->node->output[i]];
    return true;
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

static oct_status compute(oct_onnx_call *c, const oct_onnx_operator *operator,
                          const oct_onnx_pass * first)
{
    bool of_batch;
    if (!operator->evaluate || !is_constant(c, &of_batch) || is_done(c, first)) return OCT_OK;
    const oct_onnx_value *v = oct_onnx_result(c, 0);
    if (of_batch && oct_onnx_numel(v) > OF_BATCH_MAX && oct_onnx_batch_dim(c, v) >= 0)
        return OCT_OK;
    for (int i = 0; i < c->node->outputs; i++)
        if (c->node->output[i] >= 0) c->pass->of_batch[c->node->output[i]] = of_batch;
    const oct_status status = operator->evaluate(c);
    if (status != OCT_OK)
        forget(c, false);
    else
        mark_learned(c);
    return status;
}

/* Is the condition of each branch that the node is in a constant, and as the branch wants it? */
static bool is_live(const oct_onnx_pass *p, const oct_onnx_node *n)
{
    for (int32_t i = n->branch; i >= 0; i = p->graph->branches[i].outer) {
        const oct_onnx_branch *b = &p->graph->branches[i];
        bool when;
        if (!oct_onnx_truth(&p->values[b->condition], &when) || when != b->when) return false;
    }
    return true;
}

/* An If has the results of one branch; what is inside of the other is not known. */
static oct_status choose(oct_onnx_call *c)
{
    const oct_onnx_node *n = c->node;
    bool when;
    if (!c->pass->values[n->input[0]].known) return OCT_OK;
    if (!oct_onnx_truth(&c->pass->values[n->input[0]], &when))
        return oct_onnx_problem(c, "whether it runs one network or the other is computed from "
                                   "images; export the model with the one that counts");
    for (int i = 0; i < n->outputs; i++) {
        const int32_t from = n->input[1 + i + (when ? 0 : n->outputs)];
        oct_onnx_value *out = oct_onnx_result(c, i);
        if (!out) continue;
        *out = c->pass->values[from];
        c->pass->of_batch[n->output[i]] = c->pass->of_batch[from];
    }
    return OCT_OK;
}

/* Finds the shapes of a node's results and computes those that are constants; `first` is the walk with another batch
 * size that went before, or NULL: constants that it found and that do not come from the batch are not computed again. */
static oct_status run_node(oct_onnx_call *c, const oct_onnx_pass *first)
{
    if (!is_live(c->pass, c->node)) return OCT_OK;
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
    if (status != OCT_OK) {
        forget(c, true);
        return status;
    }
    return compute(c, operator, first);
}

/* Sets each dimension to a number, or to a multiple of the batch; false where it is neither. */
static bool merge_shape(const oct_onnx_pass *a, const oct_onnx_pass *b, int64_t value,
                        oct_onnx_value *v)
{
    const oct_onnx_value *x = &a->values[value], *y = &b->values[value];
    if (x->ndim != y->ndim || x->dtype != y->dtype) return false;
    v->dtype = x->dtype;
    v->ndim = x->ndim;
    for (int i = 0; i < x->ndim; i++) {
        const bool fixed = x->dim[i] == y->dim[i];
        const int64_t times = (y->dim[i] - x->dim[i]) / (b->batch - a->batch);
        v->dim[i] = fixed ? x->dim[i] : -times;
        if (!fixed &&
            (times <= 0 || times * a->batch != x->dim[i] || times * b->batch != y->dim[i]))
            return false;
    }
    return true;
}

/* Sets integers that depend on the batch to what they are for a batch of one; false where they are no line. */
static bool merge_integers(const oct_onnx_pass *a, const oct_onnx_pass *b, int64_t value)
{
    oct_onnx_value *x = &a->values[value];
    const oct_onnx_value *y = &b->values[value];
    const int64_t numel = oct_onnx_numel(x), apart = b->batch - a->batch;
    if (x->dtype != OCT_S64) return false;
    int64_t *list = x->data;
    const int64_t *other = y->data;
    for (int64_t i = 0; i < numel; i++) {
        int64_t more, one;
        if (__builtin_sub_overflow(other[i], list[i], &more) || more % apart != 0 ||
            __builtin_mul_overflow(more / apart, a->batch - 1, &more) ||
            __builtin_sub_overflow(list[i], more, &one))
            return false;
        list[i] = one;
    }
    return true;
}

static void merge_data(oct_onnx_graph *g, oct_onnx_pass *a, const oct_onnx_pass *b, int64_t value)
{
    oct_onnx_value *v = &g->values[value], *x = &a->values[value];
    const oct_onnx_value *y = &b->values[value];
    const bool fixed = !a->of_batch[value];
    if (!x->data || !y->data || !a->own[value]) return;
    for (int i = 0; i < v->ndim; i++)
        if (v->dim[i] < 0) return;
    const size_t bytes = (size_t)oct_onnx_numel(x) * oct_dtype_bytes(x->dtype);
    if (!fixed && memcmp(x->data, y->data, bytes) != 0) {
        if (!merge_integers(a, b, value)) return;
        v->per_sample = true;
    }
    v->data = x->data;
    v->origin = x->origin;
    v->turn = x->turn;
    v->learned = x->learned;
    a->own[value] = false;
}

/* Sets the graph's values from two walks: constants move there. */
static oct_status merge(oct_onnx_graph *g, oct_onnx_pass *a, oct_onnx_pass *b)
{
    for (int64_t i = 0; i < g->num_nodes; i++)
        for (int k = 0; k < g->nodes[i].outputs; k++) {
            const int32_t value = g->nodes[i].output[k];
            if (value < 0) continue;
            oct_onnx_value *v = &g->values[value];
            v->known = a->values[value].known && b->values[value].known;
            if (!v->known) continue;
            v->known = merge_shape(a, b, value, v);
            if (v->known)
                merge_data(g, a, b, value);
            else
                oct_onnx_problem(&(oct_onnx_call){.pass = a, .node = &g->nodes[i]},
                                 "the size of its output is no multiple of the batch size");
        }
    return oct_fail_code() == OCT_OK ? OCT_OK : OCT_DATA;
}

oct_status oct_onnx_find_shapes(oct_onnx_graph *g)
{
    static const int64_t batches[2] = {1009, 1013}; /* primes that no network has as a size */
    oct_onnx_pass pass[2] = {{0}};
    bool *reported = NULL;
    oct_status status = OCT_OK;
    OCT_TRY_OUT(oct_alloc(&reported, (size_t)g->num_nodes, sizeof *reported));
    for (int i = 0; i < 2; i++) {
        OCT_TRY_OUT(begin(&pass[i], g, batches[i]));
        for (int64_t k = 0; k < g->num_nodes; k++) {
            oct_onnx_call c = {.pass = &pass[i], .node = &g->nodes[k], .quiet = reported[k]};
            status = run_node(&c, i ? &pass[0] : NULL);
            reported[k] = reported[k] || status == OCT_DATA;
            if (status != OCT_OK && status != OCT_DATA) goto out;
        }
    }
    status = merge(g, &pass[0], &pass[1]);
out:
    for (oct_onnx_pass *p = pass; p < pass + 2; p++) {
        for (int64_t i = 0; p->values && p->own && i < g->num_values; i++)
            if (p->own[i]) oct_free(&p->values[i].data);
        oct_free(&p->values);
        oct_free(&p->own);
        oct_free(&p->of_batch);
    }
    oct_free(&reported);
    return status;
}
