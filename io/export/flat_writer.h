/* A FlatBuffer is written forward: a table or vector comes before what it points to. So who writes one gets the places
 * of its references, and points each at what is written next.
 *
 * A writer keeps its first failure, after which nothing is written. The layout is that of the FlatBuffers encoding:
 * little-endian, references relative to where they lie, each table with a list of where its fields are. */
#pragma once

#include "core/base/status.h"

#include <stdint.h>

typedef struct oct_flat_writer {
    char identifier
        [5]; /* four characters that name the kind of file; the caller sets them, and nothing else */
    oct_status status;
    uint8_t *bytes; /* oct_alloc'ed, for who takes it at the end, also after a failure */
    size_t size, capacity;
} oct_flat_writer;

enum { OCT_FLAT_ROOT = 0 /* where the file refers to its root table */, OCT_FLAT_FIELDS = 12 };

/* A field of a table. */
typedef struct oct_flat_field {
    int number;    /* in the schema */
    int width;     /* bytes: 1, 2, 4 or 8; 0: a reference */
    int64_t value; /* of a number; floats by their bits */
    size_t place;  /* is set for a reference: where it lies */
} oct_flat_field;

/* Writes a table of at most OCT_FLAT_FIELDS fields after its vtable (the offsets of its fields), and lets the reference
 * at `place` point to it. The root comes first. */
void oct_flat_table(oct_flat_writer *w, size_t place, int n, oct_flat_field *fields);
/* Write vectors of n numbers of `width` bytes, aligned to `align` bytes (a power of two, of at least their width), and
 * of n references; number i lies at the result + 4 * i. */
void oct_flat_vector(oct_flat_writer *w, size_t place, size_t n, int width, int align,
                     const void *numbers);
size_t oct_flat_references(oct_flat_writer *w, size_t place, size_t n);
void oct_flat_text(oct_flat_writer *w, size_t place, const char *text);
