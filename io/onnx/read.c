/* Takes a file over: checked by a walk of our own, unpacked by libprotobuf-c, and then into plain data in which
 * names are numbers.
 */
#include "core/base/mem.h"
#include "core/base/text.h"
#include "io/file.h"
#include "io/onnx/read_impl.h"
#include "io/onnx/wire.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { IR_MIN = 3, IR_MAX = 13 };
static const size_t file_bytes_max = INT32_MAX; /* what protocol buffers can hold */

/* Names in order of their bytes. No hash table: names are a stranger's, who could make them all collide. */
typedef struct entry {
    const char *name;
    int32_t value;
} entry;

typedef struct names {
    entry *list;
    size_t count, capacity;
} names;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const entry *)a)->name, ((const entry *)b)->name);
}

static oct_status add_name(names *n, const char *name, int32_t value)
{
    OCT_TRY(oct_grow(&n->list, &n->capacity, n->count + 1, sizeof *n->list));
    n->list[n->count++] = (entry){name, value};
    return OCT_OK;
}

static oct_status sort_names(names *n, const char *path)
{
    if (n->count > 1) qsort(n->list, n->count, sizeof *n->list, by_name);
    for (size_t i = 1; i < n->count; i++)
        OCT_CHECK(strcmp(n->list[i - 1].name, n->list[i].name) != 0, OCT_DATA,
                  "%s: the value '%s' is defined twice", path,
                  oct_show(n->list[i].name, strlen(n->list[i].name)).text);
    return OCT_OK;
}

static int32_t find_name(const names *n, const char *name)
{
    const entry wanted = {.name = name};
    const entry *found =
        n->count ? bsearch(&wanted, n->list, n->count, sizeof *n->list, by_name) : NULL;
    return found ? found->value : -1;
}

/* A file on its way in. */
typedef struct reader {
    oct_onnx_graph *graph;
    const Onnx__GraphProto *proto;
    oct_external external;
    names initializers, all;
} reader;

static oct_status check_versions(const char *path, const Onnx__ModelProto *m, int64_t *opset)
{
    *opset = 0;
    for (size_t i = 0; i < m->n_opset_import; i++) {
        const Onnx__OperatorSetIdProto *set = m->opset_import[i];
        const bool own =
            !set->domain || set->domain[0] == '\0' || strcmp(set->domain, "ai.onnx") == 0;
        if (own && set->version > *opset) *opset = set->version;
    }
    OCT_CHECK(m->ir_version >= IR_MIN && m->ir_version <= IR_MAX, OCT_DATA,
              "%s: is of version %" PRId64 " of ONNX's file format; %d to %d are read", path,
              m->ir_version, IR_MIN, IR_MAX);
    OCT_CHECK(*opset >= OCT_ONNX_OPSET_MIN && *opset <= OCT_ONNX_OPSET_MAX, OCT_DATA,
              "%s: is written for opset %" PRId64
              "; %d to %d are read: export it again with such an opset (opset_version=17), or "
              "use onnx.version_converter",
              path, *opset, OCT_ONNX_OPSET_MIN, OCT_ONNX_OPSET_MAX);
    return OCT_OK;
}

static oct_status check_model(const char *path, const Onnx__ModelProto *m, int64_t *opset)
{
    OCT_CHECK(m->graph && m->graph->n_node > 0, OCT_DATA, "%s: holds no network", path);
    OCT_TRY(check_versions(path, m, opset));
    OCT_CHECK(m->n_functions == 0, OCT_DATA,
              "%s: has functions of its own; write their operators into the network, with "
              "onnx.inliner.inline_local_functions",
              path);
    OCT_CHECK(m->graph->n_sparse_initializer == 0, OCT_DATA,
              "%s: has sparse tensors, which are not read", path);
    return OCT_OK;
}

static bool is_constant(const Onnx__NodeProto *n)
{
    return n->op_type && strcmp(n->op_type, "Constant") == 0 && n->n_output == 1 &&
           (!n->domain || n->domain[0] == '\0' || strcmp(n->domain, "ai.onnx") == 0);
}

static oct_status define(reader *r, const char *name, oct_onnx_value **value)
{
    oct_onnx_graph *g = r->graph;
    OCT_CHECK(name && name[0] != '\0', OCT_DATA,
              "%s: has an input or a tensor without a name; it is damaged", g->path);
    OCT_TRY(add_name(&r->all, name, (int32_t)g->num_values));
    *value = &g->values[g->num_values++];
    (*value)->origin = -1;
    return oct_strdup(&(*value)->name, name);
}

