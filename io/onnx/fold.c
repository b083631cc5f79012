#include "io/onnx/fold.h"

#include "core/base/mem.h"
#include "core/base/text.h"
#include "io/onnx/operator.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const int64_t input_numel_max = (int64_t)1 << 32; /* of a sample */

/* The input. */

/* Does the node scale or shift `value` by constants alone? */
static bool only_rescales(const oct_onnx_graph *g, const oct_onnx_node *n, int32_t value)
{
    static const char *const types[] = {"Add", "Cast", "Clip", "Div", "Mul", "Sub", NULL};
    for (int k = 0; k < n->inputs; k++)
        if (n->input[k] != value && n->input[k] >= 0 && !g->values[n->input[k]].data) return false;
    return oct_list_has(types, n->type) && n->outputs == 1 && n->output[0] >= 0;
}

/* Is the input (N, H, W, C)? Converters from Keras transpose it to (N, C, H, W) at once, or after scaling. */
static bool is_turned_to_channels_first(const oct_onnx_graph *g, int32_t value)
{
    static const int64_t to_channels_first[4] = {0, 3, 1, 2};
    int64_t count;
    int transposed = 0;
    for (int64_t i = 0; i < g->num_nodes; i++) {
        const oct_onnx_node *n = &g->nodes[i];
        for (int k = 0; k < n->inputs; k++) {
            if (n->input[k] != value) continue;
            const int64_t *perm = oct_onnx_ints(n, "perm", &count);
            const bool transposes = strcmp(n->type, "Transpose") == 0 && count == 4 &&
                                    memcmp(perm, to_channels_first, sizeof to_channels_first) == 0;
            if (!transposes && (transposed > 0 || !only_rescales(g, n, value))) return false;
            if (!transposes) value = n->output[0];
            transposed += transposes;
        }
    }
    return transposed > 0;
}

typedef struct image_size {
    int64_t h, w, c; /* 0: as the file declares it */
} image_size;

static oct_status set_image(oct_onnx_graph *g, oct_onnx_value *v, const image_size *size)
{
    const oct_shown name = oct_onnx_shown(v->name);
    g->channels_last = is_turned_to_channels_first(g, g->inputs[0]);
    const int channel = g->channels_last ? 3 : 1;
    const int64_t last[4] = {0, size->h, size->w, size->c};
    const int64_t first[4] = {0, size->c, size->h, size->w};
    v->dim[0] = OCT_ONNX_BATCH;
    for (int i = 1; i < 4; i++) {
        const int64_t wanted = g->channels_last ? last[i] : first[i];
        OCT_CHECK(i != channel || !wanted || v->dim[i] < 0 || v->dim[i] == wanted, OCT_DATA,
                  "%s: the input '%s' has %" PRId64 " channels, and the images have %" PRId64
                  "; set data.channels",
                  g->path, name.text, v->dim[i], wanted);
        if (wanted > 0) v->dim[i] = wanted;
        OCT_CHECK(v->dim[i] > 0, OCT_DATA,
                  "%s: the input '%s' is written for any size; say which, such as --size 224x224",
                  g->path, name.text);
    }
    return OCT_OK;
}

static oct_status set_numbers(const oct_onnx_graph *g, oct_onnx_value *v, const image_size *size)
{
    const oct_shown name = oct_onnx_shown(v->name);
    int64_t numbers;
    OCT_CHECK(!size->h || !size->w || size->c, OCT_USAGE,
              "%s: the input '%s' is no image, so that it has no height and width to set; leave "
              "the size out",
              g->path, name.text);
    v->dim[0] = OCT_ONNX_BATCH;
    for (int i = 1; i < v->ndim; i++)
        OCT_CHECK(v->dim[i] > 0, OCT_DATA,
                  "%s: dimension %d of the input '%s' is free; only the first may be", g->path, i,
                  name.text);
    const int64_t numel = oct_onnx_numel(v); /* -1: too many, which is refused after this */
    if (!size->h || !size->w || !size->c || numel < 0) return OCT_OK;
    OCT_CHECK(!__builtin_mul_overflow(size->h, size->w, &numbers) &&
                  !__builtin_mul_overflow(numbers, size->c, &numbers) && numel == numbers,
              OCT_DATA,
              "%s: the input '%s' has %" PRId64 " numbers, and the samples have %" PRId64
              " x %" PRId64 " x %" PRId64,
              g->path, name.text, numel, size->h, size->w, size->c);
    return OCT_OK;
}

