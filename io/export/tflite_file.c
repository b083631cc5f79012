/* A TFLite model is written as one FlatBuffer here; numbers of fields are those of TFLite's schema. */
#include "io/export/tflite_form.h"

#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "io/export/flat_writer.h"

#include <stdio.h>
#include <string.h>

enum { VERSION = 3, DATA_ALIGN = 16 };

static const struct {
    const char *name;
    int number, version, options;
    const char *tflm_types;
} kinds[OCT_TFLITE_KINDS] = {
#define X(name, number, version, options, tflm) {#name, number, version, options, tflm},
    OCT_TFLITE_OPERATORS(X)
#undef X
};

#define FIELD(of, size, to)                                                                        \
    {                                                                                              \
        .number = (of), .width = (size), .value = (int64_t)(to)                                    \
    }
#define REFERENCE(of)                                                                              \
    {                                                                                              \
        .number = (of)                                                                             \
    }
#define TABLE(f, place, fields) oct_flat_table((f), (place), (int)OCT_COUNT(fields), (fields))

/* Writes QuantizationParameters of the schema: scales, zero points and the dimension that they are along. */
static void write_quantization(oct_flat_writer *f, size_t place, const oct_tflite_tensor *t)
{
    oct_flat_field fields[] = {REFERENCE(2), REFERENCE(3), FIELD(6, 4, t->axis)};
    TABLE(f, place, fields);
    oct_flat_vector(f, fields[0].place, t->scales, 4, 4, t->scale);
    OCT_OWNED(oct_free) int64_t *zeros = NULL;
    if (f->status == OCT_OK) f->status = oct_alloc(&zeros, t->scales, sizeof *zeros);
    for (size_t i = 0; zeros && i < t->scales; i++)
        zeros[i] = t->zero_point;
    oct_flat_vector(f, fields[1].place, t->scales, 8, 8, zeros);
}

/* Writes a Tensor of the schema: type, buffer, shape, name and quantization. */
static void write_tensor(oct_flat_writer *f, size_t place, const oct_tflite_tensor *t)
{
    int32_t dims[OCT_TFLITE_DIMS];
    oct_flat_field fields[] = {FIELD(1, 1, t->type), FIELD(2, 4, t->buffer), REFERENCE(0),
                               REFERENCE(3), REFERENCE(4)};
    for (int i = 0; i < t->ndim; i++)
        dims[i] = (int32_t)t->dims[i];
    oct_flat_table(f, place, t->scales ? 5 : 4, fields);
    oct_flat_vector(f, fields[2].place, (size_t)t->ndim, 4, 4, dims);
    oct_flat_text(f, fields[3].place, t->name);
    if (t->scales) write_quantization(f, fields[4].place, t);
}

/* Writes an Operator of the schema; code: the index of its kind among the kinds that occur. */
static void write_call(oct_flat_writer *f, size_t place, const oct_tflite_call *call, int64_t code)
{
    oct_flat_field options[OCT_TFLITE_OPTIONS_MAX];
    oct_flat_field fields[] = {FIELD(0, 4, code), REFERENCE(1), REFERENCE(2),
                               FIELD(3, 1, kinds[call->kind].options), REFERENCE(4)};
    for (int i = 0; i < call->options; i++)
        options[i] = (oct_flat_field)FIELD(call->option[i].field, call->option[i].width,
                                           call->option[i].value);
    TABLE(f, place, fields);
    oct_flat_vector(f, fields[1].place, (size_t)call->inputs, 4, 4, call->input);
    oct_flat_vector(f, fields[2].place, (size_t)call->outputs, 4, 4, call->output);
    oct_flat_table(f, fields[4].place, call->options, options);
}

/* Writes the numbers of the tensors of a list. */
static void write_numbers(oct_flat_writer *f, size_t place, const oct_tflite_list *list)
{
    OCT_OWNED(oct_free) int32_t *numbers = NULL;
    if (f->status == OCT_OK) f->status = oct_alloc(&numbers, list->count, sizeof *numbers);
    if (f->status != OCT_OK) return;
    for (size_t i = 0; i < list->count; i++)
        numbers[i] = ((const oct_tflite_tensor *)list->item[i])->number;
    oct_flat_vector(f, place, list->count, 4, 4, numbers);
}

/* Writes the graph, "subgraph" in the schema. code: of each kind its index among those that occur. */
static void write_graph(oct_flat_writer *f, size_t place, const oct_to_tflite_writer *w,
                        const int64_t *code)
{
    oct_flat_field fields[] = {REFERENCE(0), REFERENCE(1), REFERENCE(2), REFERENCE(3),
                               REFERENCE(4)};
    TABLE(f, place, fields);
    write_numbers(f, fields[1].place, &w->inputs);
    write_numbers(f, fields[2].place, &w->outputs);
    oct_flat_text(f, fields[4].place, "main");
    const size_t tensors = oct_flat_references(f, fields[0].place, w->tensors.count);
    for (size_t i = 0; i < w->tensors.count; i++)
        write_tensor(f, tensors + 4 * i, w->tensors.item[i]);
    const size_t calls = oct_flat_references(f, fields[3].place, w->calls.count);
    for (size_t i = 0; i < w->calls.count; i++) {
        const oct_tflite_call *call = w->calls.item[i];
        write_call(f, calls + 4 * i, call, code[call->kind]);
    }
}

