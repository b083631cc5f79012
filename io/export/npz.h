/* NumPy's .npz is written here: a zip archive of arrays, stored as they are. Equal arrays give equal bytes. */
#pragma once

#include "core/tensor/tensor.h"

typedef struct oct_npz_array {
    const char *name; /* "input" */
    oct_dtype dtype;
    oct_shape shape;
    const void *data;
} oct_npz_array;

/* *bytes is oct_alloc'ed. OCT_PREPARE for more than the 4 GiB that such an archive holds. */
oct_status oct_npz_make(const oct_npz_array *arrays, int count, void **bytes,
                        size_t *size) OCT_NODISCARD;
