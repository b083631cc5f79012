/* Tensors, operators and texts lie in an arena until they are written as one FlatBuffer at the end. */
#include "io/export/tflite_writer_impl.h"

#include "core/base/mem.h"
#include "io/export/flat_writer.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { VERSION = 3, NAME_BYTES = 512, DATA_ALIGN = 16 };

static const struct {
    int number, version, options;
} kinds[OCT_TFLITE_KINDS] = {
#define X(name, number, version, options, tflm) {number, version, options},
    OCT_TFLITE_OPERATORS(X)
#undef X
};

oct_status oct_to_tflite_writer_create(oct_to_tflite_writer **w)
{
    OCT_TRY(oct_alloc(w, 1, sizeof **w));
    (*w)->layer = "";
    const oct_status status = oct_arena_create(&(*w)->arena);
    if (status != OCT_OK) oct_free(w);
    return status;
}

void oct_to_tflite_writer_destroy(oct_to_tflite_writer **w)
{
    if (!*w) return;
    list *lists[] = {&(*w)->tensors, &(*w)->operators, &(*w)->properties, &(*w)->inputs,
                     &(*w)->outputs};
    for (size_t i = 0; i < OCT_COUNT(lists); i++)
        oct_free(&lists[i]->item);
    oct_arena_destroy(&(*w)->arena);
    oct_free(w);
}

oct_status oct_to_tflite_status(const oct_to_tflite_writer *w)
{
    return w->status;
}

int oct_to_tflite_fail(oct_to_tflite_writer *w, oct_status code, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    oct_vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const oct_status made = oct_fail_add(code, "%s", text);
    if (w->status == OCT_OK) w->status = made;
    return OCT_TFLITE_NONE;
}

static void *copy_bytes(oct_to_tflite_writer *w, const void *data, size_t bytes)
{
    if (w->status != OCT_OK) return NULL;
    void *block = oct_arena_take(w->arena, bytes > 0 ? bytes : 1);
    if (!block)
        w->status = OCT_RESOURCE;
    else if (bytes > 0)
        memcpy(block, data, bytes);
    return block;
}

static void append(oct_to_tflite_writer *w, list *l, void *item)
{
    if (w->status == OCT_OK)
        w->status = oct_grow(&l->item, &l->capacity, l->count + 1, sizeof *l->item);
    if (w->status == OCT_OK) l->item[l->count++] = item;
}

static tensor *tensor_at(const oct_to_tflite_writer *w, int number)
{
    OCT_ASSERT(number >= 0 && (size_t)number < w->tensors.count);
    return w->tensors.item[number];
}

void oct_to_tflite_layer(oct_to_tflite_writer *w, const char *layer)
{
    w->layer = layer;
}

static void name_it(oct_to_tflite_writer *w, tensor *t, const char *text)
{
    t->name = copy_bytes(w, text, strlen(text) + 1);
}

static int64_t numel_of(const tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->ndim; i++)
        n *= t->dims[i];
    return n;
}

int oct_to_tflite_tensor(oct_to_tflite_writer *w, oct_tflite_type type, int ndim,
                         const int64_t *dims, oct_tflite_quant quant)
{
    char name[NAME_BYTES];
    tensor t = {.type = type, .ndim = ndim, .axis = quant.axis};
    OCT_ASSERT(ndim <= OCT_TFLITE_DIMS);
    if (w->status != OCT_OK) return OCT_TFLITE_NONE;
    if (ndim > 0) memcpy(t.dims, dims, (size_t)ndim * sizeof *dims);
    snprintf(name, sizeof name, "%s/%zu", w->layer, w->tensors.count);
    name_it(w, &t, name);
    if (quant.codes) {
        t.scales = 1;
        t.scale = copy_bytes(w, &quant.codes->scale, sizeof(float));
        t.zero_point = quant.codes->zero_point - OCT_TFLITE_SIGN;
    } else if (quant.scales) {
        t.scales = (size_t)dims[quant.axis];
        t.scale = copy_bytes(w, quant.scales, t.scales * sizeof(float));
    }
    append(w, &w->tensors, copy_bytes(w, &t, sizeof t));
    return w->status == OCT_OK ? (int)w->tensors.count - 1 : OCT_TFLITE_NONE;
}

int oct_to_tflite_constant(oct_to_tflite_writer *w, oct_tflite_type type, int ndim,
                           const int64_t *dims, oct_tflite_quant quant, const void *data)
{
    const int number = oct_to_tflite_tensor(w, type, ndim, dims, quant);
    if (w->status != OCT_OK) return OCT_TFLITE_NONE;
    tensor *t = tensor_at(w, number);
    const bool bytes = type == OCT_TFLITE_S8 || type == OCT_TFLITE_U8;
    t->bytes = (size_t)numel_of(t) * (bytes ? 1 : 4);
    t->data = copy_bytes(w, data, t->bytes);
    return w->status == OCT_OK ? number : OCT_TFLITE_NONE;
}