/* Sets the shape of the network's only input: an image of the data's size, or as many numbers as a sample has. */
static oct_status set_input(oct_onnx_graph *g, const image_size *size)
{
    oct_onnx_value *v = &g->values[g->inputs[0]];
    OCT_CHECK(g->num_inputs == 1, OCT_PREPARE,
              "%s: it has %d inputs, and a data set gives one; export it with one input", g->path,
              g->num_inputs);
    OCT_CHECK(!v->known || v->ndim > 1, OCT_PREPARE,
              "%s: the input '%s' has no dimension but the batch; give it a second one for the "
              "numbers of a sample",
              g->path, oct_onnx_shown(v->name).text);
    if (!v->known)
        *v = (oct_onnx_value){.name = v->name,
                              .dtype = v->dtype,
                              .ndim = 4,
                              .known = true,
                              .origin = -1,
                              .dim = {-1, -1, -1, -1}};
    OCT_TRY(v->ndim == 4 ? set_image(g, v, size) : set_numbers(g, v, size));
    const int64_t numel =
        oct_onnx_numel(v); /* sizes that shape functions may add to and multiply */
    bool fine = numel >= 0 && numel <= input_numel_max;
    for (int i = 0; i < v->ndim; i++)
        fine = fine && v->dim[i] <= INT32_MAX;
    OCT_CHECK(fine, OCT_DATA, "%s: the input '%s' is too large", g->path,
              oct_onnx_shown(v->name).text);
    return OCT_OK;
}

/* Shapes and constants. */

/* What folding may take and do: four times the memory of the file's constants, sixteen steps for each of their
 * numbers, and a little. */
enum { TIMES_MEMORY = 4, TIMES_WORK = 16 };
static const int64_t little_bytes = (int64_t)16 << 20, little_work = (int64_t)1 << 25;
static const int64_t dim_max = INT32_MAX, numel_max = (int64_t)1 << 34; /* of a sample */
enum { OTHERS_NAMED = 3, OTHERS_BYTES = 512 };

/* Names further nodes of a type: " (and 2 more such nodes: 'b', 'c')". */
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
                     oct_onnx_shown(n->name).text);
    }
    text[0] = '\0';
    if (others > 0)
        snprintf(text, OTHERS_BYTES, " (and %" PRId64 " more such nodes%s%s)", others, names,
                 others > OTHERS_NAMED ? " ..." : "");
}

static oct_status unknown_operator(const oct_onnx_call *c)
{
    const oct_onnx_node *n = c->node;
    char others[OTHERS_BYTES];
    oct_onnx_pass *p = c->pass;
    for (int i = 0; i < p->num_unknown; i++) /* each operator is reported once, at its first node */
        if (strcmp(p->unknown[i], n->type) == 0) return OCT_DATA;
    if (p->num_unknown == OCT_ONNX_PROBLEMS_MAX) return OCT_DATA;
    p->unknown[p->num_unknown++] = n->type;
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
                                oct_onnx_shown(n->domain).text, others);
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

