/* Takes a file over: checked by a walk of our own, unpacked by libprotobuf-c, and then into plain data in which
 * names are numbers.
 */
#include "core/base/mem.h"
#include "core/base/text.h"
#include "io/onnx/read_impl.h"

#include <inttypes.h>
#include <string.h>

enum { IR_MIN = 3, IR_MAX = 14 };

static oct_status check_versions(const char *path, const OctOnnx__ModelProto *m, int64_t *opset)
{
    *opset = 0;
    for (size_t i = 0; i < m->n_opset_import; i++) {
        const OctOnnx__OperatorSetIdProto *set = m->opset_import[i];
        if (oct_onnx_is_own(set->domain) && set->version > *opset) *opset = set->version;
    }
    OCT_CHECK(m->ir_version >= IR_MIN && m->ir_version <= IR_MAX, OCT_DATA,
              "%s: is of version %" PRId64 " of ONNX's file format; %d to %d are read", path,
              m->ir_version, IR_MIN, IR_MAX);
    OCT_CHECK(*opset > 0, OCT_DATA,
              "%s: does not say which opset of ONNX it is written for; export it again", path);
    OCT_CHECK(*opset >= OCT_ONNX_OPSET_MIN && *opset <= OCT_ONNX_OPSET_MAX, OCT_DATA,
              "%s: is written for opset %" PRId64
              "; %d to %d are read: export it again with such an opset (opset_version=17), or "
              "use onnx.version_converter",
              path, *opset, OCT_ONNX_OPSET_MIN, OCT_ONNX_OPSET_MAX);
    return OCT_OK;
}

/* Dimensions that are free or unknown count as the batch until the folding sets them. */
static oct_status read_input_type(const oct_onnx_reader *r, const OctOnnx__ValueInfoProto *p,
                                  oct_onnx_value *v)
{
    const char *path = r->graph->path;
    const oct_shown name = oct_onnx_shown(v->name);
    const OctOnnx__TypeProto__Tensor *t =
        p->type && p->type->value_case == OCT_ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE
            ? p->type->tensor_type
            : NULL;
    OCT_CHECK(t, OCT_DATA, "%s: the input '%s' is no tensor", path, name.text);
    OCT_TRY(oct_onnx_element_type(path, v->name, t->elem_type, &v->dtype));
    if (!t->shape) return OCT_OK;
    OCT_CHECK(t->shape->n_dim <= OCT_ONNX_DIMS, OCT_DATA,
              "%s: the input '%s' has %zu dimensions; up to %d are read", path, name.text,
              t->shape->n_dim, OCT_ONNX_DIMS);
    v->known = true;
    v->ndim = (int)t->shape->n_dim;
    for (int i = 0; i < v->ndim; i++) {
        const OctOnnx__TensorShapeProto__Dimension *d = t->shape->dim[i];
        const bool fixed =
            d->value_case == OCT_ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE &&
            d->dim_value > 0;
        v->dim[i] = fixed ? d->dim_value : OCT_ONNX_BATCH;
    }
    return OCT_OK;
}

/* Older files list the initializers among the inputs. */
static oct_status read_inputs(oct_onnx_reader *r, oct_onnx_scope *s)
{
    oct_onnx_graph *g = r->graph;
    const OctOnnx__GraphProto *proto = r->model->graph;
    oct_onnx_value *v;
    OCT_TRY(oct_alloc(&g->inputs, proto->n_input, sizeof *g->inputs));
    OCT_TRY(oct_onnx_end_binding(s, g->path)); /* of the initializers */
    for (size_t i = 0; i < proto->n_input; i++)
        if (!proto->input[i]->name || !oct_onnx_find_name(s, proto->input[i]->name))
            g->inputs[g->num_inputs++] = (int32_t)i;
    for (int i = 0; i < g->num_inputs; i++) {
        const OctOnnx__ValueInfoProto *p = proto->input[g->inputs[i]];
        g->inputs[i] = (int32_t)g->num_values;
        OCT_TRY(oct_onnx_define_value(r, s, p->name, &v));
        OCT_TRY(read_input_type(r, p, v));
    }
    OCT_CHECK(g->num_inputs > 0, OCT_DATA, "%s: has no input", g->path);
    v = &g->values[g->inputs[0]];
    g->fixed_batch = v->known && v->ndim > 0 && v->dim[0] > 0 ? v->dim[0] : 0;
    return OCT_OK;
}

