/* Functions that a file brings along, as PyTorch's and others' exporters write modules and decompositions. They are
 * written out where they are called. */
#include "core/base/mem.h"
#include "core/base/text.h"
#include "io/onnx/read_impl.h"
#include "io/onnx/wire.h"

#include <inttypes.h>
#include <string.h>

/* FunctionProto.attribute_proto, attributes with a default: younger than the format that Octet is built with. */
enum { DEFAULTS_FIELD = 11 };

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

/* The bytes of a field of this kind are its length and then a message. */
static oct_status take_default(const oct_onnx_reader *r, const ProtobufCMessageUnknownField *field,
                               oct_onnx_function_proto *f)
{
    size_t at = 0, size = 0;
    int shift = 0;
    while (at < field->len && shift < 35) {
        size |= (size_t)(field->data[at] & 0x7f) << shift;
        shift += 7;
        if (!(field->data[at++] & 0x80)) break;
    }
    OCT_CHECK(at + size == field->len, OCT_DATA, "%s: has a damaged function", r->graph->path);
    OCT_TRY(
        oct_wire_check(&onnx__attribute_proto__descriptor, field->data + at, size, r->graph->path));
    oct_fail_clear();
    Onnx__AttributeProto *a =
        onnx__attribute_proto__unpack(&oct_wire_allocator, size, field->data + at);
    if (!a && oct_fail_code() != OCT_OK) return oct_fail_prefix("%s", r->graph->path);
    OCT_CHECK(a, OCT_DATA, "%s: has a damaged function", r->graph->path);
    f->defaults[f->num_defaults++] = a;
    return OCT_OK;
}

static oct_status take_function(oct_onnx_reader *r, const Onnx__FunctionProto *p)
{
    const ProtobufCMessage *base = &p->base;
    oct_onnx_function_proto *f = &r->functions[r->num_functions++];
    f->proto = p;
    OCT_CHECK(p->name, OCT_DATA, "%s: has a function without a name; it is damaged",
              r->graph->path);
    OCT_TRY(check_opset(r, p));
    for (size_t i = 0; i + 1 < r->num_functions; i++) {
        const Onnx__FunctionProto *other = r->functions[i].proto;
        OCT_CHECK(strcmp(other->name, p->name) != 0 ||
                      strcmp(domain_of(other->domain), domain_of(p->domain)) != 0,
                  OCT_DATA,
                  "%s: has two functions '%s'; write them into the network, with "
                  "onnx.inliner.inline_local_functions",
                  r->graph->path, oct_show(p->name, strlen(p->name)).text);
    }
    OCT_TRY(oct_alloc(&f->defaults, base->n_unknown_fields, sizeof(Onnx__AttributeProto *)));
    for (unsigned i = 0; i < base->n_unknown_fields; i++)
        if (base->unknown_fields[i].tag == DEFAULTS_FIELD)
            OCT_TRY(take_default(r, &base->unknown_fields[i], f));
    return OCT_OK;
}

oct_status oct_onnx_take_functions(oct_onnx_reader *r)
{
    enum { FUNCTIONS_MAX = 4096 }; /* each is compared with all before it */
    const Onnx__ModelProto *m = r->model;
    OCT_CHECK(m->n_functions <= FUNCTIONS_MAX, OCT_DATA, "%s: has %zu functions; up to %d are read",
              r->graph->path, m->n_functions, FUNCTIONS_MAX);
    OCT_TRY(oct_alloc(&r->functions, m->n_functions, sizeof *r->functions));
    for (size_t i = 0; i < m->n_functions; i++)
        OCT_TRY(take_function(r, m->functions[i]));
    return OCT_OK;
}

void oct_onnx_free_functions(oct_onnx_reader *r)
{
    for (size_t i = 0; i < r->num_functions; i++) {
        oct_onnx_function_proto *f = &r->functions[i];
        for (size_t k = 0; k < f->num_defaults; k++)
            onnx__attribute_proto__free_unpacked(f->defaults[k], &oct_wire_allocator);
        oct_free(&f->defaults);
    }
    oct_free(&r->functions);
}

const oct_onnx_function_proto *oct_onnx_called(const oct_onnx_reader *r, const Onnx__NodeProto *p)
{
    for (size_t i = 0; p->op_type && i < r->num_functions; i++) {
        const Onnx__FunctionProto *f = r->functions[i].proto;
        if (strcmp(f->name, p->op_type) == 0 &&
            strcmp(domain_of(f->domain), domain_of(p->domain)) == 0)
            return &r->functions[i];
    }
    return NULL;
}

/* What the call says of an attribute, or else the function itself; NULL: neither. */
static const Onnx__AttributeProto *find_value(const oct_onnx_scope *s, const char *name)
{
    for (size_t i = 0; s->call && i < s->call->n_attribute; i++)
        if (s->call->attribute[i]->name && strcmp(s->call->attribute[i]->name, name) == 0)
            return s->call->attribute[i];
    for (size_t i = 0; s->function && i < s->function->num_defaults; i++)
        if (s->function->defaults[i]->name && strcmp(s->function->defaults[i]->name, name) == 0)
            return s->function->defaults[i];
    return NULL;
}

static bool refers(const Onnx__AttributeProto *a)
{
    return a->ref_attr_name && a->ref_attr_name[0] != '\0';
}

oct_status oct_onnx_resolve(const oct_onnx_scope *s, const Onnx__NodeProto *p,
                            oct_onnx_resolved *out)
{
    bool any = false;
    *out = (oct_onnx_resolved){.node = *p};
    for (size_t i = 0; i < p->n_attribute; i++)
        any = any || refers(p->attribute[i]);
    if (!any) return OCT_OK;
    out->node.attribute = NULL;
    OCT_TRY(oct_alloc(&out->values, p->n_attribute, sizeof *out->values));
    oct_status status =
        oct_alloc(&out->node.attribute, p->n_attribute, sizeof(Onnx__AttributeProto *));
    if (status != OCT_OK) {
        oct_free(&out->values);
        return status;
    }
    out->node.n_attribute = 0;
    for (size_t i = 0; i < p->n_attribute; i++) {
        const Onnx__AttributeProto *a = p->attribute[i];
        if (refers(a)) a = find_value(s, a->ref_attr_name);
        if (!a) continue; /* left out: the operator has its own default */
        Onnx__AttributeProto *value = &out->values[out->node.n_attribute];
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