/* Computes the results, where they are constants that each batch has. */
static oct_status compute_constants(oct_onnx_call *c, const oct_onnx_operator *operator)
{
    bool from_shape, learned = false;
    if (!operator->evaluate || !has_constants_alone(c, &from_shape)) return OCT_OK;
    if (oct_onnx_batch_dim(oct_onnx_result(c, 0)) >= 0) return OCT_OK;
    const oct_status status = operator->evaluate(c);
    for (int i = 0; i < c->node->inputs; i++)
        learned = learned || (oct_onnx_in(c, i) && oct_onnx_in(c, i)->learned);
    for (int i = 0; i < c->node->outputs; i++) {
        oct_onnx_value *v = oct_onnx_result(c, i);
        if (!v) continue;
        v->from_shape = from_shape;
        /* Real numbers that are computed from parameters are learned in their place. */
        v->learned = status == OCT_OK && learned && v->dtype == OCT_F32;
        const int64_t numel = oct_onnx_numel(v);
        bool depends = false;
        for (int64_t k = 0; v->times && k < numel; k++)
            depends = depends || oct_onnx_varies(v, k);
        if (!depends) oct_free(&v->times);
        if (status != OCT_OK) drop_data(v);
    }
    return status;
}

/* Is the node run: has each If around it a constant condition that chooses the node's branch? */
static bool is_live(const oct_onnx_graph *g, const oct_onnx_node *n)
{
    for (int32_t i = n->branch; i >= 0; i = g->branches[i].outer) {
        const oct_onnx_branch *b = &g->branches[i];
        bool when;
        if (!oct_onnx_truth(&g->values[b->condition], &when) || when != b->when) return false;
    }
    return true;
}

/* The results of an If are those of the branch that its constant condition chooses, whose data they share until the
 * walk ends. */
static oct_status choose_branch(oct_onnx_call *c)
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
static oct_status fold_node(oct_onnx_call *c)
{
    if (!is_live(c->pass->graph, c->node)) return OCT_OK;
    if (oct_onnx_is_if(c->node)) return choose_branch(c);
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
    for (int i = 0; i < c->node->outputs; i++) {
        oct_onnx_value *v = oct_onnx_result(c, i);
        if (!v || !v->known) continue;
        const int64_t numel = oct_onnx_numel(v);
        bool fine = numel >= 0 && numel <= numel_max;
        for (int k = 0; k < v->ndim; k++)
            fine = fine && v->dim[k] >= -dim_max && v->dim[k] <= dim_max;
        if (!fine && status == OCT_OK) status = oct_onnx_problem(c, "its output is too large");
        v->known = status == OCT_OK;
    }
    return status == OCT_OK ? compute_constants(c, operator) : status;
}

/* Sets the graph's values, with every shape and every constant that can be computed. Adds a problem for each node that
 * cannot be, and returns OCT_DATA when there are any. */
static oct_status find_shapes(oct_onnx_graph *g)
{
    oct_onnx_pass p = {.graph = g, .bytes_left = little_bytes, .work_left = little_work};
    oct_status status = OCT_OK;
    for (int64_t i = 0; i < g->num_values; i++) {
        const oct_onnx_value *v = &g->values[i];
        if (!v->data) continue;
        const int64_t numel = oct_onnx_numel(v);
        p.bytes_left += TIMES_MEMORY * numel * (int64_t)oct_dtype_bytes(v->dtype);
        p.work_left += TIMES_WORK * numel;
    }
    for (int64_t i = 0; i < g->num_nodes && (status == OCT_OK || status == OCT_DATA); i++)
        status = fold_node(&(oct_onnx_call){.pass = &p, .node = &g->nodes[i]});
    /* Constants are left where integers depend on the batch in a known way, and where nothing does. */
    for (int64_t i = g->num_nodes - 1; i >= 0; i--)
        for (int k = 0; k < g->nodes[i].outputs; k++) {
            const int32_t value = g->nodes[i].output[k];
            oct_onnx_value *v = value >= 0 ? &g->values[value] : NULL;
            if (!v || !v->data) continue;
            if (oct_onnx_is_if(&g->nodes[i])) { /* they are those of the branch */
                v->data = NULL;
                v->times = NULL;
                v->parameter = false;
                continue;
            }
            bool known = !v->times || v->dtype == OCT_S64;
            for (int64_t j = 0, numel = oct_onnx_numel(v); v->times && j < numel; j++)
                known = known && !isnan(v->times[j]);
            if (!known) drop_data(v);
        }
    if (status != OCT_OK && status != OCT_DATA) return status;
    return oct_fail_code() == OCT_OK ? OCT_OK : OCT_DATA;
}

