/* A format of `octet export` writes whatever model is accepted, or refuses it: fuzz_export_FORMAT.c defines FORMAT. */
#pragma once

#include "io/export/format.h"
#include "tests/fuzz/models.h"

const char *const fuzz_name = "export_" FORMAT;

/* choices: of the command line, a bit each. */
static void write(const oct_model *m, unsigned choices)
{
    const oct_export job = {.model = m,
                            .class_names = m->class_names,
                            .mean = m->mean,
                            .std = m->std,
                            .all_values = choices & 1,
                            .pixels = choices & 2,
                            .codes = choices & 4,
                            .signed_weights = choices & 8,
                            .no_bytes = choices & 16,
                            .name = "fuzz",
                            .version = "0"};
    oct_exported made = {0};
    const oct_export_format *format = oct_registry_find(&oct_export_format_table, FORMAT);
    const oct_status status = format->write_model(&job, &made);
    fuzz_said(status, FUZZ_BIT(OCT_OK) | FUZZ_BIT(OCT_PREPARE) | FUZZ_BIT(OCT_USAGE), NULL);
    FUZZ_REQUIRE(status != OCT_OK || made.size > 0, "an empty file");
    oct_exported_free(&made);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    oct_model m;
    oct_log_setup(OCT_LOG_ERROR, false);
    uint8_t *bytes = fuzz_checksummed(data, size);
    const char *path = fuzz_file("input.int8.h5", bytes, size + OCT_CHECKSUM_BYTES);
    fuzz_call call = fuzz_begin(size);
    const oct_status status = oct_model_load(&m, path, false);
    fuzz_said(status, FUZZ_BIT(OCT_DATA) | FUZZ_BIT(OCT_OK), path);
    if (status == OCT_OK) write(&m, size > 0 ? data[size / 2] ^ data[size - 1] : 0);
    oct_model_free(&m);
    fuzz_end(&call, 64, (size_t)256 << 20);
    oct_free(&bytes);
    return 0;
}