/* Writes the kinds of operators that occur, and gives the index of each among them; -1: none. */
static void write_codes(oct_flat_writer *f, size_t place, const oct_to_tflite_writer *w,
                        int64_t *code)
{
    size_t count = 0;
    for (int k = 0; k < OCT_TFLITE_KINDS; k++)
        code[k] = -1;
    for (size_t i = 0; i < w->calls.count; i++) {
        const oct_tflite_call *call = w->calls.item[i];
        if (code[call->kind] < 0) code[call->kind] = (int64_t)count++;
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

/* Writes the empty buffer, those of constants, and those of the metadata's texts. */
static void write_buffers(oct_flat_writer *f, size_t place, const oct_to_tflite_writer *w,
                          size_t constants)
{
    const size_t buffers = oct_flat_references(f, place, 1 + constants + w->properties.count);
    size_t next = buffers;
    write_buffer(f, next, NULL, 0);
    for (size_t i = 0; i < w->tensors.count; i++) {
        const oct_tflite_tensor *t = w->tensors.item[i];
        if (t->data) write_buffer(f, next += 4, t->data, t->bytes);
    }
    for (size_t i = 0; i < w->properties.count; i++) {
        const oct_tflite_property *p = w->properties.item[i];
        write_buffer(f, next += 4, p->value, strlen(p->value));
    }
}

/* Writes the names of the metadata, each with the number of the buffer of its text, which come after the constants. */
static void write_properties(oct_flat_writer *f, size_t place, const oct_to_tflite_writer *w,
                             size_t constants)
{
    const size_t texts = oct_flat_references(f, place, w->properties.count);
    for (size_t i = 0; i < w->properties.count; i++) {
        oct_flat_field fields[] = {REFERENCE(0), FIELD(1, 4, 1 + constants + i)};
        TABLE(f, texts + 4 * i, fields);
        oct_flat_text(f, fields[0].place,
                      ((const oct_tflite_property *)w->properties.item[i])->key);
    }
}

/* Writes the names and numbers of the tensors of a list. */
static void write_names(oct_flat_writer *f, size_t place, const oct_tflite_list *list)
{
    const size_t names = oct_flat_references(f, place, list->count);
    for (size_t i = 0; i < list->count; i++) {
        const oct_tflite_tensor *t = list->item[i];
        oct_flat_field fields[] = {REFERENCE(0), FIELD(1, 4, t->number)};
        TABLE(f, names + 4 * i, fields);
        oct_flat_text(f, fields[0].place, t->name);
    }
}

/* Writes inputs and outputs by name, as TFLite's interpreters offer them. */
static void write_signature(oct_flat_writer *f, size_t place, const oct_to_tflite_writer *w)
{
    oct_flat_field fields[] = {REFERENCE(0), REFERENCE(1), REFERENCE(2), FIELD(4, 4, 0)};
    const size_t one = oct_flat_references(f, place, 1);
    TABLE(f, one, fields);
    write_names(f, fields[0].place, &w->inputs);
    write_names(f, fields[1].place, &w->outputs);
    oct_flat_text(f, fields[2].place, "serving_default");
}

/* TensorFlow Lite for Microcontrollers (TFLM) of August 2026, 90b983c: what a TFLite file asks of it. */

/* The letter of each type in OCT_TFLITE_OPERATORS. */
static const char letters[] = {
    [OCT_TFLITE_FLOAT] = 'f', [OCT_TFLITE_S32] = 'i', [OCT_TFLITE_U8] = 'u', [OCT_TFLITE_S8] = 'b'};

/* Whether TFLM's kernel takes the types of an operator's tensors. Inputs that are whole numbers may be indices; every kernel
 * takes such ones. */
static bool tflm_takes(const oct_to_tflite_writer *w, const oct_tflite_call *call)
{
    const char *types = kinds[call->kind].tflm_types;
    bool all = call->kind != OCT_TFLITE_CONCATENATION || call->inputs <= OCT_TFLM_CONCATENATED;
    for (int i = 0; i < call->inputs; i++) {
        const oct_tflite_type type = oct_to_tflite_at(w, call->input[i])->type;
        all = all && (type == OCT_TFLITE_S32 || strchr(types, letters[type]));
    }
    for (int i = 0; i < call->outputs; i++)
        all = all && strchr(types, letters[oct_to_tflite_at(w, call->output[i])->type]);
    return all;
}

/* Fails the writer for each operator that TFLM's kernels do not take, by its layer's name. */
static void check_for_tflm(oct_to_tflite_writer *w)
{
    const size_t count = w->status == OCT_OK ? w->calls.count : 0;
    for (size_t i = 0; i < count; i++) {
        const oct_tflite_call *call = w->calls.item[i];
        if (!tflm_takes(w, call))
            w->status =
                oct_fail_add(OCT_PREPARE,
                             "%s: is written with %s of a type that TFLM's kernel does not take; "
                             "--format c has a form for it",
                             call->layer, kinds[call->kind].name);
    }
}

static void extend_interval(oct_interval *x, int64_t at)
{
    if (x->first < 0) x->first = at;
    x->last = at;
}

/* Finds when each tensor is in use, counted in operators; -1: never, or it is a constant. */
static void find_uses(const oct_to_tflite_writer *w, oct_interval *uses)
{
    for (size_t i = 0; i < w->tensors.count; i++) {
        const oct_tflite_tensor *t = w->tensors.item[i];
        uses[i] = (oct_interval){.first = -1, .bytes = oct_round_up((int64_t)t->bytes, 16)};
    }
    for (size_t i = 0; i < w->inputs.count; i++)
        extend_interval(&uses[((const oct_tflite_tensor *)w->inputs.item[i])->number], 0);
    for (size_t i = 0; i < w->calls.count; i++) {
        const oct_tflite_call *call = w->calls.item[i];
        for (int k = 0; k < call->outputs; k++)
            extend_interval(&uses[call->output[k]], (int64_t)i + 1);
        for (int k = 0; k < call->inputs; k++)
            if (!oct_to_tflite_at(w, call->input[k])->data)
                extend_interval(&uses[call->input[k]], (int64_t)i + 1);
    }
    for (size_t i = 0; i < w->outputs.count; i++)
        extend_interval(&uses[((const oct_tflite_tensor *)w->outputs.item[i])->number],
                        (int64_t)w->calls.count);
}

/* Places tensors in the arena, the largest first, of equal ones the last; returns the bytes that they take. */
static int64_t plan_arena(oct_interval *x, int64_t count)
{
    int64_t bytes = 0;
    for (int64_t n = 0; n < count; n++) {
        int64_t most = n;
        for (int64_t i = n; i < count; i++)
            if (x[i].bytes >= x[most].bytes) most = i;
        const oct_interval next = x[most];
        memmove(x + n + 1, x + n, (size_t)(most - n) * sizeof *x);
        x[n] = next;
        x[n].offset = oct_lowest_fit(x, n, &x[n]);
        bytes = oct_max_i64(bytes, x[n].offset + x[n].bytes);
    }
    return bytes;
}

/* Lists the names of a file's operators, each once, separated by spaces, for TFLM's op resolver; *arena: the bytes that
 * TFLM's greedy memory planner takes for the tensors that are not constants. */
static oct_status find_tflm_operators_and_arena(const oct_to_tflite_writer *w, oct_text *operators,
                                                int64_t *arena)
{
    bool seen[OCT_TFLITE_KINDS] = {false};
    OCT_OWNED(oct_free) oct_interval *x = NULL;
    int64_t count = 0;
    for (size_t i = 0; i < w->calls.count; i++) {
        const oct_tflite_operator kind = ((const oct_tflite_call *)w->calls.item[i])->kind;
        if (!seen[kind])
            OCT_TRY(
                oct_text_add(operators, "%s%s", operators->length ? " " : "", kinds[kind].name));
        seen[kind] = true;
    }
    OCT_TRY(oct_alloc(&x, w->tensors.count, sizeof *x));
    find_uses(w, x);
    for (size_t i = 0; i < w->tensors.count; i++)
        if (x[i].first >= 0) x[count++] = x[i];
    *arena = plan_arena(x, count);
    return OCT_OK;
}

oct_status oct_to_tflite_finish(oct_to_tflite_writer *w, const char *version, bool tflm,
                                oct_exported *out)
{
    char description[64];
    int64_t code[OCT_TFLITE_KINDS];
    size_t constants = 0;
    oct_flat_writer f = {.identifier = "TFL3"};
    oct_flat_field fields[] = {FIELD(0, 4, VERSION), REFERENCE(1), REFERENCE(2), REFERENCE(3),
                               REFERENCE(4),         REFERENCE(6), REFERENCE(7)};
    if (tflm) check_for_tflm(w);
    OCT_TRY(w->status);
    for (size_t i = 0; i < w->tensors.count; i++) {
        oct_tflite_tensor *t = w->tensors.item[i];
        if (t->data) t->buffer = (int64_t)++constants;
    }
    snprintf(description, sizeof description, "octet %s", version);
    TABLE(&f, OCT_FLAT_ROOT, fields);
    oct_flat_text(&f, fields[3].place, description);
    write_codes(&f, fields[1].place, w, code);
    write_graph(&f, oct_flat_references(&f, fields[2].place, 1), w, code);
    write_properties(&f, fields[5].place, w, constants);
    write_signature(&f, fields[6].place, w);
    write_buffers(&f, fields[4].place, w, constants);
    if (f.status == OCT_OK) {
        out->bytes = f.bytes;
        out->size = f.size;
    } else {
        oct_free(&f.bytes);
    }
    OCT_TRY(f.status);
    return tflm ? find_tflm_operators_and_arena(w, &out->operators, &out->arena) : OCT_OK;
}
