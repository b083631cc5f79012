/* Tensors of a file: raw bytes or typed fields; external data become raw bytes first. Real numbers of any width become 32 bits wide. */
#include "io/onnx/operator.h"
#include "io/onnx/read_impl.h"

#include "core/base/half.h"
#include "core/base/mem.h"
#include "core/base/text.h"

#include <inttypes.h>
#include <string.h>

typedef enum field { FIELD_NONE, FIELD_FLOAT, FIELD_DOUBLE, FIELD_S32, FIELD_S64, FIELD_U64 } field;

/* How elements of a type are kept in a file, and what becomes of them. */
typedef struct element {
    int32_t type;
    const char *name;
    size_t bytes; /* of raw data; 0: it is not read */
    bool is_signed;
    field typed;
    oct_dtype dtype;
} element;

#define TYPE(name) OCT_ONNX__TENSOR_PROTO__DATA_TYPE__##name
static const element elements[] = {
    {TYPE(FLOAT), "float", 4, true, FIELD_FLOAT, OCT_F32},
    {TYPE(DOUBLE), "double", 8, true, FIELD_DOUBLE, OCT_F32},
    {TYPE(FLOAT16), "float16", 2, false, FIELD_S32, OCT_F32},
    {TYPE(BFLOAT16), "bfloat16", 2, false, FIELD_S32, OCT_F32},
    {TYPE(INT64), "int64", 8, true, FIELD_S64, OCT_S64},
    {TYPE(INT32), "int32", 4, true, FIELD_S32, OCT_S32},
    {TYPE(INT16), "int16", 2, true, FIELD_S32, OCT_S16},
    {TYPE(INT8), "int8", 1, true, FIELD_S32, OCT_S8},
    {TYPE(UINT8), "uint8", 1, false, FIELD_S32, OCT_U8},
    {TYPE(UINT16), "uint16", 2, false, FIELD_S32, OCT_U16},
    {TYPE(UINT32), "uint32", 4, false, FIELD_U64, OCT_S64},
    {TYPE(UINT64), "uint64", 8, false, FIELD_U64, OCT_S64},
    {TYPE(BOOL), "bool", 1, false, FIELD_S32, OCT_U8},
    {TYPE(STRING), "string", 0, false, FIELD_NONE, OCT_U8},
    {TYPE(COMPLEX64), "complex64", 0, false, FIELD_NONE, OCT_U8},
    {TYPE(COMPLEX128), "complex128", 0, false, FIELD_NONE, OCT_U8},
};

static const element *element_of(int64_t type)
{
    for (size_t i = 0; i < OCT_COUNT(elements); i++)
        if (elements[i].type == type) return &elements[i];
    return NULL;
}

static oct_status find_element(const char *path, const char *name, int32_t type, const element **e)
{
    *e = element_of(type);
    OCT_CHECK(*e, OCT_DATA, "%s: '%s' has elements of type %" PRId32 ", which is not known", path,
              oct_onnx_shown(name).text, type);
    OCT_CHECK((*e)->bytes, OCT_DATA,
              "%s: '%s' has elements of type %s, which is not read; networks are real numbers",
              path, oct_onnx_shown(name).text, (*e)->name);
    return OCT_OK;
}

oct_status oct_onnx_element_type(const char *path, const char *name, int32_t data_type,
                                 oct_dtype *dtype)
{
    const element *e;
    OCT_TRY(find_element(path, name, data_type, &e));
    *dtype = e->dtype;
    return OCT_OK;
}

bool oct_onnx_dtype_of(int64_t type, oct_dtype *dtype)
{
    const element *e = element_of(type);
    if (e) *dtype = e->dtype;
    return e && e->bytes;
}

/* A tensor on its way in. */
typedef struct tensor {
    const char *path;
    oct_shown name; /* for messages */
    const OctOnnx__TensorProto *proto;
    const element *element;
    int64_t numel;
} tensor;

/* Checks a tensor's type and dimensions, sets those of the value, and counts its elements. */
static oct_status open_tensor(tensor *t, const char *path, const OctOnnx__TensorProto *p,
                              oct_onnx_value *v)
{
    *t = (tensor){.path = path, .name = oct_onnx_shown(p->name), .proto = p};
    OCT_TRY(find_element(path, p->name, p->data_type, &t->element));
    OCT_CHECK(!p->has_segment, OCT_DATA, "%s: '%s' is cut into segments, which are not read", path,
              t->name.text);
    OCT_CHECK(p->n_dims <= OCT_ONNX_DIMS, OCT_DATA,
              "%s: '%s' has %zu dimensions; up to %d are read", path, t->name.text, p->n_dims,
              OCT_ONNX_DIMS);
    v->ndim = (int)p->n_dims;
    for (int i = 0; i < v->ndim; i++) {
        v->dim[i] = p->dims[i];
        OCT_CHECK(p->dims[i] >= 0 && p->dims[i] <= INT32_MAX, OCT_DATA,
                  "%s: '%s' has a dimension of %" PRId64, path, t->name.text, p->dims[i]);
    }
    t->numel = oct_onnx_numel(v);
    OCT_CHECK(t->numel >= 0 && t->numel <= INT32_MAX, OCT_DATA,
              "%s: '%s' has more than %d elements", path, t->name.text, INT32_MAX);
    v->dtype = t->element->dtype;
    v->known = true;
    v->origin = -1;
    return OCT_OK;
}