static oct_status take_initializers(reader *r)
{
    oct_onnx_value *v;
    for (size_t i = 0; i < r->proto->n_initializer; i++) {
        const Onnx__TensorProto *t = r->proto->initializer[i];
        OCT_TRY(define(r, t->name, &v));
        OCT_TRY(oct_onnx_take_tensor(&r->external, t, v));
        v->parameter = v->dtype == OCT_F32;
        OCT_TRY(add_name(&r->initializers, t->name, (int32_t)i));
    }
    return sort_names(&r->initializers, r->graph->path);
}

/* Dimensions that are free, or that nobody knows, count as the batch until the folding sets them. */
static oct_status take_type(const reader *r, const Onnx__ValueInfoProto *p, oct_onnx_value *v)
{
    const char *path = r->graph->path;
    const oct_shown name = oct_show(v->name, strlen(v->name));
    const Onnx__TypeProto__Tensor *t =
        p->type && p->type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE ? p->type->tensor_type
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
        const Onnx__TensorShapeProto__Dimension *d = t->shape->dim[i];
        const bool fixed = d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE &&
                           d->dim_value > 0;
        v->dim[i] = fixed ? d->dim_value : OCT_ONNX_BATCH;
    }
    return OCT_OK;
}

/* Older files list the initializers among the inputs. */
static oct_status take_inputs(reader *r)
{
    oct_onnx_graph *g = r->graph;
    oct_onnx_value *v;
    OCT_TRY(oct_alloc(&g->inputs, r->proto->n_input, sizeof *g->inputs));
    for (size_t i = 0; i < r->proto->n_input; i++) {
        const Onnx__ValueInfoProto *p = r->proto->input[i];
        if (p->name && find_name(&r->initializers, p->name) >= 0) continue;
        g->inputs[g->num_inputs++] = (int32_t)g->num_values;
        OCT_TRY(define(r, p->name, &v));
        OCT_TRY(take_type(r, p, v));
    }
    OCT_CHECK(g->num_inputs > 0, OCT_DATA, "%s: has no input", g->path);
    v = &g->values[g->inputs[0]];
    g->fixed_batch = v->known && v->ndim > 0 && v->dim[0] > 0 ? v->dim[0] : 0;
    return OCT_OK;
}

static oct_status define_results(reader *r)
{
    oct_onnx_value *v;
    for (size_t i = 0; i < r->proto->n_node; i++) {
        const Onnx__NodeProto *p = r->proto->node[i];
        for (size_t k = 0; k < p->n_output; k++) {
            if (p->output[k][0] == '\0') continue;
            OCT_TRY(define(r, p->output[k], &v));
            if (is_constant(p)) OCT_TRY(oct_onnx_take_constant(&r->external, p, v));
        }
    }
    return sort_names(&r->all, r->graph->path);
}

static oct_status find_inputs(const reader *r, const Onnx__NodeProto *p, oct_onnx_node *n)
{
    const char *path = r->graph->path;
    for (size_t k = 0; k < p->n_input; k++) {
        const char *name = p->input[k];
        n->input[k] = name[0] == '\0' ? -1 : find_name(&r->all, name);
        OCT_CHECK(name[0] == '\0' || n->input[k] >= 0, OCT_DATA,
                  "%s: the node '%s' (%s) wants '%s', which nothing makes", path,
                  oct_show(n->name, strlen(n->name)).text, oct_show(n->type, strlen(n->type)).text,
                  oct_show(name, strlen(name)).text);
    }
    return OCT_OK;
}

static oct_status take_nodes(reader *r)
{
    oct_onnx_graph *g = r->graph;
    OCT_TRY(oct_alloc(&g->nodes, r->proto->n_node, sizeof *g->nodes));
    for (size_t i = 0; i < r->proto->n_node; i++) {
        const Onnx__NodeProto *p = r->proto->node[i];
        if (is_constant(p)) continue;
        oct_onnx_node *n = &g->nodes[g->num_nodes++];
        OCT_TRY(oct_onnx_take_node(&r->external, p, n));
        n->inputs = (int)p->n_input;
        n->outputs = (int)p->n_output;
        OCT_TRY(oct_alloc(&n->input, p->n_input, sizeof *n->input));
        OCT_TRY(oct_alloc(&n->output, p->n_output, sizeof *n->output));
        OCT_TRY(find_inputs(r, p, n));
        for (size_t k = 0; k < p->n_output; k++)
            n->output[k] = p->output[k][0] == '\0' ? -1 : find_name(&r->all, p->output[k]);
    }
    return OCT_OK;
}

