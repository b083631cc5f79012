/* Names of values. What is inside of a function sees its own names alone; what is inside of an If sees those
 * around it too. */
#include "core/base/mem.h"
#include "core/base/text.h"
#include "io/onnx/read_impl.h"

#include <stdlib.h>
#include <string.h>

bool oct_onnx_is_own(const char *domain)
{
    return !domain || domain[0] == '\0' || strcmp(domain, "ai.onnx") == 0;
}

/* Names a node that has no name after its first output, and says "Conv" where that has none either. */
const char *oct_onnx_name_of(const OctOnnx__NodeProto *p)
{
    if (p->name && p->name[0] != '\0') return p->name;
    return p->n_output > 0 && p->output[0][0] != '\0' ? p->output[0] : p->op_type;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const oct_onnx_names_entry *)a)->name, ((const oct_onnx_names_entry *)b)->name);
}

oct_status oct_onnx_charge(oct_onnx_reader *r, const oct_onnx_scope *s, size_t bytes)
{
    if (s->depth == 0) return OCT_OK; /* the file itself bounds it */
    OCT_CHECK(bytes <= r->copies_left, OCT_DATA,
              "%s: grows too large when its functions and loops are written out; export it "
              "without them",
              r->graph->path);
    r->copies_left -= bytes;
    return OCT_OK;
}

oct_status oct_onnx_bind(oct_onnx_reader *r, oct_onnx_scope *s, const char *name, int32_t value)
{
    OCT_TRY(oct_onnx_charge(r, s, 2 * sizeof *s->list));
    OCT_TRY(oct_grow(&s->list, &s->capacity, s->count + 1, sizeof *s->list));
    s->list[s->count++] = (oct_onnx_names_entry){name, value};
    return OCT_OK;
}

oct_status oct_onnx_end_binding(oct_onnx_scope *s, const char *path)
{
    if (s->count > 1) qsort(s->list, s->count, sizeof *s->list, compare_names);
    for (size_t i = 1; i < s->count; i++)
        OCT_CHECK(strcmp(s->list[i - 1].name, s->list[i].name) != 0, OCT_DATA,
                  "%s: the value '%s' is defined twice", path,
                  oct_onnx_shown(s->list[i].name).text);
    return OCT_OK;
}

const oct_onnx_names_entry *oct_onnx_find_name(const oct_onnx_scope *s, const char *name)
{
    const oct_onnx_names_entry wanted = {.name = name};
    for (; s; s = s->outer) {
        const oct_onnx_names_entry *found =
            s->count ? bsearch(&wanted, s->list, s->count, sizeof *s->list, compare_names) : NULL;
        if (found) return found;
    }
    return NULL;
}

oct_status oct_onnx_define_value(oct_onnx_reader *r, oct_onnx_scope *s, const char *name,
                                 oct_onnx_value **value)
{
    oct_onnx_graph *g = r->graph;
    *value = NULL;
    OCT_CHECK(name && name[0] != '\0', OCT_DATA,
              "%s: has an input or a tensor without a name; it is damaged", g->path);
    OCT_TRY(oct_onnx_bind(r, s, name, (int32_t)g->num_values));
    OCT_TRY(oct_onnx_charge(r, s, 2 * sizeof **value + strlen(name) + strlen(s->prefix)));
    OCT_TRY(
        oct_grow(&g->values, &r->values_capacity, (size_t)g->num_values + 1, sizeof *g->values));
    *value = &g->values[g->num_values];
    **value = (oct_onnx_value){.origin = -1};
    OCT_TRY(oct_format(&(*value)->name, "%s%s", s->prefix, name));
    g->num_values++;
    return OCT_OK;
}

oct_status oct_onnx_define_initializers(oct_onnx_reader *r, oct_onnx_scope *s,
                                        const OctOnnx__GraphProto *p)
{
    oct_onnx_value *v;
    OCT_CHECK(p->n_sparse_initializer == 0, OCT_DATA, "%s: has sparse tensors, which are not read",
              r->graph->path);
    for (size_t i = 0; i < p->n_initializer; i++) {
        OCT_TRY(oct_onnx_define_value(r, s, p->initializer[i]->name, &v));
        OCT_TRY(oct_onnx_charge(r, s, oct_onnx__tensor_proto__get_packed_size(p->initializer[i])));
        OCT_TRY(oct_onnx_read_tensor(r->graph->path, p->initializer[i], v));
        v->parameter = v->learned = v->dtype == OCT_F32;
    }
    return OCT_OK;
}

/* The attribute of this name in a list, or NULL. */
static const OctOnnx__AttributeProto *find_attribute(OctOnnx__AttributeProto *const *list,
                                                     size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (list[i]->name && strcmp(list[i]->name, name) == 0) return list[i];
    return NULL;
}

/* Finds the attribute of the function that *a refers to: what the call says, or else the function's default. NULL:
 * neither, and the function says that a call may leave it out. */
static oct_status find_attribute_value(const oct_onnx_reader *r, const oct_onnx_scope *s,
                                       const OctOnnx__NodeProto *p,
                                       const OctOnnx__AttributeProto **a)
{
    const char *name = (*a)->ref_attr_name, *node = oct_onnx_name_of(p);
    const OctOnnx__FunctionProto *f = s->function;
    bool declared = false;
    *a = s->call ? find_attribute(s->call->attribute, s->call->n_attribute, name) : NULL;
    if (!*a && f) *a = find_attribute(f->attribute_proto, f->n_attribute_proto, name);
    for (size_t i = 0; f && i < f->n_attribute; i++)
        declared = declared || strcmp(f->attribute[i], name) == 0;
    OCT_CHECK(*a ? (*a)->type != OCT_ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__UNDEFINED : declared,
              OCT_DATA,
              "%s: the node '%s' wants the attribute '%s' of the function that it is in, which has "
              "no value; the file is damaged",
              r->graph->path, oct_onnx_shown(node).text, oct_onnx_shown(name).text);
    return OCT_OK;
}

static bool refers_to_call(const OctOnnx__AttributeProto *a)
{
    return a->ref_attr_name && a->ref_attr_name[0] != '\0';
}

oct_status oct_onnx_resolve(const oct_onnx_reader *r, const oct_onnx_scope *s,
                            const OctOnnx__NodeProto *p, oct_onnx_resolved *out)
{
    bool any = false;
    *out = (oct_onnx_resolved){.node = *p};
    for (size_t i = 0; i < p->n_attribute; i++)
        any = any || refers_to_call(p->attribute[i]);
    if (!any) return OCT_OK;
    out->node.attribute = NULL;
    out->node.n_attribute = 0;
    OCT_TRY(oct_alloc(&out->values, p->n_attribute, sizeof *out->values));
    OCT_TRY(oct_alloc(&out->node.attribute, p->n_attribute, sizeof(OctOnnx__AttributeProto *)));
    for (size_t i = 0; i < p->n_attribute; i++) {
        const OctOnnx__AttributeProto *a = p->attribute[i];
        if (refers_to_call(a)) OCT_TRY(find_attribute_value(r, s, p, &a));
        if (!a) continue; /* left out: the operator has its own default */
        OctOnnx__AttributeProto *value = &out->values[out->node.n_attribute];
        *value = *a;
        value->name = p->attribute[i]->name;
        out->node.attribute[out->node.n_attribute++] = value;
    }
    return OCT_OK;
}

void oct_onnx_free_resolved(oct_onnx_resolved *r)
{
    if (r->values) oct_free(&r->node.attribute);
    oct_free(&r->values);
}