int oct_to_tflite_list(oct_to_tflite_writer *w, int n, const int32_t *values)
{
    const int64_t dims[] = {n};
    return oct_to_tflite_constant(w, OCT_TFLITE_S32, n > 0 ? 1 : 0, dims,
                                  (oct_tflite_quant){.codes = NULL}, values);
}

int oct_to_tflite_like(oct_to_tflite_writer *w, int number, int ndim, const int64_t *dims)
{
    if (w->status != OCT_OK) return OCT_TFLITE_NONE;
    const tensor *t = tensor_at(w, number);
    const oct_qparams q = {t->scales ? t->scale[0] : 0, (int32_t)t->zero_point + OCT_TFLITE_SIGN, 0,
                           0};
    return oct_to_tflite_tensor(w, t->type, ndim, dims,
                                (oct_tflite_quant){.codes = t->scales ? &q : NULL});
}

int oct_to_tflite_number_like(oct_to_tflite_writer *w, int number, int32_t code)
{
    const float zero = 0;
    const int8_t byte = (int8_t)(code - OCT_TFLITE_SIGN);
    const int made = oct_to_tflite_like(w, number, 1, (int64_t[]){1});
    if (w->status != OCT_OK) return OCT_TFLITE_NONE;
    tensor *t = tensor_at(w, made);
    const bool floats = t->type == OCT_TFLITE_FLOAT;
    t->bytes = floats ? sizeof zero : sizeof byte;
    t->data = copy_bytes(w, floats ? (const void *)&zero : &byte, t->bytes);
    return made;
}

void oct_to_tflite_rename(oct_to_tflite_writer *w, int number, const char *format, ...)
{
    char text[NAME_BYTES];
    va_list args;
    va_start(args, format);
    oct_vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (w->status == OCT_OK) name_it(w, tensor_at(w, number), text);
}

oct_tflite_type oct_to_tflite_type(const oct_to_tflite_writer *w, int number)
{
    return tensor_at(w, number)->type;
}

int oct_to_tflite_ndim(const oct_to_tflite_writer *w, int number)
{
    return tensor_at(w, number)->ndim;
}

const int64_t *oct_to_tflite_dims(const oct_to_tflite_writer *w, int number)
{
    return tensor_at(w, number)->dims;
}

void oct_to_tflite_operator(oct_to_tflite_writer *w, oct_tflite_operator kind, int inputs,
                            const int *input, int outputs, const int *output, int options,
                            const oct_tflite_option *option)
{
    operator made = {
        .kind = kind, .layer = w->layer, .inputs = inputs, .outputs = outputs, .options = options};
    OCT_ASSERT(options <= OPTIONS);
    if (w->status != OCT_OK) return;
    for (int i = 0; i < inputs; i++)
        OCT_ASSERT(input[i] != OCT_TFLITE_NONE);
    made.input = copy_bytes(w, input, (size_t)inputs * sizeof *input);
    made.output = copy_bytes(w, output, (size_t)outputs * sizeof *output);
    if (options > 0) memcpy(made.option, option, (size_t)options * sizeof *option);
    append(w, &w->operators, copy_bytes(w, &made, sizeof made));
}

int oct_to_tflite_made(oct_to_tflite_writer *w, oct_tflite_operator kind, int inputs,
                       const int *input, int output, int options, const oct_tflite_option *option)
{
    oct_to_tflite_operator(w, kind, inputs, input, 1, &output, options, option);
    return output;
}

void oct_to_tflite_declare(oct_to_tflite_writer *w, bool output, int number)
{
    if (w->status == OCT_OK) append(w, output ? &w->outputs : &w->inputs, tensor_at(w, number));
}

void oct_to_tflite_property(oct_to_tflite_writer *w, const char *key, const char *value)
{
    const property p = {copy_bytes(w, key, strlen(key) + 1),
                        copy_bytes(w, value, strlen(value) + 1)};
    append(w, &w->properties, copy_bytes(w, &p, sizeof p));
}

/* What follows writes the FlatBuffer; numbers of fields are those of TFLite's schema. */

#define FIELD(of, size, to)                                                                        \
    {                                                                                              \
        .number = (of), .width = (size), .value = (int64_t)(to)                                    \
    }
#define REFERENCE(of)                                                                              \
    {                                                                                              \
        .number = (of)                                                                             \
    }
#define TABLE(f, place, fields) oct_flat_table((f), (place), (int)OCT_COUNT(fields), (fields))

