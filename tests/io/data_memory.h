/* Loading a data set as a plain recipe does, and the memory that it takes. */
#pragma once

#include "core/base/mem.h"
#include "io/dataset/dataset.h"

#include <criterion/criterion.h>

static inline oct_status load_plain(oct_dataset *data, const oct_dataset_format *format,
                                    const char *folder, oct_split split, int64_t limit)
{
    return oct_dataset_open(
        data, &(oct_dataset_source){.format = format, .folder = folder, .limit = limit}, split);
}

/* Loads with each allocation failing in turn, until one load works. */
static inline void check_memory_that_runs_out(const oct_dataset_format *format, const char *path)
{
    oct_dataset data;
    int failures = 0;
    for (int64_t n = 1; n < 100; n++) {
        oct_mem_fail_after(n);
        oct_status status = load_plain(&data, format, path, OCT_TRAIN, 0);
        oct_mem_fail_after(0);
        if (status == OCT_OK) break;
        failures++;
        cr_assert(status == OCT_RESOURCE && oct_mem_live() == 0);
    }
    cr_assert(failures > 5 && failures < 99);
    oct_dataset_close(&data);
}
