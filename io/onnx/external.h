/* External data: elements of a network's tensors in files beside it. The network has name, offset and length
 * of each.
 *
 * The network is not trusted, so a file must lie below the network's own folder, by its name and in truth, and no
 * byte serves two tensors: what is read is never more than what is there.
 */
#pragma once

#include "core/base/status.h"

#include <stdint.h>

typedef struct oct_external_piece {
    const char *name;     /* of the tensor, for messages */
    const char *location; /* as the network writes it */
    int64_t offset, length;
    uint64_t device, inode; /* set by add */
} oct_external_piece;

typedef struct oct_external {
    const char *path, *folder; /* the network's, for messages, and where it lies */
    oct_external_piece *pieces;
    size_t count, capacity;
} oct_external;

/* Notes a piece: OCT_DATA when it is outside of the folder, or beyond the file's end. */
oct_status oct_external_add(oct_external *x, oct_external_piece piece) OCT_NODISCARD;
/* OCT_DATA when two pieces overlap; call it before any is read. */
oct_status oct_external_check(oct_external *x) OCT_NODISCARD;
/* Reads a piece that was added into `bytes`, which has room for its length. */
oct_status oct_external_read(const oct_external *x, const oct_external_piece *piece,
                             void *bytes) OCT_NODISCARD;
void oct_external_free(oct_external *x);