/* Number of the buffer of a constant: buffer 0 is empty, and each constant has one of its own. */
static int64_t buffer_of(const oct_to_tflite_writer *w, size_t number)
{
    int64_t buffer = 0;
    for (size_t i = 0; i <= number; i++)
        buffer += ((const tensor *)w->tensors.item[i])->data != NULL;
    return ((const tensor *)w->tensors.item[number])->data ? buffer : 0;
}

static void write_quantization(oct_flat_writer *f, size_t place, const tensor *t)
{
    oct_flat_field fields[] = {REFERENCE(2), REFERENCE(3), FIELD(6, 4, t->axis)};
    TABLE(f, place, fields);
    oct_flat_vector(f, fields[0].place, t->scales, 4, 4, t->scale);
    int64_t *zeros = NULL;
    if (f->status == OCT_OK) f->status = oct_alloc(&zeros, t->scales, sizeof *zeros);
    for (size_t i = 0; zeros && i < t->scales; i++)
        zeros[i] = t->zero_point;
    oct_flat_vector(f, fields[1].place, t->scales, 8, 8, zeros);
    oct_free(&zeros);
}

static void write_tensor(oct_flat_writer *f, size_t place, const tensor *t, int64_t buffer)
{
    int32_t dims[OCT_TFLITE_DIMS];
    oct_flat_field fields[] = {FIELD(1, 1, t->type), FIELD(2, 4, buffer), REFERENCE(0),
                               REFERENCE(3), REFERENCE(4)};
    for (int i = 0; i < t->ndim; i++)
        dims[i] = (int32_t)t->dims[i];
    oct_flat_table(f, place, t->scales ? 5 : 4, fields);
    oct_flat_vector(f, fields[2].place, (size_t)t->ndim, 4, 4, dims);
    oct_flat_text(f, fields[3].place, t->name);
    if (t->scales) write_quantization(f, fields[4].place, t);
}

static void write_operator(oct_flat_writer *f, size_t place, const operator* o, int64_t code)
{
    oct_flat_field options[OPTIONS];
    oct_flat_field fields[] = {FIELD(0, 4, code), REFERENCE(1), REFERENCE(2),
                               FIELD(3, 1, kinds[o->kind].options), REFERENCE(4)};
    for (int i = 0; i < o->options; i++)
        options[i] =
            (oct_flat_field)FIELD(o->option[i].field, o->option[i].width, o->option[i].value);
    TABLE(f, place, fields);
    oct_flat_vector(f, fields[1].place, (size_t)o->inputs, 4, 4, o->input);
    oct_flat_vector(f, fields[2].place, (size_t)o->outputs, 4, 4, o->output);
    oct_flat_table(f, fields[4].place, o->options, options);
}

/* Numbers of the tensors of a list. */
static void write_numbers(oct_flat_writer *f, size_t place, const oct_to_tflite_writer *w,
                          const list *l)
{
    int32_t *numbers = NULL;
    if (f->status == OCT_OK) f->status = oct_alloc(&numbers, l->count, sizeof *numbers);
    if (f->status != OCT_OK) return;
    for (size_t i = 0; i < l->count; i++)
        while (w->tensors.item[numbers[i]] != l->item[i])
            numbers[i]++;
    oct_flat_vector(f, place, l->count, 4, 4, numbers);
    oct_free(&numbers);
}

/* code: of each kind its place among the kinds that occur. */
static void write_graph(oct_flat_writer *f, size_t place, const oct_to_tflite_writer *w,
                        const int64_t *code)
{
    oct_flat_field fields[] = {REFERENCE(0), REFERENCE(1), REFERENCE(2), REFERENCE(3),
                               REFERENCE(4)};
    TABLE(f, place, fields);
    write_numbers(f, fields[1].place, w, &w->inputs);
    write_numbers(f, fields[2].place, w, &w->outputs);
    oct_flat_text(f, fields[4].place, "main");
    const size_t tensors = oct_flat_references(f, fields[0].place, w->tensors.count);
    for (size_t i = 0; i < w->tensors.count; i++)
        write_tensor(f, tensors + 4 * i, w->tensors.item[i], buffer_of(w, i));
    const size_t operators = oct_flat_references(f, fields[3].place, w->operators.count);
    for (size_t i = 0; i < w->operators.count; i++) {
        const operator* o = w->operators.item[i];
        write_operator(f, operators + 4 * i, o, code[o->kind]);
    }
}

