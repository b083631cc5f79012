/* What checkpoints hold, item by item. */
#pragma once

#include "core/base/mem.h"
#include "io/file/file.h"
#include "io/hdf5/hdf5.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The data set of a checkpoint as bytes; at most `room`. */
static inline size_t read_item(const char *file, const char *item, void *data, size_t room)
{
    void *bytes = NULL;
    size_t size;
    oct_h5 *h5 = NULL;
    oct_dtype dtype;
    oct_shape shape;
    cr_assert(oct_file_read(file, 1 << 28, &bytes, &size) == OCT_OK, "%s", oct_error_message(0));
    cr_assert(oct_h5_open_checked(&h5, bytes, size, file) == OCT_OK, "%s", oct_error_message(0));
    cr_assert(oct_h5_describe(h5, item, &dtype, &shape) == OCT_OK, "%s", oct_error_message(0));
    size_t needed = (size_t)oct_shape_numel(&shape) * oct_dtype_bytes(dtype);
    cr_assert(needed <= room);
    cr_assert(oct_h5_read(h5, item, dtype, shape, data) == OCT_OK);
    oct_h5_close(&h5);
    oct_free(&bytes);
    return needed;
}

static inline void check_same_item(const char *a_file, const char *a, const char *b_file,
                                   const char *b)
{
    static uint8_t first[1 << 20], second[1 << 20];
    size_t size = read_item(a_file, a, first, sizeof first);
    cr_assert(read_item(b_file, b, second, sizeof second) == size);
    cr_assert(memcmp(first, second, size) == 0, "%s of %s is not %s of %s", b, b_file, a, a_file);
}

static inline void check_same_file(const char *a, const char *b)
{
    char command[600];
    snprintf(command, sizeof command, "cmp %s %s", a, b);
    cr_assert(system(command) == 0, "%s", command);
}
