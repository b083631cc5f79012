/* Safetensors: the length of a header in 8 bytes, the header as JSON, and the numbers of all arrays, one array
 * after the other without a gap (huggingface.co/docs/safetensors). */
#include "core/base/half.h"
#include "core/base/mem.h"
#include "core/base/text.h"
#include "io/file/array.h"
#include "io/weights/format.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH_BYTES = 8, JSON_COST = 48 /* of memory, for a byte of text */ };
static const int64_t header_max = 100000000;

/* How numbers are stored. */
typedef struct element {
    const char *word;
    int64_t bytes;
    float (*read)(const uint8_t *from); /* little-endian; NULL: they are no floats */
} element;

#define READER(name, type, expression)                                                             \
    static float name(const uint8_t *from)                                                         \
    {                                                                                              \
        type value;                                                                                \
        memcpy(&value, from, sizeof value);                                                        \
        return expression;                                                                         \
    }
READER(read_f64, double, (float)value)
READER(read_f32, float, value)
READER(read_f16, uint16_t, oct_half_value(value))
READER(read_bf16, uint16_t, oct_bf16_value(value))
#undef READER

static const element elements[] = {
    {"F64", 8, read_f64}, {"F32", 4, read_f32}, {"F16", 2, read_f16}, {"BF16", 2, read_bf16},
    {"I64", 8, NULL},     {"I32", 4, NULL},     {"I16", 2, NULL},     {"I8", 1, NULL},
    {"U64", 8, NULL},     {"U32", 4, NULL},     {"U16", 2, NULL},     {"U8", 1, NULL},
    {"BOOL", 1, NULL},    {"F8_E4M3", 1, NULL}, {"F8_E5M2", 1, NULL},
};

/* The place of an array after the header; also those that hold no floats, since all together fill the file. */
typedef struct byte_range {
    int64_t begin, end;
    const element *element;
} byte_range;

/* An open file; its state (format.h). */
typedef struct tensors {
    oct_span span;
    int64_t data_begin; /* where the numbers begin */
    byte_range *ranges;
    size_t count, capacity;
} tensors;

/* Whether a file begins with the length of a header and the '{' of its JSON. */
static bool is_safetensors(const uint8_t *head, size_t size)
{
    uint64_t length = 0;
    if (size <= LENGTH_BYTES) return false;
    memcpy(&length, head, sizeof length);
    return length >= 2 && length <= (uint64_t)header_max && head[LENGTH_BYTES] == '{';
}

/* name: of the array that is wrong; NULL: the file is. */
static oct_status fail_damaged(const oct_weight_file *file, const char *name, const char *what)
{
    if (!name) return oct_fail(OCT_DATA, "%s: is no safetensors file: %s", file->path, what);
    return oct_fail(OCT_DATA, "%s: is no safetensors file, or damaged: %s %s", file->path,
                    oct_show(name, strlen(name)).text, what);
}

/* NULL: the word is not known. */
static const element *find_element(const json_t *word)
{
    for (size_t i = 0; i < OCT_COUNT(elements) && json_is_string(word); i++)
        if (strcmp(json_string_value(word), elements[i].word) == 0) return &elements[i];
    return NULL;
}

static bool read_shape(const json_t *shape, oct_weight *array)
{
    if (!json_is_array(shape) || json_array_size(shape) > OCT_WEIGHT_DIMS) return false;
    array->ndim = (int32_t)json_array_size(shape);
    for (int i = 0; i < array->ndim; i++) {
        const json_t *dim = json_array_get(shape, (size_t)i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0) return false;
        array->dim[i] = json_integer_value(dim);
    }
    return true;
}

/* Adds the array that an entry of the header describes. */
static oct_status add_array(oct_weight_file *file, const char *name, json_t *entry)
{
    tensors *t = file->state;
    oct_weight array = {0};
    json_int_t begin = 0, end = 0;
    const element *e = find_element(json_object_get(entry, "dtype"));
    if (!e) return fail_damaged(file, name, "has a dtype that is not known");
    if (!read_shape(json_object_get(entry, "shape"), &array))
        return fail_damaged(file, name, "has no shape of up to 8 whole numbers");
    const int64_t numel = oct_weight_numel(&array);
    if (json_unpack_ex(json_object_get(entry, "data_offsets"), NULL, JSON_STRICT, "[I, I]", &begin,
                       &end) != 0 ||
        begin < 0 || end < begin || numel < 0 || end - begin != numel * e->bytes)
        return fail_damaged(file, name, "has data_offsets that do not fit its shape");
    OCT_TRY(oct_grow(&t->ranges, &t->capacity, t->count + 1, sizeof *t->ranges));
    array.place = (int32_t)t->count;
    t->ranges[t->count++] = (byte_range){begin, end, e};
    if (e->read) return oct_weight_file_add(file, name, &array);
    file->weights->others++;
    return OCT_OK;
}

