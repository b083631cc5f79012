/* Data sets of a folder: read whole, or refused with the name of a file in it. */
#pragma once

#include "core/base/mem.h"
#include "io/dataset/dataset.h"
#include "tests/fuzz/fuzz.h"

/* Behind the writing of the folder's files, of `size` bytes together. What is inflated is no more than
 * a thousand times as large as it was. */
static inline void fuzz_dataset(const oct_dataset_format *format, size_t size)
{
    oct_dataset data;
    const oct_dataset_source source = {.format = format, .folder = fuzz_folder()};
    fuzz_call call = fuzz_begin(size);
    oct_status status = oct_dataset_open(&data, &source, OCT_TEST);
    fuzz_said(status, FUZZ_BIT(OCT_OK) | FUZZ_BIT(OCT_DATA), fuzz_folder());
    if (status == OCT_OK) {
        FUZZ_REQUIRE(data.count > 0 && data.h > 0 && data.w > 0 && data.c > 0, "an empty data set");
        for (int64_t i = 0; i < data.count; i++)
            FUZZ_REQUIRE(data.labels[i] >= 0 && data.labels[i] < data.classes, "label %d of %d",
                         (int)data.labels[i], (int)data.classes);
        oct_dataset_close(&data);
    }
    fuzz_end(&call, 1100, (size_t)4 << 20);
}
