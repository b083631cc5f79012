/* A walk over a message of protocol buffers, before the library unpacks it.
 *
 * libprotobuf-c calls itself for each message inside another and has no limit on that, merges fields that come
 * twice again and again, and takes memory for each field before it has seen the last. The walk goes by the same
 * descriptors and holds every length against its parent, nesting and counts against limits, so that what unpacking
 * takes is bounded by the size of the file.
 */
#pragma once

#include "core/base/status.h"

#include <protobuf-c/protobuf-c.h>
#include <stdint.h>

/* What Octet's readers believe: the largest networks have some 100000 fields. */
enum { OCT_WIRE_DEPTH_MAX = 64, OCT_WIRE_FIELDS_MAX = 1 << 20, OCT_WIRE_NUMBERS_MAX = 1 << 26 };

/* OCT_DATA under `path` unless the bytes are a message of this type within those limits: fields, and numbers in
 * packed fields, are counted over all messages. */
oct_status oct_wire_check(const ProtobufCMessageDescriptor *type, const uint8_t *bytes, size_t size,
                          const char *path) OCT_NODISCARD;
/* Memory for the library, from core/base/mem.h. */
extern ProtobufCAllocator oct_wire_allocator;
