/* An image of HDF5 consists of these parts; this is for the walk over it (hdf5_walk.h). Section numbers are
 * those of the "HDF5 File Format Specification Version 3.0". */
#pragma once

#include "core/base/status.h"

#include <stddef.h>
#include <stdint.h>

enum { OCT_H5_NAME_BYTES = 255, OCT_H5_DEPTH = 32 };

/* HDF5's checksum of metadata: Bob Jenkins' lookup3 (2006) with initial value 0. */
uint32_t oct_h5_checksum(const void *bytes, size_t size);
/* Is this a name that we write: 1 to OCT_H5_NAME_BYTES printable letters, no '/', not "."? */
bool oct_h5_is_name(const char *name, size_t bytes);
/* Returns below 0, 0 or above as strcmp. */
int oct_h5_compare_names(const char *a, size_t a_bytes, const char *b, size_t b_bytes);

/* Bytes of the image that belong to one part of the file. */
typedef struct oct_h5_extent {
    uint64_t at, bytes;
} oct_h5_extent;

typedef struct oct_h5_extents {
    oct_h5_extent *all;
    size_t count, capacity;
    uint64_t bytes; /* of all together: no more than the image has, or some lie over others */
} oct_h5_extents;

/* A file that is not in memory. Its image is a block of as many bytes, to which only what is looked at is read, by
 * oct_h5_fetch; the rest of the block stays untouched, and so takes no memory. */
typedef struct oct_h5_source {
    int fd;
    uint8_t *image;
} oct_h5_source;

/* What the parts of an image claim. Whatever is reached claims its bytes first. The claims of a file that
 * is in order lie beside each other, so together they are no more than the image; a file that leads in a
 * circle or to one place twice runs out of bytes at once. That bounds time and memory; whether two claims
 * lie over each other is checked when all are there. */
typedef struct oct_h5_claims {
    const uint8_t *image;
    const oct_h5_source *source; /* NULL: the image is all there */
    uint64_t size;
    oct_h5_extents parts;   /* of the file */
    oct_h5_extents entries; /* in heaps, which are parts themselves */
    uint8_t *block;         /* a copy of a heap's block, or NULL */
} oct_h5_claims;

/* Reads little-endian numbers; behind the end it reads zeros and remembers that. */
typedef struct oct_h5_cursor {
    const uint8_t *next, *end;
    bool short_of; /* of bytes */
} oct_h5_cursor;

uint64_t oct_h5_take(oct_h5_cursor *c, size_t bytes); /* at most 8 */
bool oct_h5_take_word(oct_h5_cursor *c, const char *word);
/* Are all bytes up to the end zero? It moves there. */
bool oct_h5_take_zeros(oct_h5_cursor *c);

/* An address that leads nowhere. */
#define OCT_H5_NOWHERE UINT64_MAX

/* Refuses the image for what is at a byte of it. */
oct_status oct_h5_refuse(uint64_t at, const char *what) OCT_NODISCARD;
#define OCT_H5_NEED(condition, at, what)                                                           \
    do {                                                                                           \
        if (!(condition)) return oct_h5_refuse((at), (what));                                      \
    } while (0)

/* Makes bytes inside the image be there. */
oct_status oct_h5_fetch(const oct_h5_claims *claims, uint64_t at, uint64_t bytes) OCT_NODISCARD;
/* Values lie at these bytes, which nobody looks at yet. */
oct_status oct_h5_claim_values(oct_h5_claims *claims, uint64_t at, uint64_t bytes) OCT_NODISCARD;
/* A part of the file lies at these bytes; gives a cursor over them. */
oct_status oct_h5_claim(oct_h5_claims *claims, uint64_t at, uint64_t bytes,
                        oct_h5_cursor *c) OCT_NODISCARD;
/* Does so for an entry of a heap. */
oct_status oct_h5_claim_entry(oct_h5_claims *claims, uint64_t at, uint64_t bytes,
                              oct_h5_cursor *c) OCT_NODISCARD;
/* Does no claim lie over another one of its kind? */
oct_status oct_h5_claims_check(oct_h5_claims *claims) OCT_NODISCARD;
void oct_h5_claims_free(oct_h5_claims *claims);
/* Do the four bytes at the cursor hold the checksum of all from `begin` on? */
bool oct_h5_take_checksum(oct_h5_cursor *c, const uint8_t *begin);

/* A link: the name in a group, and the address of an object's header. */
typedef struct oct_h5_link {
    const char *name;
    size_t name_bytes;
    uint64_t target;
} oct_h5_link;
/* Reads the link that fills a cursor (IV.A.2.g); `at` for messages. */
oct_status oct_h5_take_link(oct_h5_cursor *c, uint64_t at, oct_h5_link *link) OCT_NODISCARD;

typedef struct oct_h5_links {
    oct_h5_link *all;
    size_t count, capacity;
} oct_h5_links;
/* Adds the links of a group that has too many for its header: they lie in a fractal heap, with a B-tree over
 * them. They come in the tree's order; the caller frees links->all, also on failure. */
oct_status oct_h5_dense_links(oct_h5_claims *claims, uint64_t heap, uint64_t tree,
                              oct_h5_links *links) OCT_NODISCARD;
