/* Functions that a file brings along, as PyTorch's and others' exporters write modules and decompositions. They are
 * written out where they are called. */
#include "core/base/mem.h"
#include "core/base/text.h"
#include "io/onnx/read_impl.h"

#include <inttypes.h>
#include <string.h>

static const char *domain_of(const char *domain)
{
    return oct_onnx_is_own(domain) ? "" : domain;
}

static oct_status check_opset(const oct_onnx_reader *r, const Onnx__FunctionProto *p)
{
    for (size_t i = 0; i < p->n_opset_import; i++) {
        const Onnx__OperatorSetIdProto *set = p->opset_import[i];
        OCT_CHECK(
            !oct_onnx_is_own(set->domain) || set->version == r->graph->opset, OCT_DATA,
            "%s: its function '%s' is written for opset %" PRId64 " and the network for %" PRId64
            "; write the functions into the network, with onnx.inliner.inline_local_functions",
            r->graph->path, oct_show(p->name, strlen(p->name)).text, set->version, r->graph->opset);
    }
    return OCT_OK;
}

static const char *text_of(const char *text)
{
    return text ? text : "";
}

static bool is_called(const Onnx__FunctionProto *f, const char *name, const char *domain,
                      const char *overload)
{
    return strcmp(f->name, name) == 0 && strcmp(domain_of(f->domain), domain_of(domain)) == 0 &&
           strcmp(text_of(f->overload), text_of(overload)) == 0;
}

oct_status oct_onnx_check_functions(const oct_onnx_reader *r)
{
    enum { FUNCTIONS_MAX = 4096 }; /* each is compared with all before it */
    const Onnx__ModelProto *m = r->model;
    OCT_CHECK(m->n_functions <= FUNCTIONS_MAX, OCT_DATA, "%s: has %zu functions; up to %d are read",
              r->graph->path, m->n_functions, FUNCTIONS_MAX);
    for (size_t i = 0; i < m->n_functions; i++) {
        const Onnx__FunctionProto *p = m->functions[i];
        OCT_CHECK(p->name, OCT_DATA, "%s: has a function without a name; it is damaged",
                  r->graph->path);
        OCT_TRY(check_opset(r, p));
        for (size_t k = 0; k < i; k++)
            OCT_CHECK(!is_called(m->functions[k], p->name, p->domain, p->overload), OCT_DATA,
                      "%s: has two functions '%s'; write them into the network, with "
                      "onnx.inliner.inline_local_functions",
                      r->graph->path, oct_show(p->name, strlen(p->name)).text);
    }
    return OCT_OK;
}

const Onnx__FunctionProto *oct_onnx_called(const oct_onnx_reader *r, const Onnx__NodeProto *p)
{
    for (size_t i = 0; p->op_type && i < r->model->n_functions; i++)
        if (is_called(r->model->functions[i], p->op_type, p->domain, p->overload))
            return r->model->functions[i];
    return NULL;
}

/* The attribute of this name in a list, or NULL. */
static const Onnx__AttributeProto *find_attribute(Onnx__AttributeProto *const *list, size_t count,
                                                  const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (list[i]->name && strcmp(list[i]->name, name) == 0) return list[i];
    return NULL;
}

/* What the call says of an attribute, or else the function itself. NULL: neither does, and the function says that a
 * call may leave it out. */
static oct_status find_value(const oct_onnx_reader *r, const oct_onnx_scope *s,
                             const Onnx__NodeProto *p, const Onnx__AttributeProto **a)
{
    const char *name = (*a)->ref_attr_name, *node = oct_onnx_name_of(p);
    const Onnx__FunctionProto *f = s->function;
    bool declared = false;
    *a = s->call ? find_attribute(s->call->attribute, s->call->n_attribute, name) : NULL;
    if (!*a && f) *a = find_attribute(f->attribute_proto, f->n_attribute_proto, name);
    for (size_t i = 0; f && i < f->n_attribute; i++)
        declared = declared || strcmp(f->attribute[i], name) == 0;
    OCT_CHECK(*a ? (*a)->type != ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__UNDEFINED : declared,
              OCT_DATA,
              "%s: the node '%s' wants the attribute '%s' of the function that it is in, which has "
              "no value; the file is damaged",
              r->graph->path, oct_show(node, strlen(node)).text, oct_show(name, strlen(name)).text);
    return OCT_OK;
}

static bool refers(const Onnx__AttributeProto *a)
{
    return a->ref_attr_name && a->ref_attr_name[0] != '\0';
}

oct_status oct_onnx_resolve(const oct_onnx_reader *r, const oct_onnx_scope *s,
                            const Onnx__NodeProto *p, oct_onnx_resolved *out)
{
    oct_status status = OCT_OK;
    bool any = false;
    *out = (oct_onnx_resolved){.node = *p};
    for (size_t i = 0; i < p->n_attribute; i++)
        any = any || refers(p->attribute[i]);
    if (!any) return OCT_OK;
    out->node.attribute = NULL;
    out->node.n_attribute = 0;
    OCT_TRY_OUT(oct_alloc(&out->values, p->n_attribute, sizeof *out->values));
    OCT_TRY_OUT(oct_alloc(&out->node.attribute, p->n_attribute, sizeof(Onnx__AttributeProto *)));
    for (size_t i = 0; i < p->n_attribute; i++) {
        const Onnx__AttributeProto *a = p->attribute[i];
        if (refers(a)) OCT_TRY_OUT(find_value(r, s, p, &a));
        if (!a) continue; /* left out: the operator has its own default */
        Onnx__AttributeProto *value = &out->values[out->node.n_attribute];
        *value = *a;
        value->name = p->attribute[i]->name;
        out->node.attribute[out->node.n_attribute++] = value;
    }
out:
    if (status != OCT_OK) oct_onnx_free_resolved(out);
    return status;
}

void oct_onnx_free_resolved(oct_onnx_resolved *r)
{
    if (r->values) oct_free(&r->node.attribute);
    oct_free(&r->values);
}
