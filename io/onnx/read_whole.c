/* A network and the data beside it become one file: exporters of today write "net.onnx" and "net.onnx.data".
 *
 * The network is not trusted, so a file of data must be below the network's own folder, by its name and in truth, and no
 * byte serves two tensors: what is read is never more than what is there. */
#include "core/base/mem.h"
#include "core/base/text.h"
#include "io/file/array.h"
#include "io/file/file.h"
#include "io/onnx/read_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* libprotobuf-c calls itself for each message inside another and has no limit on that, merges fields that come twice again
 * and again, and takes memory for each field before it has seen the last. So a walk by the same descriptors first holds
 * every length against its parent, nesting and counts against limits: what unpacking takes is bounded by the size of the
 * file. The largest networks have some 100000 fields. */
enum { DEPTH_MAX = 64, FIELDS_MAX = 1 << 20, NUMBERS_MAX = 1 << 26 };
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };
enum { VARINT_BYTES_MAX = 10, ONCE_FIELDS = 64 };

typedef struct walk {
    const char *path;
    int64_t fields, numbers;
} walk;

typedef struct cursor {
    const uint8_t *at, *end;
} cursor;

static oct_status refuse_damaged(const walk *w)
{
    return oct_fail(OCT_DATA,
                    "%s: is no ONNX file, or it is damaged or cut short; export or copy it again",
                    w->path);
}

static bool read_varint(cursor *s, uint64_t *value)
{
    *value = 0;
    for (int i = 0; i < VARINT_BYTES_MAX && s->at < s->end; i++) {
        const uint8_t byte = *s->at++;
        *value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (!(byte & 0x80)) return true;
    }
    return false;
}

static bool skip_bytes(cursor *s, uint64_t bytes)
{
    if (bytes > (uint64_t)(s->end - s->at)) return false;
    s->at += bytes;
    return true;
}

/* Moves past one field of the message; content: its bytes where it is a string, a tensor's data or a message inside. */
static bool read_field(cursor *s, int wire, cursor *content)
{
    uint64_t length;
    *content = (cursor){0};
    switch (wire) {
    case VARINT:
        return read_varint(s, &length);
    case FIXED64:
        return skip_bytes(s, 8);
    case FIXED32:
        return skip_bytes(s, 4);
    case BYTES:
        if (!read_varint(s, &length) || length > (uint64_t)(s->end - s->at)) return false;
        *content = (cursor){s->at, s->at + length};
        s->at += length;
        return true;
    default: /* groups, which ONNX does not have */
        return false;
    }
}

/* Numbers of a packed field are fewer than its bytes. */
static bool is_packed(const ProtobufCFieldDescriptor *field)
{
    return field->label == PROTOBUF_C_LABEL_REPEATED && field->type != PROTOBUF_C_TYPE_MESSAGE &&
           field->type != PROTOBUF_C_TYPE_STRING && field->type != PROTOBUF_C_TYPE_BYTES;
}

/* Has this field of a message not been seen before? The library would merge a repeated one with the first, each time
 * anew. */
static bool is_first(const ProtobufCMessageDescriptor *type, const ProtobufCFieldDescriptor *field,
                     uint64_t *seen)
{
    const size_t index = (size_t)(field - type->fields);
    OCT_ASSERT(index < ONCE_FIELDS);
    if (field->label == PROTOBUF_C_LABEL_REPEATED) return true;
    const bool first = !(*seen >> index & 1);
    *seen |= (uint64_t)1 << index;
    return first;
}

/* Checks a message and all inside it against the limits before it is unpacked. */
static oct_status check_message(walk *w, const ProtobufCMessageDescriptor *type, cursor s,
                                int depth)
{
    uint64_t seen = 0, tag;
    OCT_CHECK(depth <= DEPTH_MAX, OCT_DATA,
              "%s: has parts inside of parts more than %d deep, which no network has", w->path,
              DEPTH_MAX);
    while (s.at < s.end) {
        cursor content;
        if (!read_varint(&s, &tag) || tag >> 3 == 0 || tag > UINT32_MAX) return refuse_damaged(w);
        if (!read_field(&s, (int)(tag & 7), &content)) return refuse_damaged(w);
        OCT_CHECK(++w->fields <= FIELDS_MAX, OCT_DATA,
                  "%s: has more than %d fields, which no network needs", w->path, FIELDS_MAX);
        const ProtobufCFieldDescriptor *field =
            protobuf_c_message_descriptor_get_field(type, (unsigned)(tag >> 3));
        if (!field) continue;
        if (!is_first(type, field, &seen)) return refuse_damaged(w);
        if ((tag & 7) != BYTES) continue;
        if (field->type == PROTOBUF_C_TYPE_MESSAGE)
            OCT_TRY(check_message(w, field->descriptor, content, depth + 1));
        else if (is_packed(field) && field->type != PROTOBUF_C_TYPE_FLOAT &&
                 field->type != PROTOBUF_C_TYPE_DOUBLE)
            w->numbers += content.end - content.at;
        OCT_CHECK(w->numbers <= NUMBERS_MAX, OCT_DATA,
                  "%s: has too many integers; write tensors as raw data", w->path);
    }
    return OCT_OK;
}