static oct_status take_outputs(const reader *r)
{
    oct_onnx_graph *g = r->graph;
    OCT_CHECK(r->proto->n_output > 0, OCT_DATA, "%s: has no output", g->path);
    OCT_TRY(oct_alloc(&g->outputs, r->proto->n_output, sizeof *g->outputs));
    for (size_t i = 0; i < r->proto->n_output; i++) {
        const char *name = r->proto->output[i]->name ? r->proto->output[i]->name : "";
        g->outputs[g->num_outputs] = find_name(&r->all, name);
        OCT_CHECK(g->outputs[g->num_outputs++] >= 0, OCT_DATA,
                  "%s: the output '%s' is made by nothing", g->path,
                  oct_show(name, strlen(name)).text);
    }
    return OCT_OK;
}

/* All external data are known before any is read. */
static oct_status note_external(reader *r)
{
    for (size_t i = 0; i < r->proto->n_initializer; i++)
        OCT_TRY(oct_onnx_note_external(&r->external, r->proto->initializer[i]));
    for (size_t i = 0; i < r->proto->n_node; i++)
        for (size_t k = 0; k < r->proto->node[i]->n_attribute; k++) {
            const Onnx__TensorProto *t = r->proto->node[i]->attribute[k]->t;
            if (t) OCT_TRY(oct_onnx_note_external(&r->external, t));
        }
    return oct_external_check(&r->external);
}

static size_t count_values(const Onnx__GraphProto *p)
{
    size_t count = p->n_initializer + p->n_input;
    for (size_t i = 0; i < p->n_node; i++)
        count += p->node[i]->n_output;
    return count;
}

static oct_status take_graph(reader *r)
{
    OCT_TRY(oct_alloc(&r->graph->values, count_values(r->proto), sizeof *r->graph->values));
    OCT_TRY(note_external(r));
    OCT_TRY(take_initializers(r));
    OCT_TRY(take_inputs(r));
    OCT_TRY(define_results(r));
    OCT_TRY(take_nodes(r));
    OCT_TRY(take_outputs(r));
    return oct_onnx_sort_nodes(r->graph);
}

static oct_status take_model(oct_onnx_graph *g, const Onnx__ModelProto *m, const char *folder)
{
    const char *name = m->producer_name ? m->producer_name : "";
    const char *version = m->producer_version ? m->producer_version : "";
    reader r = {.graph = g, .proto = m->graph, .external = {.path = g->path, .folder = folder}};
    OCT_TRY(check_model(g->path, m, &g->opset));
    g->ir_version = m->ir_version;
    OCT_TRY(oct_format(&g->producer, "%s%s%s", name, *name && *version ? " " : "", version));
    const oct_status status = take_graph(&r);
    oct_external_free(&r.external);
    oct_free(&r.initializers.list);
    oct_free(&r.all.list);
    return status;
}

static oct_status unpack(const oct_onnx_source *source, Onnx__ModelProto **m)
{
    OCT_CHECK(source->size <= file_bytes_max, OCT_DATA,
              "%s: has %zu bytes; an ONNX file has at most %zu, the rest lies in external data",
              source->path, source->size, file_bytes_max);
    OCT_TRY(
        oct_wire_check(&onnx__model_proto__descriptor, source->bytes, source->size, source->path));
    oct_fail_clear();
    *m = onnx__model_proto__unpack(&oct_wire_allocator, source->size, source->bytes);
    if (*m) return OCT_OK;
    return oct_fail_code() != OCT_OK
               ? oct_fail_prefix("%s", source->path)
               : oct_fail(OCT_DATA, "%s: is no ONNX file, or it is damaged", source->path);
}

oct_status oct_onnx_read_bytes(oct_onnx_graph *g, const oct_onnx_source *source)
{
    Onnx__ModelProto *m = NULL;
    *g = (oct_onnx_graph){0};
    OCT_TRY(unpack(source, &m));
    oct_status status = oct_strdup(&g->path, source->path);
    if (status == OCT_OK) status = take_model(g, m, source->folder);
    onnx__model_proto__free_unpacked(m, &oct_wire_allocator);
    if (status != OCT_OK) oct_onnx_free(g);
    return status;
}

oct_status oct_onnx_read(oct_onnx_graph *g, const char *path)
{
    void *bytes = NULL;
    char *folder = NULL;
    oct_onnx_source source = {.path = path};
    *g = (oct_onnx_graph){0};
    OCT_TRY(oct_file_read(path, file_bytes_max, &bytes, &source.size));
    const char *slash = strrchr(path, '/');
    oct_status status =
        oct_format(&folder, "%.*s", slash ? (int)(slash - path) + 1 : 2, slash ? path : "./");
    source.bytes = bytes;
    source.folder = folder;
    if (status == OCT_OK) status = oct_onnx_read_bytes(g, &source);
    oct_free(&folder);
    oct_free(&bytes);
    return status;
}
