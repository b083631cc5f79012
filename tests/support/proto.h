/* Messages of protocol buffers, written field by field, also such as no definition allows. */
#pragma once

#include "core/base/mem.h"

#include <criterion/criterion.h>
#include <string.h>

/* A message inside another is written on its own first. */
typedef struct oct_proto {
    uint8_t *data; /* owned */
    size_t length, capacity;
} oct_proto;

static inline void oct_proto_free(oct_proto *message)
{
    oct_free(&message->data);
    *message = (oct_proto){0};
}

static inline void oct_proto_append(oct_proto *m, const void *bytes, size_t count)
{
    cr_assert(oct_grow(&m->data, &m->capacity, m->length + count, 1) == OCT_OK);
    if (count > 0) memcpy(m->data + m->length, bytes, count);
    m->length += count;
}

/* A number with 7 bits in each byte, low ones first; the top bit of a byte says that more follow. */
static inline void oct_proto_varint(oct_proto *m, uint64_t value)
{
    for (bool more = true; more;) {
        more = value > 0x7F;
        const uint8_t byte = (uint8_t)((value & 0x7F) | (more ? 0x80 : 0));
        oct_proto_append(m, &byte, 1);
        value >>= 7;
    }
}

static inline void oct_proto_integer(oct_proto *m, int field, int64_t value)
{
    oct_proto_varint(m, (uint64_t)field << 3);
    oct_proto_varint(m, (uint64_t)value);
}

/* Processors that tests run on are little-endian, as messages are. */
static inline void oct_proto_float(oct_proto *m, int field, float value)
{
    oct_proto_varint(m, (uint64_t)field << 3 | 5);
    oct_proto_append(m, &value, sizeof value);
}

static inline void oct_proto_bytes(oct_proto *m, int field, const void *bytes, size_t count)
{
    oct_proto_varint(m, (uint64_t)field << 3 | 2);
    oct_proto_varint(m, count);
    oct_proto_append(m, bytes, count);
}

static inline void oct_proto_text(oct_proto *m, int field, const char *text)
{
    oct_proto_bytes(m, field, text, strlen(text));
}

/* Adds a message and frees it. */
static inline void oct_proto_message(oct_proto *m, int field, oct_proto *inner)
{
    oct_proto_bytes(m, field, inner->data, inner->length);
    oct_proto_free(inner);
}
