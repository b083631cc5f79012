/* The format flat: an int8 model as one file that programs map into memory (io/model/model_flat.c). */
#include "io/export/format.h"

static oct_status write_model(const oct_export *job, oct_exported *out)
{
    oct_fail_clear();
    return oct_model_write_flat(job->model, job->tries ? NULL : &out->bytes, &out->size);
}

const oct_export_format oct_export_format_flat = {
    .name = "flat",
    .help = "one file that a C program maps into memory, without HDF5",
    .suffix = ".flat",
    .write_model = write_model,
};
