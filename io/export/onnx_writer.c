/* The messages of ONNX's own definition (protobuf-c's structs) lie in an arena until they are packed at the end. */
#include "io/export/onnx_form.h"

#include "core/base/arena.h"
#include "core/base/mem.h"

#include <onnx.pb-c.h>
#include <string.h>

enum { ATTRIBUTES = 8, IR_OF_OPSET_13 = 7, IR_OF_OPSET_21 = 10 };

static const size_t most_bytes = INT32_MAX; /* of a message: protocol buffers count in 31 bits */

/* A growing list of pointers to messages. */
typedef struct list {
    void **item;
    size_t count, capacity;
} list;

struct oct_to_onnx_writer {
    oct_status status;
    oct_arena *arena;
    int64_t opset, count; /* of names given */
    const char *layer;
    const char *kept[2]; /* names of ports */
    list nodes, constants, inputs, outputs, properties;
};

oct_status oct_to_onnx_writer_create(oct_to_onnx_writer **w, int64_t opset)
{
    OCT_TRY(oct_alloc(w, 1, sizeof **w));
    (*w)->opset = opset;
    (*w)->layer = "";
    const oct_status status = oct_arena_create(&(*w)->arena);
    if (status != OCT_OK) oct_free(w);
    return status;
}

void oct_to_onnx_writer_destroy(oct_to_onnx_writer **w)
{
    if (!*w) return;
    list *lists[] = {&(*w)->nodes, &(*w)->constants, &(*w)->inputs, &(*w)->outputs,
                     &(*w)->properties};
    for (size_t i = 0; i < OCT_COUNT(lists); i++)
        oct_free(&lists[i]->item);
    oct_arena_destroy(&(*w)->arena);
    oct_free(w);
}

oct_status oct_to_onnx_status(const oct_to_onnx_writer *w)
{
    return w->status;
}

void *oct_to_onnx_fail(oct_to_onnx_writer *w, oct_status code, const char *format, ...)
{
    char text[1024];
    OCT_PRINT_ARGS(text, format);
    oct_status made = oct_fail_add(code, "%s", text);
    if (w->status == OCT_OK) w->status = made;
    return NULL;
}

void *oct_to_onnx_alloc(oct_to_onnx_writer *w, size_t bytes)
{
    if (w->status != OCT_OK) return NULL;
    void *block = oct_arena_take(w->arena, bytes > 0 ? bytes : 1);
    if (!block)
        w->status = OCT_RESOURCE;
    else
        memset(block, 0, bytes);
    return block;
}

static void *copy_bytes(oct_to_onnx_writer *w, const void *data, size_t bytes)
{
    void *block = oct_to_onnx_alloc(w, bytes);
    if (block && bytes > 0) memcpy(block, data, bytes);
    return block;
}

static char *copy_text(oct_to_onnx_writer *w, const char *text)
{
    return copy_bytes(w, text, strlen(text) + 1);
}

static void append(oct_to_onnx_writer *w, list *l, void *item)
{
    if (w->status == OCT_OK)
        w->status = oct_grow(&l->item, &l->capacity, l->count + 1, sizeof *l->item);
    if (w->status == OCT_OK) l->item[l->count++] = item;
}

/* Takes a message that has its initial value. */
#define TAKE(w, type, INIT) copy_bytes((w), &(const type)INIT, sizeof(type))

void oct_to_onnx_layer_begin(oct_to_onnx_writer *w, const char *layer)
{
    w->layer = layer;
}

const char *oct_to_onnx_name(oct_to_onnx_writer *w, const char *format, ...)
{
    char text[512];
    OCT_PRINT_ARGS(text, format);
    for (int i = 0; i < 4; i++) /* twice each, since one may be the other with "_" */
        if (w->kept[i % 2] && strcmp(text, w->kept[i % 2]) == 0)
            strncat(text, "_", sizeof text - strlen(text) - 1);
    return copy_text(w, text);
}

const char *oct_to_onnx_keep_name(oct_to_onnx_writer *w, const char *name)
{
    return w->kept[w->kept[0] != NULL] = copy_text(w, name);
}

