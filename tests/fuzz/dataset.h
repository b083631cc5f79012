/* Data sets: read whole, or refused with the name of a file. */
#pragma once

#include "core/base/mem.h"
#include "io/dataset/dataset.h"
#include "tests/fuzz/fuzz.h"

/* Opens and reads all samples of a source whose files hold `size` bytes together. What comes out of them may
 * take `factor` times as much. `said`: what a refusal names. */
static inline void fuzz_source(const oct_dataset_source *source, size_t size, size_t factor,
                               const char *said)
{
    const unsigned allowed = FUZZ_BIT(OCT_OK) | FUZZ_BIT(OCT_DATA);
    oct_dataset data;
    oct_image image = {0}, map = {0};
    fuzz_call call = fuzz_begin(size);
    oct_status status = oct_dataset_open(&data, source, OCT_TEST);
    fuzz_said(status, allowed, said);
    if (status == OCT_OK) {
        FUZZ_REQUIRE(data.count > 0 && data.c > 0, "an empty data set");
        for (int64_t i = 0; i < data.count && data.labels; i++)
            FUZZ_REQUIRE(data.labels[i] >= 0 && data.labels[i] < data.classes, "label %d of %d",
                         (int)data.labels[i], (int)data.classes);
        for (int64_t i = 0; i < data.count && i < 64; i++)
            fuzz_said(data.format->read(&data, i, &image, &map), allowed, said);
        oct_dataset_close(&data);
    }
    oct_image_free(&image);
    oct_image_free(&map);
    fuzz_end(&call, factor, (size_t)4 << 20);
}

/* After the writing of the folder's files, of `size` bytes together. What is inflated is no more than
 * a thousand times as large as it was. */
static inline void fuzz_dataset(const oct_dataset_format *format, size_t size)
{
    const oct_dataset_source source = {.format = format, .folder = fuzz_folder()};
    fuzz_source(&source, size, 1100, fuzz_folder());
}
