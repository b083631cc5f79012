/* Messages of protocol buffers are written here: field by field, a message inside another on its own first.
 *
 * An encoder of one's own, because three kinds of fields are all that event files need: protobuf-c would
 * bring two packages, a compiler at build time and generated code for the same bytes.
 * A failure (no memory) is kept in the message; what is added after it has no effect.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct oct_proto {
    uint8_t *data; /* owned */
    size_t length, capacity;
    bool failed;
} oct_proto;

void oct_proto_integer(oct_proto *message, int field, int64_t value); /* also bool and enum */
void oct_proto_float(oct_proto *message, int field, float value);
void oct_proto_double(oct_proto *message, int field, double value);
void oct_proto_doubles(oct_proto *message, int field, const double *values, size_t count);
void oct_proto_bytes(oct_proto *message, int field, const void *bytes, size_t count);
void oct_proto_text(oct_proto *message, int field, const char *text);
/* Adds a message and frees it. */
void oct_proto_message(oct_proto *message, int field, oct_proto *inner);
void oct_proto_free(oct_proto *message);