static oct_status read_outputs(const oct_onnx_reader *r, const oct_onnx_scope *s)
{
    oct_onnx_graph *g = r->graph;
    const OctOnnx__GraphProto *proto = r->model->graph;
    OCT_CHECK(proto->n_output > 0, OCT_DATA, "%s: has no output", g->path);
    OCT_TRY(oct_alloc(&g->outputs, proto->n_output, sizeof *g->outputs));
    OCT_TRY(oct_alloc(&g->output_names, proto->n_output, sizeof *g->output_names));
    for (size_t i = 0; i < proto->n_output; i++) {
        const char *name = proto->output[i]->name ? proto->output[i]->name : "";
        const oct_onnx_names_entry *found = oct_onnx_find_name(s, name);
        OCT_CHECK(found, OCT_DATA, "%s: the output '%s' is made by nothing", g->path,
                  oct_onnx_shown(name).text);
        g->outputs[g->num_outputs] = found->value;
        OCT_TRY(oct_strdup(&g->output_names[g->num_outputs++], name));
    }
    return OCT_OK;
}

/* Some exporters write weights as Constant nodes. Where a file has no other ones, these are its parameters. */
static void find_parameters(oct_onnx_graph *g)
{
    for (int64_t i = 0; i < g->num_values; i++)
        if (g->values[i].parameter && g->values[i].ndim > 0) return;
    for (int64_t i = 0; i < g->num_values; i++) {
        oct_onnx_value *v = &g->values[i];
        if (v->data && v->dtype == OCT_F32 && v->ndim > 0) v->parameter = v->learned = true;
    }
}

/* A function of the file must be written for the network's opset: operators are looked up in that one alone. */
static oct_status check_opset(const oct_onnx_reader *r, const OctOnnx__FunctionProto *p)
{
    for (size_t i = 0; i < p->n_opset_import; i++) {
        const OctOnnx__OperatorSetIdProto *set = p->opset_import[i];
        OCT_CHECK(
            !oct_onnx_is_own(set->domain) || set->version == r->graph->opset, OCT_DATA,
            "%s: its function '%s' is written for opset %" PRId64 " and the network for %" PRId64
            "; write the functions into the network, with onnx.inliner.inline_local_functions",
            r->graph->path, oct_onnx_shown(p->name).text, set->version, r->graph->opset);
    }
    return OCT_OK;
}

static oct_status check_functions(const oct_onnx_reader *r)
{
    enum { FUNCTIONS_MAX = 4096 }; /* each is compared with all before it */
    const OctOnnx__ModelProto *m = r->model;
    OCT_CHECK(m->n_functions <= FUNCTIONS_MAX, OCT_DATA, "%s: has %zu functions; up to %d are read",
              r->graph->path, m->n_functions, FUNCTIONS_MAX);
    for (size_t i = 0; i < m->n_functions; i++) {
        const OctOnnx__FunctionProto *p = m->functions[i];
        OCT_CHECK(p->name, OCT_DATA, "%s: has a function without a name; it is damaged",
                  r->graph->path);
        OCT_TRY(check_opset(r, p));
        for (size_t k = 0; k < i; k++)
            OCT_CHECK(!oct_onnx_is_called(m->functions[k], p->name, p->domain, p->overload),
                      OCT_DATA,
                      "%s: has two functions '%s'; write them into the network, with "
                      "onnx.inliner.inline_local_functions",
                      r->graph->path, oct_onnx_shown(p->name).text);
    }
    return OCT_OK;
}