const char *oct_to_onnx_node_add(oct_to_onnx_writer *w, const char *type, int n,
                                 const char *const *input)
{
    for (int i = 0; i < n; i++)
        if (!input[i]) return NULL;
    OctOnnx__NodeProto *node = TAKE(w, OctOnnx__NodeProto, OCT_ONNX__NODE_PROTO__INIT);
    char **inputs = oct_to_onnx_alloc(w, (size_t)n * sizeof *inputs),
         **outputs = oct_to_onnx_alloc(w, sizeof *outputs);
    OctOnnx__AttributeProto **attributes = oct_to_onnx_alloc(w, ATTRIBUTES * sizeof *attributes);
    const char *name = oct_to_onnx_name(w, "%s/%s_%lld", w->layer, type, (long long)w->count++);
    if (w->status != OCT_OK) return NULL;
    for (int i = 0; i < n; i++)
        inputs[i] = copy_text(w, input[i]);
    outputs[0] = copy_text(w, name);
    node->n_input = (size_t)n;
    node->input = inputs;
    node->n_output = 1;
    node->output = outputs;
    node->name = outputs[0];
    node->op_type = copy_text(w, type);
    node->attribute = attributes;
    append(w, &w->nodes, node);
    return w->status == OCT_OK ? outputs[0] : NULL;
}

static OctOnnx__NodeProto *last_node(const oct_to_onnx_writer *w)
{
    return w->nodes.item[w->nodes.count - 1];
}

static OctOnnx__AttributeProto *add_attribute(oct_to_onnx_writer *w, const char *name,
                                              OctOnnx__AttributeProto__AttributeType type)
{
    if (w->status != OCT_OK) return NULL;
    OctOnnx__NodeProto *node = last_node(w);
    OCT_ASSERT(node->n_attribute < ATTRIBUTES);
    OctOnnx__AttributeProto *a = TAKE(w, OctOnnx__AttributeProto, OCT_ONNX__ATTRIBUTE_PROTO__INIT);
    char *own = copy_text(w, name);
    if (w->status != OCT_OK) return NULL;
    a->name = own;
    a->has_type = true;
    a->type = type;
    node->attribute[node->n_attribute++] = a;
    return a;
}

void oct_to_onnx_int_set(oct_to_onnx_writer *w, const char *name, int64_t value)
{
    OctOnnx__AttributeProto *a =
        add_attribute(w, name, OCT_ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);
    if (!a) return;
    a->has_i = true;
    a->i = value;
}

void oct_to_onnx_ints_set(oct_to_onnx_writer *w, const char *name, int n, const int64_t *values)
{
    int64_t *own = copy_bytes(w, values, (size_t)n * sizeof *values);
    OctOnnx__AttributeProto *a =
        add_attribute(w, name, OCT_ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);
    if (!a) return;
    a->n_ints = (size_t)n;
    a->ints = own;
}

static int32_t element_type(oct_dtype dtype)
{
    static const int32_t types[] = {
        [OCT_F32] = OCT_ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT,
        [OCT_U8] = OCT_ONNX__TENSOR_PROTO__DATA_TYPE__UINT8,
        [OCT_U16] = OCT_ONNX__TENSOR_PROTO__DATA_TYPE__UINT16,
        [OCT_S8] = OCT_ONNX__TENSOR_PROTO__DATA_TYPE__INT8,
        [OCT_S16] = OCT_ONNX__TENSOR_PROTO__DATA_TYPE__INT16,
        [OCT_S32] = OCT_ONNX__TENSOR_PROTO__DATA_TYPE__INT32,
        [OCT_F64] = OCT_ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE,
        [OCT_S64] = OCT_ONNX__TENSOR_PROTO__DATA_TYPE__INT64,
    };
    return types[dtype];
}

const char *oct_to_onnx_cast(oct_to_onnx_writer *w, const char *x, oct_dtype dtype)
{
    const char *y = OCT_TO_ONNX(w, "Cast", x);
    oct_to_onnx_int_set(w, "to", element_type(dtype));
    return y;
}

const char *oct_to_onnx_transpose(oct_to_onnx_writer *w, const char *x, int n, const int64_t *perm)
{
    const char *y = OCT_TO_ONNX(w, "Transpose", x);
    oct_to_onnx_ints_set(w, "perm", n, perm);
    return y;
}

const char *oct_to_onnx_mean(oct_to_onnx_writer *w, const char *x, int n, const int64_t *axes)
{
    if (w->opset >= 18) return OCT_TO_ONNX(w, "ReduceMean", x, oct_to_onnx_list(w, n, axes));
    const char *y = OCT_TO_ONNX(w, "ReduceMean", x);
    oct_to_onnx_ints_set(w, "axes", n, axes);
    return y;
}

