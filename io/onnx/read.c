/* Takes a file over: checked by a walk of our own, unpacked by libprotobuf-c, and then into plain data in which
 * names are numbers.
 */
#include "core/base/mem.h"
#include "core/base/text.h"
#include "io/onnx/read_impl.h"
#include "io/onnx/wire.h"

#include <inttypes.h>
#include <string.h>

enum { IR_MIN = 3, IR_MAX = 14 };

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
    OCT_CHECK(*opset > 0, OCT_DATA,
              "%s: does not say which opset of ONNX it is written for; export it again", path);
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
    return OCT_OK;
}

/* Dimensions that are free or unknown count as the batch until the folding sets them. */
static oct_status take_type(const oct_onnx_reader *r, const Onnx__ValueInfoProto *p,
                            oct_onnx_value *v)
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

static bool is_initializer(const oct_onnx_scope *s, const char *name)
{
    return name && oct_onnx_find(s, name);
}

/* Older files list the initializers among the inputs. */
static oct_status take_inputs(oct_onnx_reader *r, oct_onnx_scope *s)
{
    oct_onnx_graph *g = r->graph;
    const Onnx__GraphProto *proto = r->model->graph;
    oct_onnx_value *v;
    OCT_TRY(oct_alloc(&g->inputs, proto->n_input, sizeof *g->inputs));
    OCT_TRY(oct_onnx_end_binding(s, g->path)); /* of the initializers */
    for (size_t i = 0; i < proto->n_input; i++)
        if (!is_initializer(s, proto->input[i]->name)) g->inputs[g->num_inputs++] = (int32_t)i;
    for (int i = 0; i < g->num_inputs; i++) {
        const Onnx__ValueInfoProto *p = proto->input[g->inputs[i]];
        g->inputs[i] = (int32_t)g->num_values;
        OCT_TRY(oct_onnx_define(r, s, p->name, &v));
        OCT_TRY(take_type(r, p, v));
    }
    OCT_CHECK(g->num_inputs > 0, OCT_DATA, "%s: has no input", g->path);
    v = &g->values[g->inputs[0]];
    g->fixed_batch = v->known && v->ndim > 0 && v->dim[0] > 0 ? v->dim[0] : 0;
    return OCT_OK;
}

static oct_status take_outputs(const oct_onnx_reader *r, const oct_onnx_scope *s)
{
    oct_onnx_graph *g = r->graph;
    const Onnx__GraphProto *proto = r->model->graph;
    OCT_CHECK(proto->n_output > 0, OCT_DATA, "%s: has no output", g->path);
    OCT_TRY(oct_alloc(&g->outputs, proto->n_output, sizeof *g->outputs));
    OCT_TRY(oct_alloc(&g->output_names, proto->n_output, sizeof *g->output_names));
    for (size_t i = 0; i < proto->n_output; i++) {
        const char *name = proto->output[i]->name ? proto->output[i]->name : "";
        const oct_onnx_names_entry *found = oct_onnx_find(s, name);
        OCT_CHECK(found, OCT_DATA, "%s: the output '%s' is made by nothing", g->path,
                  oct_show(name, strlen(name)).text);
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

static oct_status take_graph(oct_onnx_reader *r, oct_onnx_scope *s)
{
    const Onnx__GraphProto *proto = r->model->graph;
    OCT_TRY(oct_onnx_check_functions(r));
    OCT_TRY(oct_onnx_define_initializers(r, s, proto));
    OCT_TRY(take_inputs(r, s));
    OCT_TRY(oct_onnx_take_body(r, s, proto->node, proto->n_node));
    OCT_TRY(take_outputs(r, s));
    find_parameters(r->graph);
    return oct_onnx_sort_nodes(r->graph);
}

static oct_status take_model(oct_onnx_graph *g, const Onnx__ModelProto *m, size_t size)
{
    enum { TIMES_COPIES = 4 };
    const char *name = m->producer_name ? m->producer_name : "";
    const char *version = m->producer_version ? m->producer_version : "";
    oct_onnx_scope s = {.prefix = "", .branch = -1};
    oct_onnx_reader r = {
        .graph = g, .model = m, .copies_left = ((size_t)1 << 25) + TIMES_COPIES * size};
    OCT_TRY(check_model(g->path, m, &g->opset));
    g->ir_version = m->ir_version;
    OCT_TRY(oct_format(&g->producer, "%s%s%s", name, *name && *version ? " " : "", version));
    const oct_status status = take_graph(&r, &s);
    oct_free(&s.list);
    return status;
}

oct_status oct_onnx_read_bytes(oct_onnx_graph *g, const oct_onnx_source *source)
{
    Onnx__ModelProto *m = NULL;
    *g = (oct_onnx_graph){0};
    OCT_TRY(oct_onnx_unpack(source, &m));
    oct_status status = oct_strdup(&g->path, source->path);
    if (status == OCT_OK) status = take_model(g, m, source->size);
    onnx__model_proto__free_unpacked(m, &oct_wire_allocator);
    if (status != OCT_OK) oct_onnx_free(g);
    return status;
}

oct_status oct_onnx_read(oct_onnx_graph *g, const char *path)
{
    void *bytes = NULL;
    oct_onnx_source source = {.path = path};
    *g = (oct_onnx_graph){0};
    OCT_TRY(oct_onnx_load(path, &bytes, &source.size));
    source.bytes = bytes;
    const oct_status status = oct_onnx_read_bytes(g, &source);
    oct_free(&bytes);
    return status;
}