/* The order of nodes: files should list each after those that it needs, but not all do. */

/* What a node needs: its inputs, and the conditions of the branches that it is in. */
typedef struct needs {
    const oct_onnx_graph *graph;
    const oct_onnx_node *node;
    int input;
    int32_t branch;
} needs;

static needs begin_needs(const oct_onnx_graph *g, int64_t node)
{
    return (needs){.graph = g, .node = &g->nodes[node], .branch = g->nodes[node].branch};
}

/* The next value that a node needs, first its inputs, then the conditions of the Ifs around it; -1: that was all. */
static int32_t next_need(needs *n)
{
    while (n->input < n->node->inputs) {
        const int32_t value = n->node->input[n->input++];
        if (value >= 0) return value;
    }
    if (n->branch < 0) return -1;
    const oct_onnx_branch *branch = &n->graph->branches[n->branch];
    n->branch = branch->outer;
    return branch->condition;
}

static bool are_nodes_sorted(const oct_onnx_graph *g, const int32_t *producer)
{
    for (int32_t i = 0; i < (int32_t)g->num_nodes; i++) {
        needs n = begin_needs(g, i);
        for (int32_t value; (value = next_need(&n)) >= 0;)
            if (producer[value] >= i) return false;
    }
    return true;
}

/* Links from each node to those that use it: the users of node i are list[first[i]] to list[first[i + 1] - 1]. */
typedef struct users {
    int32_t *first, *list, *num_missing; /* num_missing: results that a node waits for still */
    int32_t *order;
} users;

/* Lists the users of each node by a counting sort, and counts the results that each node waits for. */
static oct_status link_nodes_to_users(const oct_onnx_graph *g, const int32_t *producer, users *u)
{
    const size_t count = (size_t)g->num_nodes;
    OCT_TRY(oct_alloc(&u->first, count + 2, sizeof *u->first));
    OCT_TRY(oct_alloc(&u->num_missing, count, sizeof *u->num_missing));
    OCT_TRY(oct_alloc(&u->order, count, sizeof *u->order));
    for (size_t i = 0; i < count; i++) {
        needs n = begin_needs(g, (int64_t)i);
        for (int32_t value; (value = next_need(&n)) >= 0;) {
            if (producer[value] < 0) continue;
            u->first[producer[value] + 2]++; /* + 2: filling the list moves each begin to its end */
            u->num_missing[i]++;
        }
    }
    for (size_t i = 0; i < count; i++)
        u->first[i + 2] += u->first[i + 1];
    OCT_TRY(oct_alloc(&u->list, (size_t)u->first[count + 1], sizeof *u->list));
    for (size_t i = 0; i < count; i++) {
        needs n = begin_needs(g, (int64_t)i);
        for (int32_t value; (value = next_need(&n)) >= 0;)
            if (producer[value] >= 0) u->list[u->first[producer[value] + 1]++] = (int32_t)i;
    }
    return OCT_OK;
}

/* Kahn's topological sort: a node follows when all that it needs is in the order. */
static oct_status sort_by_needs(const oct_onnx_graph *g, users *u)
{
    int32_t count = 0;
    for (int32_t i = 0; i < (int32_t)g->num_nodes; i++)
        if (u->num_missing[i] == 0) u->order[count++] = i;
    for (int32_t done = 0; done < count; done++) {
        const int32_t node = u->order[done];
        for (int32_t k = u->first[node]; k < u->first[node + 1]; k++)
            if (--u->num_missing[u->list[k]] == 0) u->order[count++] = u->list[k];
    }
    for (int64_t i = 0; i < g->num_nodes && count < g->num_nodes; i++)
        OCT_CHECK(u->num_missing[i] == 0, OCT_DATA,
                  "%s: the node '%s' needs its own result, by way of others; a network has no "
                  "circles",
                  g->path, oct_onnx_shown(g->nodes[i].name).text);
    return OCT_OK;
}