void oct_to_onnx_windows_set(oct_to_onnx_writer *w, const oct_conv_shape *s)
{
    OCT_TO_ONNX_INTS(w, "kernel_shape", s->kernel_h, s->kernel_w);
    OCT_TO_ONNX_INTS(w, "strides", s->stride_h, s->stride_w);
    OCT_TO_ONNX_INTS(w, "pads", s->pad_top, s->pad_left, s->pad_bottom, s->pad_right);
}

void oct_to_onnx_conv_set(oct_to_onnx_writer *w, const oct_conv_shape *s)
{
    oct_to_onnx_windows_set(w, s);
    OCT_TO_ONNX_INTS(w, "dilations", s->dilation_h, s->dilation_w);
    oct_to_onnx_int_set(w, "group", s->groups);
}

void oct_to_onnx_float_set(oct_to_onnx_writer *w, const char *name, float value)
{
    OctOnnx__AttributeProto *a =
        add_attribute(w, name, OCT_ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT);
    if (!a) return;
    a->has_f = true;
    a->f = value;
}

void oct_to_onnx_text_set(oct_to_onnx_writer *w, const char *name, const char *value)
{
    char *own = copy_text(w, value);
    OctOnnx__AttributeProto *a =
        add_attribute(w, name, OCT_ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);
    if (!a) return;
    a->has_s = true;
    a->s = (ProtobufCBinaryData){.len = strlen(own), .data = (uint8_t *)own};
}

const char *oct_to_onnx_output_named(oct_to_onnx_writer *w, const char *output, const char *name)
{
    if (!output || w->nodes.count == 0 || last_node(w)->output[0] != output) return NULL;
    char *own = name ? copy_text(w, name) : NULL;
    if (!own || w->status != OCT_OK) return NULL;
    last_node(w)->output[0] = own;
    return own;
}

static size_t bytes_of(oct_dtype dtype, int ndim, const int64_t *dims)
{
    size_t bytes = oct_dtype_bytes(dtype);
    for (int i = 0; i < ndim; i++)
        bytes *= (size_t)dims[i];
    return bytes;
}

const char *oct_to_onnx_kept_constant(oct_to_onnx_writer *w, const char *name, oct_dtype dtype,
                                      int ndim, const int64_t *dims, const void *data)
{
    OctOnnx__TensorProto *t = TAKE(w, OctOnnx__TensorProto, OCT_ONNX__TENSOR_PROTO__INIT);
    const char *own =
        name ? copy_text(w, name)
             : oct_to_onnx_name(w, "%s/constant_%lld", w->layer, (long long)w->count++);
    int64_t *own_dims = copy_bytes(w, dims, (size_t)ndim * sizeof *dims);
    if (w->status != OCT_OK) return NULL;
    t->n_dims = (size_t)ndim;
    t->dims = own_dims;
    t->has_data_type = true;
    t->data_type = element_type(dtype);
    t->name = copy_text(w, own);
    t->has_raw_data = true;
    t->raw_data.len = bytes_of(dtype, ndim, dims);
    memcpy(&t->raw_data.data, &data, sizeof data); /* it is only read */
    append(w, &w->constants, t);
    return w->status == OCT_OK ? own : NULL;
}

const char *oct_to_onnx_constant(oct_to_onnx_writer *w, const char *name, oct_dtype dtype, int ndim,
                                 const int64_t *dims, const void *data)
{
    return oct_to_onnx_kept_constant(w, name, dtype, ndim, dims,
                                     copy_bytes(w, data, bytes_of(dtype, ndim, dims)));
}

const char *oct_to_onnx_scalar(oct_to_onnx_writer *w, float value)
{
    return oct_to_onnx_constant(w, NULL, OCT_F32, 0, NULL, &value);
}

const char *oct_to_onnx_list(oct_to_onnx_writer *w, int n, const int64_t *values)
{
    return oct_to_onnx_constant(w, NULL, OCT_S64, 1, &(int64_t){n}, values);
}

/* A dimension of a shape; size below 0: the batch. */
static OctOnnx__TensorShapeProto__Dimension *make_dimension(oct_to_onnx_writer *w, int64_t size)
{
    OctOnnx__TensorShapeProto__Dimension *d = TAKE(w, OctOnnx__TensorShapeProto__Dimension,
                                                   OCT_ONNX__TENSOR_SHAPE_PROTO__DIMENSION__INIT);
    if (!d) return NULL;
    if (size < 0) {
        d->value_case = OCT_ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
        d->dim_param = copy_text(w, "batch");
    } else {
        d->value_case = OCT_ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        d->dim_value = size;
    }
    return d;
}

