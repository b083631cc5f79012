/* HDF5 files of other programs, as far as data sets need them: an array is found by its path and its
 * numbers are read. HDF5's own library can be crashed by a crafted file and lets one thread in at a time, so this
 * is a reader of our own, which holds every number against the file.
 *
 * Known are files of h5py and the like in their usual form: superblocks 0 to 3, groups with symbol
 * tables or compact links, integers and floats of either byte order, arrays that are compact, contiguous,
 * or in chunks with gzip and shuffle. Anything else is refused with what to write instead: links to other
 * files, virtual and external arrays, other filters, groups with very many links, chunk indices of
 * libver='latest'. */
#pragma once

#include "io/dataset/array.h"

/* Opens the array at "group/.../name". OCT_DATA names the file and the array. */
oct_status oct_h5_array_open(oct_array *array, const char *path, const char *name) OCT_NODISCARD;

/* What the object of an array says. h5_chunks.c makes of it how its chunks are read. */
enum { OCT_H5_FILTERS_MAX = 4, OCT_H5_DEFLATE = 1, OCT_H5_SHUFFLE = 2 };
typedef struct oct_h5_chunking {
    uint64_t tree; /* where the chunks' B-tree is */
    int ndim;      /* of the chunk, without the elements' bytes */
    int64_t dim[OCT_MAX_DIMS];
    int filter[OCT_H5_FILTERS_MAX]; /* in the order of writing */
    int filters;
} oct_h5_chunking;
/* Finds all chunks of an array, whose span is the file; sets its read, store and drop. */
oct_status oct_h5_chunks_find(oct_array *array, const oct_h5_chunking *chunking) OCT_NODISCARD;

static inline uint64_t oct_h5_number(const uint8_t *b, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--)
        value = value << 8 | b[i];
    return value;
}
oct_status oct_h5_array_damaged(const oct_array *array);