/* Nodes that do nothing. */

/* Is output 0 input 0, given that both have the same shape? */
static bool keeps_numbers(const oct_onnx_node *n)
{
    static const char *const types[] = {"Cast",    "CastLike", "Expand",    "Flatten", "Reshape",
                                        "Squeeze", "Tile",     "Unsqueeze", NULL};
    static const char *const many_inputs[] = {"Concat", "Max", "Mean", "Min", "Split", "Sum", NULL};
    bool pads = strcmp(n->type, "Pad") == 0;
    for (int i = 0; pads && i < OCT_ONNX_DIMS; i++)
        if (n->args.before[i] != 0 || n->args.after[i] != 0) return false;
    if (pads) return true;
    return oct_list_has(types, n->type) ||
           (oct_list_has(many_inputs, n->type) && n->inputs == 1 && n->outputs == 1);
}

static bool does_nothing(const oct_onnx_graph *g, const oct_onnx_node *n)
{
    if (n->domain[0] != '\0' || n->inputs < 1 || n->outputs < 1 || n->input[0] < 0 ||
        n->output[0] < 0)
        return false;
    if (strcmp(n->type, "Identity") == 0) return true;
    if (strcmp(n->type, "Dropout") == 0) { /* of inference, unless its third input is true */
        const oct_onnx_value *training = oct_onnx_input(g, n, 2);
        bool trains = false;
        return (n->outputs == 1 || n->output[1] < 0) &&
               (!training || (oct_onnx_truth(training, &trains) && !trains));
    }
    const oct_onnx_value *x = &g->values[n->input[0]], *y = &g->values[n->output[0]];
    return x->known && y->known && x->dtype == y->dtype && x->ndim == y->ndim &&
           memcmp(x->dim, y->dim, (size_t)x->ndim * sizeof x->dim[0]) == 0 && keeps_numbers(n);
}

/* The value that output k of an If stands for, when its condition is known; -1. */
static int32_t result_of_if(const oct_onnx_graph *g, const oct_onnx_node *n, int k)
{
    bool when;
    if (!oct_onnx_truth(&g->values[n->input[0]], &when)) return -1;
    return n->input[1 + k + (when ? 0 : n->outputs)];
}

/* Lets all that read the output of a node that changes nothing read its input. It is dropped as unneeded later. */
static oct_status bypass_identities(oct_onnx_graph *g)
{
    OCT_OWNED(oct_free) int32_t *same_as = NULL;
    OCT_TRY(oct_alloc(&same_as, (size_t)g->num_values, sizeof *same_as));
    for (int64_t i = 0; i < g->num_values; i++)
        same_as[i] = (int32_t)i;
    for (int64_t i = 0; i < g->num_nodes; i++) {
        oct_onnx_node *n = &g->nodes[i];
        for (int k = 0; k < n->inputs; k++)
            if (n->input[k] >= 0) n->input[k] = same_as[n->input[k]];
        if (does_nothing(g, n)) same_as[n->output[0]] = n->input[0];
        for (int k = 0; oct_onnx_is_if(n) && k < n->outputs; k++)
            if (n->output[k] >= 0 && result_of_if(g, n, k) >= 0)
                same_as[n->output[k]] = result_of_if(g, n, k);
    }
    for (int64_t i = 0; i < g->num_branches; i++)
        g->branches[i].condition = same_as[g->branches[i].condition];
    for (int i = 0; i < g->num_outputs; i++)
        g->outputs[i] = same_as[g->outputs[i]];
    return OCT_OK;
}