bool oct_onnx_is_external(const OctOnnx__TensorProto *p)
{
    return p->has_data_location &&
           p->data_location == OCT_ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
}

oct_status oct_onnx_tensor_bytes(const char *path, const OctOnnx__TensorProto *p, int64_t *bytes)
{
    tensor t;
    oct_onnx_value v = {0};
    OCT_TRY(open_tensor(&t, path, p, &v));
    *bytes = t.numel * (int64_t)t.element->bytes;
    return OCT_OK;
}

/* The float32 of a number of type DOUBLE, FLOAT, FLOAT16 or BFLOAT16 in the lowest bits. */
static float real_from_bits(uint64_t bits, int32_t type)
{
    const union {
        uint64_t bits;
        double wide;
        float narrow;
    } real = {bits};
    if (type == TYPE(DOUBLE)) return (float)real.wide;
    if (type == TYPE(FLOAT16)) return oct_half_value((uint16_t)bits);
    return type == TYPE(BFLOAT16) ? oct_bf16_value((uint16_t)bits) : real.narrow;
}

/* Sets element i from the bits of the file, widened to 64. */
static oct_status set_element(const tensor *t, oct_onnx_value *v, int64_t i, uint64_t bits)
{
    if (v->dtype == OCT_F32) {
        ((float *)v->data)[i] = real_from_bits(bits, t->element->type);
        return OCT_OK;
    }
    const int64_t value = (int64_t)bits;
    const bool fits = oct_onnx_set_integer(v, i, value) && (t->element->is_signed || value >= 0);
    OCT_CHECK(fits, OCT_DATA,
              "%s: '%s' is of type %s and has an element that this type or Octet's integers of 64 "
              "bits do not hold",
              t->path, t->name.text, t->element->name);
    if (t->element->type == TYPE(BOOL)) ((uint8_t *)v->data)[i] = value != 0;
    return OCT_OK;
}

/* Reads elements of `bytes` each, the lowest byte first, as on every machine that there is a port for; the sign of signed
 * ones is extended to 64 bits. */
static oct_status read_elements(const tensor *t, const void *from, size_t bytes, bool is_signed,
                                oct_onnx_value *v)
{
    const int shift = is_signed ? 64 - 8 * (int)bytes : 0;
    const size_t all = (size_t)t->numel * bytes;
    OCT_TRY(oct_alloc(&v->data, (size_t)t->numel, oct_dtype_bytes(v->dtype)));
    if (t->element->type == TYPE(FLOAT)) {
        if (all > 0) memcpy(v->data, from, all);
        return OCT_OK;
    }
    for (int64_t i = 0; i < t->numel; i++) {
        uint64_t bits = 0;
        memcpy(&bits, (const uint8_t *)from + (size_t)i * bytes, bytes);
        OCT_TRY(set_element(t, v, i, (uint64_t)((int64_t)(bits << shift) >> shift)));
    }
    return OCT_OK;
}

/* Reads elements from the field of their type (float_data, int32_data, ...), where the file has no raw bytes. */
static oct_status read_typed_fields(const tensor *t, oct_onnx_value *v)
{
    const OctOnnx__TensorProto *p = t->proto;
    const struct {
        size_t count, bytes;
        const void *numbers;
    } fields[] =
        {
            [FIELD_FLOAT] = {p->n_float_data, sizeof(float), p->float_data},
            [FIELD_DOUBLE] = {p->n_double_data, sizeof(double), p->double_data},
            [FIELD_S32] = {p->n_int32_data, sizeof(int32_t), p->int32_data},
            [FIELD_S64] = {p->n_int64_data, sizeof(int64_t), p->int64_data},
            [FIELD_U64] = {p->n_uint64_data, sizeof(uint64_t), p->uint64_data},
        },
      *given = &fields[t->element->typed];
    OCT_CHECK(given->count == (size_t)t->numel, OCT_DATA,
              "%s: '%s' has %" PRId64 " elements, but %zu numbers of data; it is damaged", t->path,
              t->name.text, t->numel, given->count);
    return read_elements(t, given->numbers, given->bytes, true, v);
}

oct_status oct_onnx_read_tensor(const char *path, const OctOnnx__TensorProto *p, oct_onnx_value *v)
{
    tensor t;
    OCT_TRY(open_tensor(&t, path, p, v));
    OCT_CHECK(!oct_onnx_is_external(p), OCT_DATA,
              "%s: the data of '%s' are in another file; save the network as one file", path,
              t.name.text);
    if (!p->has_raw_data) return read_typed_fields(&t, v);
    const size_t bytes = t.element->bytes;
    OCT_CHECK(p->raw_data.len == (size_t)t.numel * bytes, OCT_DATA,
              "%s: '%s' has %" PRId64 " elements of type %s, but %zu bytes of data; it is damaged",
              path, t.name.text, t.numel, t.element->name, p->raw_data.len);
    return read_elements(&t, p->raw_data.data, bytes, t.element->is_signed, v);
}