void oct_to_onnx_declare(oct_to_onnx_writer *w, bool output, const char *name, oct_dtype dtype,
                         const oct_shape *shape)
{
    OctOnnx__ValueInfoProto *value =
        TAKE(w, OctOnnx__ValueInfoProto, OCT_ONNX__VALUE_INFO_PROTO__INIT);
    OctOnnx__TypeProto *type = TAKE(w, OctOnnx__TypeProto, OCT_ONNX__TYPE_PROTO__INIT);
    OctOnnx__TypeProto__Tensor *tensor =
        TAKE(w, OctOnnx__TypeProto__Tensor, OCT_ONNX__TYPE_PROTO__TENSOR__INIT);
    OctOnnx__TensorShapeProto *dims =
        TAKE(w, OctOnnx__TensorShapeProto, OCT_ONNX__TENSOR_SHAPE_PROTO__INIT);
    OctOnnx__TensorShapeProto__Dimension **dim = oct_to_onnx_alloc(w, OCT_MAX_DIMS * sizeof *dim);
    char *own = name ? copy_text(w, name) : NULL;
    if (!own || w->status != OCT_OK) return;
    for (int i = 0; i < shape->ndim; i++)
        dim[i] = make_dimension(w, i == 0 ? -1 : shape->dim[i]);
    dims->n_dim = (size_t)shape->ndim;
    dims->dim = dim;
    tensor->has_elem_type = true;
    tensor->elem_type = element_type(dtype);
    tensor->shape = dims;
    type->value_case = OCT_ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    type->tensor_type = tensor;
    value->name = own;
    value->type = type;
    append(w, output ? &w->outputs : &w->inputs, value);
}

void oct_to_onnx_property(oct_to_onnx_writer *w, const char *key, const char *value)
{
    OctOnnx__StringStringEntryProto *entry =
        TAKE(w, OctOnnx__StringStringEntryProto, OCT_ONNX__STRING_STRING_ENTRY_PROTO__INIT);
    char *own_key = copy_text(w, key), *own_value = copy_text(w, value);
    if (w->status != OCT_OK) return;
    entry->key = own_key;
    entry->value = own_value;
    append(w, &w->properties, entry);
}

oct_status oct_to_onnx_writer_end(oct_to_onnx_writer *w, const char *version, void **bytes,
                                  size_t *size)
{
    OctOnnx__OperatorSetIdProto opset = OCT_ONNX__OPERATOR_SET_ID_PROTO__INIT, *opsets[] = {&opset};
    OctOnnx__GraphProto graph = OCT_ONNX__GRAPH_PROTO__INIT;
    OctOnnx__ModelProto model = OCT_ONNX__MODEL_PROTO__INIT;
    char *words[] = {copy_text(w, ""), copy_text(w, "octet"), copy_text(w, version)};
    OCT_TRY(w->status);
    opset.domain = words[0];
    opset.has_version = true;
    opset.version = w->opset;
    graph.name = words[1];
    graph.n_node = w->nodes.count;
    graph.node = (OctOnnx__NodeProto **)w->nodes.item;
    graph.n_initializer = w->constants.count;
    graph.initializer = (OctOnnx__TensorProto **)w->constants.item;
    graph.n_input = w->inputs.count;
    graph.input = (OctOnnx__ValueInfoProto **)w->inputs.item;
    graph.n_output = w->outputs.count;
    graph.output = (OctOnnx__ValueInfoProto **)w->outputs.item;
    model.has_ir_version = true;
    model.ir_version = w->opset > 13 ? IR_OF_OPSET_21 : IR_OF_OPSET_13;
    model.n_opset_import = OCT_COUNT(opsets);
    model.opset_import = opsets;
    model.producer_name = words[1];
    model.producer_version = words[2];
    model.graph = &graph;
    model.n_metadata_props = w->properties.count;
    model.metadata_props = (OctOnnx__StringStringEntryProto **)w->properties.item;
    *size = oct_onnx__model_proto__get_packed_size(&model);
    OCT_CHECK(*size <= most_bytes, OCT_PREPARE,
              "an ONNX file holds at most %s, but this one would have %s",
              oct_text_size(most_bytes).text, oct_text_size((int64_t)*size).text);
    OCT_TRY(oct_alloc(bytes, *size, 1));
    oct_onnx__model_proto__pack(&model, *bytes);
    return OCT_OK;
}