/* What is left. */

/* Drops the nodes that the outputs do not need, going from the last one to the first. */
static oct_status drop_unneeded(oct_onnx_graph *g)
{
    OCT_OWNED(oct_free) bool *needed = NULL, *kept = NULL;
    int64_t count = 0;
    OCT_TRY(oct_alloc(&needed, (size_t)g->num_values, sizeof *needed));
    OCT_TRY(oct_alloc(&kept, (size_t)g->num_nodes, sizeof *kept));
    for (int i = 0; i < g->num_outputs; i++)
        needed[g->outputs[i]] = true;
    for (int64_t i = g->num_nodes - 1; i >= 0; i--) {
        const oct_onnx_node *n = &g->nodes[i];
        for (int k = 0; k < n->outputs; k++) {
            const int32_t value = n->output[k];
            if (value >= 0 && needed[value] && !g->values[value].data) kept[i] = true;
        }
        for (int k = 0; kept[i] && k < n->inputs; k++)
            if (n->input[k] >= 0) needed[n->input[k]] = true;
        for (int32_t k = kept[i] ? n->branch : -1; k >= 0; k = g->branches[k].outer)
            needed[g->branches[k].condition] = true;
    }
    for (int64_t i = 0; i < g->num_nodes; i++) {
        if (kept[i])
            g->nodes[count++] = g->nodes[i];
        else
            oct_onnx_free_node(&g->nodes[i]);
    }
    g->num_nodes = count;
    for (int64_t i = 0; i < g->num_values; i++)
        if (!needed[i]) drop_data(&g->values[i]);
    return OCT_OK;
}

/* Reports nodes with a value still unknown, with constants alone, or with an empty result, after other problems. */
static oct_status check_known(const oct_onnx_graph *g)
{
    for (int64_t i = 0; i < g->num_nodes; i++) {
        const oct_onnx_node *n = &g->nodes[i];
        bool known = true, constant = n->inputs > 0;
        for (int k = 0; k < n->inputs; k++) {
            const oct_onnx_value *v = oct_onnx_input(g, n, k);
            known = known && (!v || v->known);
            constant = constant && (!v || (v->data && !v->times));
        }
        if (!known)
            (void)oct_onnx_node_problem(g, n, "it uses a result that is not known");
        else if (constant)
            (void)oct_onnx_node_problem(
                g, n,
                "it computes with constants alone, which Octet does not do for this operator; put "
                "its result into the file as a constant");
        for (int k = 0; k < n->outputs; k++)
            if (n->output[k] >= 0 && g->values[n->output[k]].known &&
                oct_onnx_numel(&g->values[n->output[k]]) == 0)
                (void)oct_onnx_node_problem(g, n, "its result has no numbers; use larger images");
    }
    return oct_fail_code() == OCT_OK ? OCT_OK : OCT_DATA;
}

/* Refuses quantized networks: Octet chooses codes and scales itself, and does not train on those of others. */
static oct_status check_float(const oct_onnx_graph *g)
{
    for (const oct_onnx_node *n = g->nodes; n < g->nodes + g->num_nodes; n++)
        if (strstr(n->type, "QuantizeLinear") || strncmp(n->type, "QLinear", 7) == 0)
            return oct_onnx_node_problem(
                g, n,
                "the network is quantized already; Octet trains float networks and quantizes them "
                "itself, so give the float network that this one was made of");
    return OCT_OK;
}

oct_status oct_onnx_fold(oct_onnx_graph *g, int64_t h, int64_t w, int64_t c)
{
    oct_fail_clear();
    OCT_TRY(check_float(g));
    OCT_TRY(bypass_identities(g));
    OCT_TRY(drop_unneeded(g));
    OCT_TRY(set_input(g, &(image_size){h, w, c}));
    OCT_TRY(find_shapes(g));
    OCT_TRY(bypass_identities(g));
    OCT_TRY(drop_unneeded(g));
    return check_known(g);
}
