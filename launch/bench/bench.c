/* This prints a figure, as text or as JSON, and makes the data that figures are taken on. */
#include "launch/bench/bench.h"

#include "core/base/rng.h"
#include "launch/base/output.h"

#include <stdarg.h>
#include <stdio.h>

oct_status oct_bench_print(oct_bench *bench, json_t *figure, const char *format, ...)
{
    OCT_CHECK(figure, OCT_RESOURCE, "not enough memory for the results as JSON");
    if (bench->figures) {
        OCT_CHECK(json_array_append_new(bench->figures, figure) == 0, OCT_RESOURCE,
                  "not enough memory for the results as JSON");
        return OCT_OK;
    }
    json_decref(figure);
    char line[512];
    va_list list;
    va_start(list, format);
    oct_vsnprintf(line, sizeof line, format, list);
    va_end(list);
    return oct_print("%s\n", line);
}

void oct_bench_fill(uint8_t *bytes, int64_t n, uint32_t sub)
{
    uint32_t bits[4] = {0};
    for (int64_t i = 0; i < n; i++) {
        if (i % 16 == 0) oct_philox(OCT_BENCH_SEED, OCT_STREAM_TEST, (uint64_t)i / 16, sub, bits);
        bytes[i] = (uint8_t)(bits[i % 16 / 4] >> (8 * (i % 4)));
    }
}
