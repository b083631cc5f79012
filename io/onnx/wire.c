/* A walk over a message of protocol buffers, before the library unpacks it (read_impl.h). */
#include "core/base/mem.h"
#include "io/onnx/read_impl.h"

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };
enum { VARINT_BYTES_MAX = 10, ONCE_FIELDS = 64 };

typedef struct walk {
    const char *path;
    int64_t fields, numbers;
} walk;

typedef struct stretch {
    const uint8_t *at, *end;
} stretch;

static oct_status damaged(const walk *w)
{
    return oct_fail(OCT_DATA,
                    "%s: is no ONNX file, or it is damaged or cut short; export or copy it again",
                    w->path);
}

static bool take_varint(stretch *s, uint64_t *value)
{
    *value = 0;
    for (int i = 0; i < VARINT_BYTES_MAX && s->at < s->end; i++) {
        const uint8_t byte = *s->at++;
        *value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (!(byte & 0x80)) return true;
    }
    return false;
}

static bool skip_bytes(stretch *s, uint64_t bytes)
{
    if (bytes > (uint64_t)(s->end - s->at)) return false;
    s->at += bytes;
    return true;
}

/* Takes the bytes of one field; a number's are of no further interest. */
static bool take_field(stretch *s, int wire, stretch *content)
{
    uint64_t length;
    *content = (stretch){0};
    switch (wire) {
    case VARINT:
        return take_varint(s, &length);
    case FIXED64:
        return skip_bytes(s, 8);
    case FIXED32:
        return skip_bytes(s, 4);
    case BYTES:
        if (!take_varint(s, &length) || length > (uint64_t)(s->end - s->at)) return false;
        *content = (stretch){s->at, s->at + length};
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

/* The library merges a message that comes twice with the first; one that comes a thousand times, a thousand
 * times. */
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

static oct_status check_message(walk *w, const ProtobufCMessageDescriptor *type, stretch s,
                                int depth)
{
    uint64_t seen = 0, tag;
    OCT_CHECK(depth <= OCT_WIRE_DEPTH_MAX, OCT_DATA,
              "%s: has parts inside of parts more than %d deep, which no network has", w->path,
              OCT_WIRE_DEPTH_MAX);
    while (s.at < s.end) {
        stretch content;
        if (!take_varint(&s, &tag) || tag >> 3 == 0 || tag > UINT32_MAX) return damaged(w);
        if (!take_field(&s, (int)(tag & 7), &content)) return damaged(w);
        OCT_CHECK(++w->fields <= OCT_WIRE_FIELDS_MAX, OCT_DATA,
                  "%s: has more than %d fields, which no network needs", w->path,
                  OCT_WIRE_FIELDS_MAX);
        const ProtobufCFieldDescriptor *field =
            protobuf_c_message_descriptor_get_field(type, (unsigned)(tag >> 3));
        if (!field) continue;
        if (!is_first(type, field, &seen)) return damaged(w);
        if ((tag & 7) != BYTES) continue;
        if (field->type == PROTOBUF_C_TYPE_MESSAGE)
            OCT_TRY(check_message(w, field->descriptor, content, depth + 1));
        else if (is_packed(field) && field->type != PROTOBUF_C_TYPE_FLOAT &&
                 field->type != PROTOBUF_C_TYPE_DOUBLE)
            w->numbers += content.end - content.at;
        OCT_CHECK(w->numbers <= OCT_WIRE_NUMBERS_MAX, OCT_DATA,
                  "%s: has too many integers; write tensors as raw data", w->path);
    }
    return OCT_OK;
}

oct_status oct_wire_check(const ProtobufCMessageDescriptor *type, const uint8_t *bytes, size_t size,
                          const char *path)
{
    walk w = {.path = path};
    return check_message(&w, type, (stretch){bytes, bytes + size}, 1);
}

static void *take_memory(void *user, size_t bytes)
{
    void *block = NULL;
    (void)user;
    return oct_alloc(&block, bytes, 1) == OCT_OK ? block : NULL;
}

static void give_memory(void *user, void *block)
{
    (void)user;
    oct_free(&block);
}

ProtobufCAllocator oct_wire_allocator = {.alloc = take_memory, .free = give_memory};