static void *allocate_block(void *user, size_t bytes)
{
    void *block = NULL;
    (void)user;
    return oct_alloc(&block, bytes, 1) == OCT_OK ? block : NULL;
}

static void free_block(void *user, void *block)
{
    (void)user;
    oct_free(&block);
}

ProtobufCAllocator oct_wire_allocator = {.alloc = allocate_block, .free = free_block};

oct_status oct_onnx_unpack(const oct_onnx_source *source, OctOnnx__ModelProto **m)
{
    OCT_CHECK(source->size <= OCT_ONNX_FILE_BYTES_MAX, OCT_DATA,
              "%s: has %s; an ONNX file has at most %s; larger tensors belong in external data",
              source->path, oct_text_size((int64_t)source->size).text,
              oct_text_size(OCT_ONNX_FILE_BYTES_MAX).text);
    const uint8_t *bytes = source->bytes;
    OCT_TRY(check_message(&(walk){.path = source->path}, &oct_onnx__model_proto__descriptor,
                          (cursor){bytes, bytes + source->size}, 1));
    oct_fail_clear();
    *m = oct_onnx__model_proto__unpack(&oct_wire_allocator, source->size, source->bytes);
    if (*m) return OCT_OK;
    return oct_fail_code() != OCT_OK
               ? oct_fail_prefix("%s", source->path)
               : oct_fail(OCT_DATA, "%s: is no ONNX file, or it is damaged", source->path);
}

/* Where the data of one tensor are in another file. */
typedef struct file_range {
    const char *name;     /* of the tensor, for messages */
    const char *location; /* as the network writes it */
    int64_t offset, length;
    uint64_t device, inode; /* of that file; set by add_range */
} file_range;

typedef struct external {
    const char *path, *folder; /* the network's, for messages, and where it lies */
    file_range *ranges;
    size_t count, capacity;
} external;

/* Reads in which file a tensor's external data are, from which byte on and how many. */
static oct_status find_range(const external *x, const OctOnnx__TensorProto *p, file_range *found)
{
    const oct_shown shown = oct_onnx_shown(p->name);
    *found = (file_range){.name = p->name};
    OCT_TRY(oct_onnx_tensor_bytes(x->path, p, &found->length));
    for (size_t i = 0; i < p->n_external_data; i++) {
        const OctOnnx__StringStringEntryProto *entry = p->external_data[i];
        int64_t number = 0;
        if (!entry->key || !entry->value) continue;
        if (strcmp(entry->key, "location") == 0) found->location = entry->value;
        const bool offset = strcmp(entry->key, "offset") == 0;
        const bool length = strcmp(entry->key, "length") == 0;
        if (!offset && !length) continue;
        OCT_CHECK(oct_parse_i64(entry->value, &number) && number >= 0, OCT_DATA,
                  "%s: the data of '%s' have the %s '%s'", x->path, shown.text, entry->key,
                  oct_onnx_shown(entry->value).text);
        if (offset) found->offset = number;
        OCT_CHECK(offset || number == found->length, OCT_DATA,
                  "%s: the elements of '%s' are %" PRId64 " bytes, but %" PRId64
                  " bytes of data; it is damaged",
                  x->path, shown.text, found->length, number);
    }
    OCT_CHECK(found->location && !p->raw_data.data, OCT_DATA,
              "%s: the data of '%s' are external, but %s", x->path, shown.text,
              found->location ? "in the file too; it is damaged" : "nowhere");
    return OCT_OK;
}

static oct_status refuse_outside(const external *x, const file_range *p)
{
    return oct_fail(
        OCT_DATA,
        "%s: the data of '%s' are in '%s', which is no file below the network's folder; "
        "put the file itself there, or save the network as one file",
        x->path, oct_onnx_shown(p->name).text, oct_onnx_shown(p->location).text);
}

/* Is the path relative, without a step upwards? Its name alone counts, not links. */
static bool is_safe_relative_path(const char *location)
{
    if (location[0] == '\0' || location[0] == '/') return false;
    for (const char *at = location; at;) {
        const size_t length = strcspn(at, "/");
        if (length == 2 && memcmp(at, "..", 2) == 0) return false;
        at = at[length] == '/' ? at + length + 1 : NULL;
    }
    return true;
}

