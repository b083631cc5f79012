/* Samples in memory: what the small formats read whole, and what programs make. */
#include "core/base/mem.h"
#include "io/dataset/dataset.h"

#include <string.h>

static size_t sample_bytes(const oct_dataset *data)
{
    return (size_t)(data->read_h * data->read_w * data->read_c) * oct_dtype_bytes(data->dtype);
}

oct_status oct_memory_read(const oct_dataset *data, int64_t index, oct_image *image, oct_image *map)
{
    const size_t bytes = sample_bytes(data);
    (void)map;
    OCT_TRY(oct_image_resize(image, data->dtype, data->read_h, data->read_w, data->read_c));
    memcpy(image->data, (const uint8_t *)data->store + (size_t)index * bytes, bytes);
    return OCT_OK;
}

void oct_memory_close(oct_dataset *data)
{
    oct_free(&data->store);
}

void oct_memory_digest(const oct_dataset *data, oct_sha256_state *state)
{
    oct_sha256_add(state, data->store, (size_t)data->count * sample_bytes(data));
}

static const oct_dataset_format of_programs = {
    .name = "memory",
    .files = "nothing: the samples are a program's own",
    .read = oct_memory_read,
    .close = oct_memory_close,
    .digest = oct_memory_digest,
};

oct_status oct_memory_make(oct_dataset *data, int64_t count, const oct_image *sample,
                           int64_t classes)
{
    *data = (oct_dataset){.format = &of_programs,
                          .count = count,
                          .h = sample->h,
                          .w = sample->w,
                          .c = sample->c,
                          .read_h = sample->h,
                          .read_w = sample->w,
                          .read_c = sample->c,
                          .dtype = sample->dtype,
                          .classes = classes,
                          .rows = 1};
    OCT_TRY(oct_alloc(&data->store, (size_t)count, sample_bytes(data)));
    return oct_alloc(&data->labels, (size_t)count, sizeof *data->labels);
}
