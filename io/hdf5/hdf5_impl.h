/* What reading and writing of HDF5 files share. */
#pragma once

#include "io/file/array.h"
#include "io/hdf5/hdf5.h"

typedef struct oct_h5_object {
    char *path;
    bool group, read; /* what follows is of data sets */
    oct_dtype dtype;
    oct_shape shape;
    int64_t offset; /* of its values in the file, little-endian; -1: there are none */
} oct_h5_object;

struct oct_h5 {
    char *name; /* for messages; owned */
    /* Of a file that is written; what follows is of those that are read. Pointers, so that a program that only reads
     * is linked without libhdf5. */
    oct_status (*write)(oct_h5 *h5, const char *path, oct_dtype dtype, oct_shape shape,
                        const void *data);
    void (*end_writing)(oct_h5 *h5);
    oct_span span;          /* borrowed */
    oct_h5_object *objects; /* by path */
    size_t count, capacity;
};

/* A walk along the names of a path. */
typedef struct oct_h5_names {
    const char *rest; /* of the path */
    int depth;
    bool bad; /* a name is no name, or one too many */
    char name[256];
} oct_h5_names;

/* Cuts the next name off the path: false at its end or at a bad name. */
bool oct_h5_next_name(oct_h5_names *names);
