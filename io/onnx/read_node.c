/* Nodes of a file and their attributes. */
#include "io/onnx/read_impl.h"

#include "core/base/mem.h"
#include "core/base/text.h"

#include <string.h>

/* Bytes as a text: what is after a NUL is not read. */
static oct_status take_string(const ProtobufCBinaryData *bytes, char **text)
{
    OCT_TRY(oct_alloc(text, bytes->len + 1, 1));
    if (bytes->len > 0) memcpy(*text, bytes->data, bytes->len);
    return OCT_OK;
}

static oct_status take_ints(const Onnx__AttributeProto *p, oct_onnx_attribute *a)
{
    a->count = (int64_t)p->n_ints;
    OCT_TRY(oct_alloc(&a->ints, p->n_ints, sizeof *a->ints));
    if (p->n_ints > 0) memcpy(a->ints, p->ints, p->n_ints * sizeof *a->ints);
    return OCT_OK;
}

#define KIND(name) ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__##name

static oct_status take_attribute(const char *path, const Onnx__AttributeProto *p,
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
        a->kind = OCT_ONNX_STRING;
        return take_string(&p->s, &a->s);
    } else if (kind == KIND(INTS)) {
        a->kind = OCT_ONNX_INTS;
        return take_ints(p, a);
    } else if (kind == KIND(TENSOR) && p->t) {
        a->kind = OCT_ONNX_TENSOR;
        OCT_TRY(oct_strdup(&a->tensor.name, p->t->name ? p->t->name : ""));
        return oct_onnx_take_tensor(path, p->t, &a->tensor);
    }
    return OCT_OK;
}

bool oct_onnx_is_own(const char *domain)
{
    return !domain || domain[0] == '\0' || strcmp(domain, "ai.onnx") == 0;
}

/* Names a node that has no name after its first output, and says "Conv" where that has none either. */
const char *oct_onnx_name_of(const Onnx__NodeProto *p)
{
    if (p->name && p->name[0] != '\0') return p->name;
    return p->n_output > 0 && p->output[0][0] != '\0' ? p->output[0] : p->op_type;
}

oct_status oct_onnx_take_node(const char *path, const Onnx__NodeProto *p, oct_onnx_node *n)
{
    OCT_CHECK(p->op_type && p->op_type[0] != '\0', OCT_DATA,
              "%s: has a node without an operator; it is damaged", path);
    OCT_TRY(oct_strdup(&n->name, oct_onnx_name_of(p)));
    OCT_TRY(oct_strdup(&n->type, p->op_type));
    OCT_TRY(oct_strdup(&n->domain, oct_onnx_is_own(p->domain) ? "" : p->domain));
    OCT_TRY(oct_alloc(&n->attributes, p->n_attribute, sizeof *n->attributes));
    for (size_t i = 0; i < p->n_attribute; i++) {
        n->num_attributes++;
        OCT_TRY(take_attribute(path, p->attribute[i], &n->attributes[i]));
    }
    return OCT_OK;
}

static oct_status take_list(oct_onnx_value *v, oct_dtype dtype, const void *elements, size_t count)
{
    const size_t bytes = oct_dtype_bytes(dtype);
    v->dtype = dtype;
    v->dim[0] = (int64_t)count;
    OCT_TRY(oct_alloc(&v->data, count, bytes));
    if (count > 0) memcpy(v->data, elements, count * bytes);
    return OCT_OK;
}

oct_status oct_onnx_take_constant(const char *path, const Onnx__NodeProto *p, oct_onnx_value *v)
{
    const Onnx__AttributeProto *a = p->n_attribute == 1 ? p->attribute[0] : NULL;
    const char *name = a && a->name ? a->name : "";
    v->known = true;
    v->origin = -1;
    if (strcmp(name, "value") == 0 && a->t) return oct_onnx_take_tensor(path, a->t, v);
    if (strcmp(name, "value_float") == 0) return take_list(v, OCT_F32, &a->f, 1);
    if (strcmp(name, "value_int") == 0) return take_list(v, OCT_S64, &a->i, 1);
    v->ndim = 1;
    if (strcmp(name, "value_floats") == 0) return take_list(v, OCT_F32, a->floats, a->n_floats);
    if (strcmp(name, "value_ints") == 0) return take_list(v, OCT_S64, a->ints, a->n_ints);
    return oct_fail(OCT_DATA, "%s: the constant '%s' is no tensor of numbers", path,
                    oct_show(v->name, strlen(v->name)).text);
}