static int compare_begins(const void *a, const void *b)
{
    const byte_range *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* Checks that the arrays fill the bytes after the header, without gaps or overlaps. */
static oct_status check_ranges(const oct_weight_file *file)
{
    const tensors *t = file->state;
    OCT_OWNED(oct_free) byte_range *sorted = NULL;
    int64_t at = 0;
    OCT_TRY(oct_alloc(&sorted, t->count, sizeof *sorted));
    if (t->count > 0) {
        memcpy(sorted, t->ranges, t->count * sizeof *sorted);
        qsort(sorted, t->count, sizeof *sorted, compare_begins);
    }
    bool whole = true;
    for (size_t i = 0; i < t->count; i++) {
        whole &= sorted[i].begin == at;
        at = sorted[i].end;
    }
    OCT_CHECK(whole && at == t->span.size - t->data_begin, OCT_DATA,
              "%s: is damaged or cut short: its arrays do not fill the %lld bytes after the header "
              "exactly, without gaps or overlaps",
              file->path, (long long)(t->span.size - t->data_begin));
    return OCT_OK;
}

/* Reads the length of the header and its JSON, and lists the array of each entry. */
static oct_status read_header(oct_weight_file *file)
{
    tensors *t = file->state;
    uint64_t length;
    OCT_OWNED(oct_free) char *text = NULL;
    if (t->span.size < LENGTH_BYTES) return fail_damaged(file, NULL, "it has less than 8 bytes");
    OCT_TRY(oct_span_read(&t->span, 0, &length, sizeof length, file->path));
    OCT_CHECK(length <= (uint64_t)header_max && length <= (uint64_t)(t->span.size - LENGTH_BYTES),
              OCT_DATA,
              "%s: is no safetensors file, or cut short: its header would have %llu bytes; up to "
              "%lld are read, and no more than the file has",
              file->path, (unsigned long long)length, (long long)header_max);
    if (length == 0) return fail_damaged(file, NULL, "its header is empty");
    t->data_begin = LENGTH_BYTES + (int64_t)length;
    OCT_TRY(oct_mem_check_available(JSON_COST * (size_t)length));
    OCT_TRY(oct_alloc(&text, (size_t)length + 1, 1));
    json_error_t error;
    const char *name;
    json_t *entry;
    OCT_TRY(oct_span_read(&t->span, LENGTH_BYTES, text, (size_t)length, file->path));
    json_auto_t *root = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &error);
    OCT_CHECK(root, OCT_DATA, "%s: is no safetensors file: its header is not JSON: byte %d: %s",
              file->path, error.position, oct_show(error.text, strlen(error.text)).text);
    if (!json_is_object(root))
        return fail_damaged(file, NULL, "its header is not an object of JSON");
    json_object_foreach(root, name, entry)
    {
        if (strcmp(name, "__metadata__") != 0) OCT_TRY(add_array(file, name, entry));
    }
    return check_ranges(file);
}

static oct_status open_tensors(oct_weight_file *file)
{
    tensors *t;
    OCT_TRY(oct_alloc(&t, 1, sizeof *t));
    file->state = t;
    t->span = OCT_SPAN_NONE;
    OCT_TRY(oct_span_open(&t->span, file->path));
    return read_header(file);
}

static oct_status read_tensor(oct_weight_file *file, const oct_weight *array, float *to)
{
    enum { CHUNK = 1 << 16 }; /* numbers */
    const tensors *t = file->state;
    const byte_range *r = &t->ranges[array->place];
    const int64_t numel = oct_weight_numel(array), each = r->element->bytes;
    OCT_OWNED(oct_free) uint8_t *chunk = NULL;
    OCT_TRY(oct_alloc(&chunk, CHUNK, (size_t)each));
    for (int64_t at = 0; at < numel; at += CHUNK) {
        const int64_t n = numel - at < CHUNK ? numel - at : CHUNK;
        OCT_TRY(oct_span_read(&t->span, t->data_begin + r->begin + at * each, chunk,
                              (size_t)(n * each), file->path));
        for (int64_t i = 0; i < n; i++)
            to[at + i] = r->element->read(chunk + i * each);
    }
    return OCT_OK;
}

static void close_tensors(oct_weight_file *file)
{
    tensors *t = file->state;
    if (!t) return;
    oct_span_close(&t->span);
    oct_free(&t->ranges);
    oct_free(&t);
}

const oct_weight_format oct_weight_format_safetensors = {
    .name = "safetensors",
    .extension = ".safetensors",
    .is = is_safetensors,
    .open = open_tensors,
    .read = read_tensor,
    .close = close_tensors,
};
