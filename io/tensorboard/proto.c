/* Protocol buffers on the wire: a key (field number and kind), then a number of 7 bits a byte, 4 or 8 bytes,
 * or a length and its bytes. */
#include "io/tensorboard/proto.h"

#include "core/base/mem.h"

#include <string.h>

enum { KIND_VARINT = 0, KIND_64 = 1, KIND_BYTES = 2, KIND_32 = 5, KIND_BITS = 3, VARINT_MAX = 10 };

static void append(oct_proto *m, const void *bytes, size_t count)
{
    if (!m->failed && oct_grow(&m->data, &m->capacity, m->length + count, 1) != OCT_OK) {
        oct_fail_clear();
        m->failed = true;
    }
    if (m->failed || count == 0) return;
    memcpy(m->data + m->length, bytes, count);
    m->length += count;
}

static void append_varint(oct_proto *m, uint64_t value)
{
    uint8_t bytes[VARINT_MAX];
    size_t count = 0;
    do {
        bytes[count] = (uint8_t)(value & 0x7F);
        value >>= 7;
        if (value) bytes[count] |= 0x80;
        count++;
    } while (value);
    append(m, bytes, count);
}

static void append_key(oct_proto *m, int field, int kind)
{
    append_varint(m, (uint64_t)field << KIND_BITS | (uint64_t)kind);
}

static void append_little(oct_proto *m, uint64_t bits, int bytes)
{
    uint8_t little[8];
    for (int i = 0; i < bytes; i++)
        little[i] = (uint8_t)(bits >> 8 * i);
    append(m, little, (size_t)bytes);
}

static void append_double(oct_proto *m, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    append_little(m, bits, 8);
}

void oct_proto_integer(oct_proto *message, int field, int64_t value)
{
    append_key(message, field, KIND_VARINT);
    append_varint(message, (uint64_t)value);
}

void oct_proto_float(oct_proto *message, int field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    append_key(message, field, KIND_32);
    append_little(message, bits, 4);
}

void oct_proto_double(oct_proto *message, int field, double value)
{
    append_key(message, field, KIND_64);
    append_double(message, value);
}

void oct_proto_doubles(oct_proto *message, int field, const double *values, size_t count)
{
    append_key(message, field, KIND_BYTES);
    append_varint(message, (uint64_t)count * 8);
    for (size_t i = 0; i < count; i++)
        append_double(message, values[i]);
}

void oct_proto_bytes(oct_proto *message, int field, const void *bytes, size_t count)
{
    append_key(message, field, KIND_BYTES);
    append_varint(message, count);
    append(message, bytes, count);
}

void oct_proto_text(oct_proto *message, int field, const char *text)
{
    oct_proto_bytes(message, field, text, strlen(text));
}

void oct_proto_message(oct_proto *message, int field, oct_proto *inner)
{
    oct_proto_bytes(message, field, inner->data, inner->length);
    message->failed |= inner->failed;
    oct_proto_free(inner);
}

void oct_proto_free(oct_proto *message)
{
    oct_free(&message->data);
    *message = (oct_proto){0};
}