static void write_codes(oct_flat_writer *f, size_t place, const oct_to_tflite_writer *w,
                        int64_t *code)
{
    size_t count = 0;
    for (int k = 0; k < OCT_TFLITE_KINDS; k++)
        code[k] = -1;
    for (size_t i = 0; i < w->operators.count; i++) {
        const operator* o = w->operators.item[i];
        if (code[o->kind] < 0) code[o->kind] = (int64_t)count++;
    }
    const size_t codes = oct_flat_references(f, place, count);
    for (int k = 0; k < OCT_TFLITE_KINDS; k++) {
        oct_flat_field fields[] = {FIELD(0, 1, kinds[k].number), FIELD(2, 4, kinds[k].version),
                                   FIELD(3, 4, kinds[k].number)};
        if (code[k] >= 0) TABLE(f, codes + 4 * (size_t)code[k], fields);
    }
}

static void write_buffer(oct_flat_writer *f, size_t place, const void *data, size_t bytes)
{
    oct_flat_field fields[] = {REFERENCE(0)};
    oct_flat_table(f, place, data ? 1 : 0, fields);
    if (data) oct_flat_vector(f, fields[0].place, bytes, 1, DATA_ALIGN, data);
}

/* The empty one, constants, texts. */
static void write_buffers(oct_flat_writer *f, size_t place, const oct_to_tflite_writer *w,
                          size_t constants)
{
    const size_t buffers = oct_flat_references(f, place, 1 + constants + w->properties.count);
    size_t next = buffers;
    write_buffer(f, next, NULL, 0);
    for (size_t i = 0; i < w->tensors.count; i++) {
        const tensor *t = w->tensors.item[i];
        if (t->data) write_buffer(f, next += 4, t->data, t->bytes);
    }
    for (size_t i = 0; i < w->properties.count; i++) {
        const property *p = w->properties.item[i];
        write_buffer(f, next += 4, p->value, strlen(p->value));
    }
}

static void write_properties(oct_flat_writer *f, size_t place, const oct_to_tflite_writer *w,
                             size_t constants)
{
    const size_t texts = oct_flat_references(f, place, w->properties.count);
    for (size_t i = 0; i < w->properties.count; i++) {
        oct_flat_field fields[] = {REFERENCE(0), FIELD(1, 4, 1 + constants + i)};
        TABLE(f, texts + 4 * i, fields);
        oct_flat_text(f, fields[0].place, ((const property *)w->properties.item[i])->key);
    }
}

/* A list of names and tensors. */
static void write_names(oct_flat_writer *f, size_t place, const oct_to_tflite_writer *w,
                        const list *l)
{
    const size_t names = oct_flat_references(f, place, l->count);
    for (size_t i = 0; i < l->count; i++) {
        int64_t number = 0;
        while (w->tensors.item[number] != l->item[i])
            number++;
        oct_flat_field fields[] = {REFERENCE(0), FIELD(1, 4, number)};
        TABLE(f, names + 4 * i, fields);
        oct_flat_text(f, fields[0].place, ((const tensor *)l->item[i])->name);
    }
}

/* Inputs and outputs by name, as TFLite's interpreters offer them. */
static void write_signature(oct_flat_writer *f, size_t place, const oct_to_tflite_writer *w)
{
    oct_flat_field fields[] = {REFERENCE(0), REFERENCE(1), REFERENCE(2), FIELD(4, 4, 0)};
    const size_t one = oct_flat_references(f, place, 1);
    TABLE(f, one, fields);
    write_names(f, fields[0].place, w, &w->inputs);
    write_names(f, fields[1].place, w, &w->outputs);
    oct_flat_text(f, fields[2].place, "serving_default");
}

oct_status oct_to_tflite_end(oct_to_tflite_writer *w, const char *description, void **bytes,
                             size_t *size)
{
    int64_t code[OCT_TFLITE_KINDS];
    size_t constants = 0;
    oct_flat_writer f;
    oct_flat_field fields[] = {FIELD(0, 4, VERSION), REFERENCE(1), REFERENCE(2), REFERENCE(3),
                               REFERENCE(4),         REFERENCE(6), REFERENCE(7)};
    OCT_TRY(w->status);
    for (size_t i = 0; i < w->tensors.count; i++)
        constants += ((const tensor *)w->tensors.item[i])->data != NULL;
    oct_flat_begin(&f, "TFL3");
    TABLE(&f, OCT_FLAT_ROOT, fields);
    oct_flat_text(&f, fields[3].place, description);
    write_codes(&f, fields[1].place, w, code);
    write_graph(&f, oct_flat_references(&f, fields[2].place, 1), w, code);
    write_properties(&f, fields[5].place, w, constants);
    write_signature(&f, fields[6].place, w);
    write_buffers(&f, fields[4].place, w, constants);
    const oct_status status = f.status;
    if (status == OCT_OK) {
        *bytes = f.bytes;
        *size = f.size;
    } else {
        oct_flat_free(&f);
    }
    return status;
}