/* Resolves links: sets `real` to the file's path when it is below the network's folder, and refuses it otherwise. */
static oct_status find_real_path(const external *x, const file_range *p, char real[PATH_MAX])
{
    char root[PATH_MAX], path[PATH_MAX];
    if (!is_safe_relative_path(p->location) || !realpath(x->folder, root))
        return refuse_outside(x, p);
    const int length = snprintf(path, sizeof path, "%s/%s", root, p->location);
    if (length < 0 || (size_t)length >= sizeof path) return refuse_outside(x, p);
    OCT_CHECK(realpath(path, real), OCT_DATA, "%s: the data of '%s' are missing: %s: %s", x->path,
              oct_onnx_shown(p->name).text, oct_onnx_shown(p->location).text, strerror(errno));
    const size_t below = strlen(root);
    if (strncmp(real, root, below) != 0 || (root[below - 1] != '/' && real[below] != '/'))
        return refuse_outside(x, p);
    return OCT_OK;
}

/* Adds a range of bytes to the list, after checking that its file has them. */
static oct_status add_range(external *x, file_range found)
{
    char real[PATH_MAX];
    struct stat info;
    OCT_TRY(find_real_path(x, &found, real));
    OCT_CHECK(stat(real, &info) == 0, OCT_DATA, "%s: %s", real, strerror(errno));
    OCT_TRY(oct_file_check_regular(real, &info));
    OCT_CHECK(found.offset >= 0 && found.length >= 0 && found.offset <= info.st_size &&
                  found.length <= info.st_size - found.offset,
              OCT_DATA,
              "%s: the data of '%s' are %" PRId64 " bytes at %" PRId64 " of %s, which has %" PRId64
              "; it is damaged or cut short",
              x->path, oct_onnx_shown(found.name).text, found.length, found.offset,
              oct_onnx_shown(found.location).text, (int64_t)info.st_size);
    found.device = info.st_dev;
    found.inode = info.st_ino;
    OCT_TRY(oct_grow(&x->ranges, &x->capacity, x->count + 1, sizeof *x->ranges));
    x->ranges[x->count++] = found;
    return OCT_OK;
}

/* Orders ranges by file (device and inode: a file may have several names) and offset: overlaps become neighbors. */
static int compare_ranges(const void *left, const void *right)
{
    const file_range *a = left, *b = right;
    if (a->device != b->device) return a->device < b->device ? -1 : 1;
    if (a->inode != b->inode) return a->inode < b->inode ? -1 : 1;
    return (a->offset > b->offset) - (a->offset < b->offset);
}

/* Refuses files in which two tensors share bytes: they could be far larger in memory than on disk. */
static oct_status check_overlap(external *x)
{
    const file_range *last = NULL;
    if (x->count > 1) qsort(x->ranges, x->count, sizeof *x->ranges, compare_ranges);
    for (size_t i = 0; i < x->count; i++) {
        const file_range *p = &x->ranges[i];
        if (p->length == 0) continue;
        const bool same_file = last && last->device == p->device && last->inode == p->inode;
        OCT_CHECK(!same_file || last->offset + last->length <= p->offset, OCT_DATA,
                  "%s: the data of '%s' and '%s' overlap in %s; it is damaged", x->path,
                  oct_onnx_shown(last->name).text, oct_onnx_shown(p->name).text,
                  oct_onnx_shown(p->location).text);
        last = p;
    }
    return OCT_OK;
}

static oct_status check_external_tensor(external *x, OctOnnx__TensorProto *p)
{
    file_range found;
    if (!oct_onnx_is_external(p)) return OCT_OK;
    OCT_TRY(find_range(x, p, &found));
    return add_range(x, found);
}

/* Replaces a tensor's reference to external data by the data. */
static oct_status read_external_tensor(external *x, OctOnnx__TensorProto *p)
{
    file_range found;
    char real[PATH_MAX];
    OCT_OWNED(oct_span_close) oct_span span = OCT_SPAN_NONE;
    void *bytes = NULL;
    if (!oct_onnx_is_external(p)) return OCT_OK;
    OCT_TRY(find_range(x, p, &found));
    OCT_TRY(oct_alloc(&bytes, (size_t)found.length, 1));
    p->raw_data =
        (ProtobufCBinaryData){(size_t)found.length, bytes}; /* the message's from now on */
    p->has_raw_data = true;
    OCT_TRY(find_real_path(x, &found, real));
    OCT_TRY(oct_span_open(&span, real));
    OCT_TRY(oct_span_read(&span, found.offset, bytes, (size_t)found.length, real));
    for (size_t i = 0; i < p->n_external_data; i++)
        oct_onnx__string_string_entry_proto__free_unpacked(p->external_data[i],
                                                           &oct_wire_allocator);
    p->n_external_data = 0;
    p->has_data_location = false;
    return OCT_OK;
}