/* Puts each node after those that compute what it needs, where the file does not. */
static oct_status sort_nodes(oct_onnx_graph *g)
{
    oct_status status = OCT_OK;
    users u = {0};
    oct_onnx_node *nodes = NULL;
    int32_t *producer = NULL;
    OCT_TRY_OUT(oct_alloc(&producer, (size_t)g->num_values, sizeof *producer));
    for (int64_t i = 0; i < g->num_values; i++)
        producer[i] = -1;
    for (int64_t i = 0; i < g->num_nodes; i++)
        for (int k = 0; k < g->nodes[i].outputs; k++)
            if (g->nodes[i].output[k] >= 0) producer[g->nodes[i].output[k]] = (int32_t)i;
    if (are_nodes_sorted(g, producer)) goto out;
    OCT_TRY_OUT(link_nodes_to_users(g, producer, &u));
    OCT_TRY_OUT(sort_by_needs(g, &u));
    OCT_TRY_OUT(oct_alloc(&nodes, (size_t)g->num_nodes, sizeof *nodes));
    for (int64_t i = 0; i < g->num_nodes; i++)
        nodes[i] = g->nodes[u.order[i]];
    oct_free(&g->nodes);
    g->nodes = nodes;
out:
    OCT_FREE_ALL(&u.first, &u.list, &u.num_missing, &u.order, &producer);
    return status;
}

static oct_status read_model(oct_onnx_graph *g, const OctOnnx__ModelProto *m, size_t size)
{
    enum { TIMES_COPIES = 4 };
    const char *name = m->producer_name ? m->producer_name : "";
    const char *version = m->producer_version ? m->producer_version : "";
    oct_onnx_scope s = {.prefix = "", .branch = -1};
    oct_onnx_reader r = {
        .graph = g, .model = m, .copies_left = ((size_t)1 << 25) + TIMES_COPIES * size};
    OCT_CHECK(m->graph && m->graph->n_node > 0, OCT_DATA, "%s: holds no network", g->path);
    OCT_TRY(check_versions(g->path, m, &g->opset));
    g->ir_version = m->ir_version;
    OCT_TRY(oct_format(&g->producer, "%s%s%s", name, *name && *version ? " " : "", version));
    oct_status status = OCT_OK;
    OCT_TRY_OUT(check_functions(&r));
    OCT_TRY_OUT(oct_onnx_define_initializers(&r, &s, m->graph));
    OCT_TRY_OUT(read_inputs(&r, &s));
    OCT_TRY_OUT(oct_onnx_read_nodes(&r, &s, m->graph->node, m->graph->n_node));
    OCT_TRY_OUT(read_outputs(&r, &s));
    find_parameters(g);
    OCT_TRY_OUT(sort_nodes(g));
out:
    oct_free(&s.list);
    return status;
}

oct_status oct_onnx_read_bytes(oct_onnx_graph *g, const oct_onnx_source *source)
{
    OctOnnx__ModelProto *m = NULL;
    *g = (oct_onnx_graph){0};
    OCT_TRY(oct_onnx_unpack(source, &m));
    oct_status status = oct_strdup(&g->path, source->path);
    if (status == OCT_OK) status = read_model(g, m, source->size);
    oct_onnx__model_proto__free_unpacked(m, &oct_wire_allocator);
    if (status != OCT_OK) oct_onnx_free(g);
    return status;
}

oct_status oct_onnx_read(oct_onnx_graph *g, const char *path)
{
    OCT_OWNED(oct_free) void *bytes = NULL;
    oct_onnx_source source = {.path = path};
    *g = (oct_onnx_graph){0};
    OCT_TRY(oct_onnx_load(path, &bytes, &source.size));
    source.bytes = bytes;
    return oct_onnx_read_bytes(g, &source);
}
