/* What the parts of the walk over an image share. Section numbers are those of the "HDF5 File Format
 * Specification Version 3.0". */
#pragma once

#include "io/hdf5_walk.h"

/* Bytes of the image that belong to one part of the file. */
typedef struct oct_h5_extent {
    uint64_t at, bytes;
} oct_h5_extent;

typedef struct oct_h5_extents {
    oct_h5_extent *all;
    size_t count, capacity;
    uint64_t bytes; /* of all together: no more than the image has, or some lie over others */
} oct_h5_extents;

typedef struct oct_h5_walker {
    const uint8_t *image;
    uint64_t size;
    oct_h5_extents parts;   /* of the file */
    oct_h5_extents entries; /* in heaps, which are parts themselves */
    uint8_t *block;         /* a copy of a heap's block, or NULL */
    oct_h5_map *map;
} oct_h5_walker;

/* Reads little-endian numbers; behind the end it reads zeros and remembers that. */
typedef struct oct_h5_cursor {
    const uint8_t *next, *end;
    bool short_of; /* of bytes */
} oct_h5_cursor;

uint64_t oct_h5_take(oct_h5_cursor *c, size_t bytes); /* at most 8 */
bool oct_h5_take_word(oct_h5_cursor *c, const char *word);
/* Are all bytes up to the end zero? Moves there. */
bool oct_h5_take_zeros(oct_h5_cursor *c);

/* An address that leads nowhere. */
#define OCT_H5_NOWHERE UINT64_MAX

/* Refuses the image for what is at a byte of it. */
oct_status oct_h5_refuse(uint64_t at, const char *what) OCT_NODISCARD;
#define OCT_H5_NEED(condition, at, what)                                                           \
    do {                                                                                           \
        if (!(condition)) return oct_h5_refuse((at), (what));                                      \
    } while (0)

/* A part of the file lies at these bytes; gives a cursor over them. */
oct_status oct_h5_claim(oct_h5_walker *w, uint64_t at, uint64_t bytes,
                        oct_h5_cursor *c) OCT_NODISCARD;
/* The same of an entry of a heap. */
oct_status oct_h5_claim_entry(oct_h5_walker *w, uint64_t at, uint64_t bytes,
                              oct_h5_cursor *c) OCT_NODISCARD;
/* Do the four bytes at the cursor hold the checksum of all from `begin` on? */
bool oct_h5_take_checksum(oct_h5_cursor *c, const uint8_t *begin);

/* A link: the name in a group, and the address of an object's header. */
typedef struct oct_h5_link {
    const char *name;
    size_t name_bytes;
    uint64_t target;
} oct_h5_link;
/* The link that fills a cursor (IV.A.2.g); `at` for messages. */
oct_status oct_h5_take_link(oct_h5_cursor *c, uint64_t at, oct_h5_link *link) OCT_NODISCARD;
/* Below 0, 0 or above as strcmp. */
int oct_h5_compare_names(const oct_h5_link *a, const oct_h5_link *b);
/* Goes on to where a link leads; parent: the number of its group, at `depth` names below the root. */
oct_status oct_h5_follow(oct_h5_walker *w, const oct_h5_link *link, size_t parent,
                         int depth) OCT_NODISCARD;

/* The links of a group that has too many for its header: in a fractal heap, with a B-tree over them. */
oct_status oct_h5_walk_dense(oct_h5_walker *w, uint64_t heap, uint64_t tree, size_t parent,
                             int depth) OCT_NODISCARD;
