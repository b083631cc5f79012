/* What reading and writing of HDF5 files share. */
#pragma once

#include "io/file/array.h"
#include "io/hdf5/hdf5.h"

typedef struct oct_h5_object {
    char *path;
    bool group, read; /* what follows is of data sets */
    oct_dtype dtype;
    oct_shape shape;
    int64_t at; /* of its values in the file, little-endian */
} oct_h5_object;

struct oct_h5 {
    const char *name;
    void (*end)(oct_h5 *h5); /* of a file that is written; what follows is of those that are read */
    oct_span span;           /* borrowed */
    oct_h5_object *objects;  /* by path */
    size_t count, capacity;
    char *own_name;
};

/* Cuts the next name off a path: false at its end. A bad name or one too many gives *bad. */
typedef struct oct_h5_names {
    const char *rest;
    int depth;
    bool bad;
    char name[256];
} oct_h5_names;

bool oct_h5_next_name(oct_h5_names *names);
