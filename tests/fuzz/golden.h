/* Files of numpy and h5py as a corpus. */
#pragma once

#include "tests/fuzz/dataset.h"
#include "tests/golden/array_golden.h"

#include <string.h>
#include <zlib.h>

/* All whose name begins so. */
static inline void fuzz_seed_golden(const char *prefix)
{
    for (size_t i = 0; i < OCT_COUNT(array_golden); i++) {
        uint8_t bytes[1 << 14];
        uLongf size = sizeof bytes;
        if (strncmp(array_golden[i].name, prefix, strlen(prefix)) != 0) continue;
        FUZZ_REQUIRE(uncompress(bytes, &size, array_golden[i].bytes, array_golden[i].size) == Z_OK,
                     "%s", array_golden[i].name);
        fuzz_seed(bytes, size);
    }
}

/* One file that holds both splits. */
static inline void fuzz_one_file(const oct_dataset_format *format, const char *name,
                                 const uint8_t *data, size_t size)
{
    const char *path = fuzz_file(name, data, size);
    const oct_dataset_source source = {.format = format, .folder = path};
    fuzz_source(&source, size, 8 * 1032, path);
}