/* What is done to each tensor of a file. */
typedef oct_status (*visit)(external *x, OctOnnx__TensorProto *t);

static oct_status visit_graph(external *x, const OctOnnx__GraphProto *g, visit function);

static oct_status visit_attributes(external *x, OctOnnx__AttributeProto *const *list, size_t count,
                                   visit function)
{
    for (size_t i = 0; i < count; i++) {
        const OctOnnx__AttributeProto *a = list[i];
        if (a->t) OCT_TRY(function(x, a->t));
        for (size_t m = 0; m < a->n_tensors; m++)
            OCT_TRY(function(x, a->tensors[m]));
        if (a->g) OCT_TRY(visit_graph(x, a->g, function));
        for (size_t m = 0; m < a->n_graphs; m++)
            OCT_TRY(visit_graph(x, a->graphs[m], function));
    }
    return OCT_OK;
}

static oct_status visit_nodes(external *x, OctOnnx__NodeProto *const *nodes, size_t count,
                              visit function)
{
    for (size_t i = 0; i < count; i++)
        OCT_TRY(visit_attributes(x, nodes[i]->attribute, nodes[i]->n_attribute, function));
    return OCT_OK;
}

static oct_status visit_graph(external *x, const OctOnnx__GraphProto *g, visit function)
{
    for (size_t i = 0; i < g->n_initializer; i++)
        OCT_TRY(function(x, g->initializer[i]));
    return visit_nodes(x, g->node, g->n_node, function);
}

/* Calls a function for each tensor of the model, also inside nodes and functions. */
static oct_status visit_all(external *x, const OctOnnx__ModelProto *m, visit function)
{
    if (m->graph) OCT_TRY(visit_graph(x, m->graph, function));
    for (size_t i = 0; i < m->n_functions; i++) {
        const OctOnnx__FunctionProto *f = m->functions[i];
        OCT_TRY(visit_attributes(x, f->attribute_proto, f->n_attribute_proto, function));
        OCT_TRY(visit_nodes(x, f->node, f->n_node, function));
    }
    return OCT_OK;
}

/* Rewrites the file in `bytes` with the external data of its tensors inside, where it has any. */
static oct_status embed_external_data(external *x, void **bytes, size_t *size)
{
    const oct_onnx_source source = {*bytes, *size, x->path};
    OctOnnx__ModelProto *m = NULL;
    void *whole = NULL;
    oct_status status = OCT_OK;
    OCT_TRY(oct_onnx_unpack(&source, &m));
    OCT_TRY_OUT(visit_all(x, m, check_external_tensor));
    if (x->count == 0) goto out;
    /* All ranges are checked before anything is read. */
    OCT_TRY_OUT(check_overlap(x));
    uint64_t total = *size;
    for (size_t i = 0; i < x->count; i++)
        total += (uint64_t)x->ranges[i].length;
    if (total > OCT_ONNX_FILE_BYTES_MAX)
        status = oct_fail(
            OCT_DATA, "%s: has %s with its external data; networks of up to %s are read", x->path,
            oct_text_size((int64_t)total).text, oct_text_size(OCT_ONNX_FILE_BYTES_MAX).text);
    if (status == OCT_OK) status = visit_all(x, m, read_external_tensor);
    if (status != OCT_OK) goto out;
    const size_t packed = oct_onnx__model_proto__get_packed_size(m);
    OCT_TRY_OUT(oct_alloc(&whole, packed, 1));
    (void)oct_onnx__model_proto__pack(m, whole);
    oct_free(bytes);
    *bytes = whole;
    *size = packed;
out:
    oct_onnx__model_proto__free_unpacked(m, &oct_wire_allocator);
    return status;
}

oct_status oct_onnx_load(const char *path, void **bytes, size_t *size)
{
    const char *slash = strrchr(path, '/');
    char *folder = NULL;
    oct_status status = OCT_OK;
    external x = {.path = path};
    *bytes = NULL;
    OCT_TRY(oct_format(&folder, "%.*s", slash ? (int)(slash - path) + 1 : 2, slash ? path : "./"));
    x.folder = folder;
    OCT_TRY_OUT(oct_file_read(path, OCT_ONNX_FILE_BYTES_MAX, bytes, size));
    OCT_TRY_OUT(embed_external_data(&x, bytes, size));
out:
    if (status != OCT_OK) oct_free(bytes);
    oct_free(&x.ranges);
    oct_free(&folder);
    return status;
}
