/* Files of array_golden.h in a folder of the test. */
#pragma once

#include "core/base/mem.h"
#include "tests/golden/array_golden.h"
#include "tests/support/tmp.h"

#include <criterion/criterion.h>
#include <string.h>
#include <zlib.h>

/* *bytes is oct_alloc'ed. */
static inline size_t golden_bytes(const char *name, uint8_t **bytes)
{
    for (size_t i = 0; i < OCT_COUNT(array_golden); i++) {
        if (strcmp(array_golden[i].name, name) != 0) continue;
        uLongf size = array_golden[i].whole;
        cr_assert(oct_alloc(bytes, size, 1) == OCT_OK);
        cr_assert(uncompress(*bytes, &size, array_golden[i].bytes, array_golden[i].size) == Z_OK);
        return size;
    }
    cr_assert(false, "no golden file %s", name);
    return 0;
}

static inline const char *golden_file(oct_tmp *tmp, const char *name, const char *as)
{
    uint8_t *bytes = NULL;
    const size_t size = golden_bytes(name, &bytes);
    const char *path = oct_tmp_write(tmp, as, bytes, size);
    oct_free(&bytes);
    return path;
}

static inline void golden_npy(oct_tmp *tmp)
{
    golden_file(tmp, "npy_train_images", "train_images.npy");
    golden_file(tmp, "npy_train_labels", "train_labels.npy");
    golden_file(tmp, "npy_test_images", "test_images.npy");
    golden_file(tmp, "npy_test_labels", "test_labels.npy");
}
