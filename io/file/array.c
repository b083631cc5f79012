/* Arrays in files: their bytes. */
#include "io/file/array.h"

#include "core/base/half.h"
#include "core/base/mem.h"
#include "io/file/file.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

oct_status oct_span_open(oct_span *span, const char *path)
{
    int fd;
    size_t size;
    *span = OCT_SPAN_NONE;
    OCT_TRY(oct_file_open(path, SIZE_MAX / 2, &fd, &size));
    span->fd = fd;
    span->size = (int64_t)size;
    return OCT_OK;
}

void oct_span_close(oct_span *span)
{
    if (span->fd >= 0) close(span->fd);
    oct_free(&span->memory);
    *span = OCT_SPAN_NONE;
}

oct_status oct_span_read(const oct_span *span, int64_t at, void *to, size_t bytes, const char *name)
{
    OCT_CHECK(at >= 0 && at <= span->size && bytes <= (size_t)(span->size - at), OCT_DATA,
              "%s: is damaged or cut short: %zu bytes at %" PRId64 " are beyond its end", name,
              bytes, at);
    if (span->fd < 0 && bytes > 0) memcpy(to, span->memory + span->begin + at, bytes);
    if (span->fd >= 0 &&
        oct_file_read_at(span->fd, (uint64_t)(span->begin + at), to, bytes) != OCT_OK)
        return oct_fail_prefix("%s", name);
    return OCT_OK;
}

bool oct_array_whole(const oct_array *array, const uint8_t *element, int64_t *value)
{
    uint64_t bits = 0;
    OCT_ASSERT(array->bytes >= 1 && array->bytes <= sizeof bits);
    /* memcpy of a number of bytes that varies would be a call for each element. */
    for (size_t b = 0; b < array->bytes; b++)
        bits |= (uint64_t)element[b] << 8 * b;
    const unsigned shift = 64 - 8 * (unsigned)array->bytes;
    if (array->kind == 'f' || (array->kind == 'u' && bits > INT64_MAX)) return false;
    *value = array->kind == 'u' ? (int64_t)bits : (int64_t)(bits << shift) >> shift;
    return true;
}

double oct_array_real(const oct_array *array, const uint8_t *element)
{
    uint16_t half;
    float narrow;
    double wide;
    int64_t number = 0;
    if (array->kind != 'f')
        return oct_array_whole(array, element, &number) ? (double)number : (double)INFINITY;
    if (array->bytes == sizeof half) {
        memcpy(&half, element, sizeof half);
        return (double)oct_half_value(half);
    }
    if (array->bytes == sizeof narrow) {
        memcpy(&narrow, element, sizeof narrow);
        return (double)narrow;
    }
    OCT_ASSERT(array->bytes == sizeof wide);
    memcpy(&wide, element, sizeof wide);
    return wide;
}

int64_t oct_array_row(const oct_array *array)
{
    int64_t row = 1;
    for (int i = 1; i < array->shape.ndim; i++)
        row *= array->shape.dim[i];
    return row;
}

oct_status oct_array_read(const oct_array *array, int64_t first, int64_t count, void *to)
{
    const int64_t row = oct_array_row(array), sample = row * (int64_t)array->bytes;
    if (array->read)
        OCT_TRY(array->read(array, first, count, to));
    else
        OCT_TRY(
            oct_span_read(&array->span, first * sample, to, (size_t)(count * sample), array->name));
    if (array->big) { /* swaps bytes to little-endian order */
        uint8_t *at = to;
        for (int64_t i = 0; i < count * row; i++, at += array->bytes)
            for (size_t b = 0; b < array->bytes / 2; b++) {
                const uint8_t low = at[b];
                at[b] = at[array->bytes - 1 - b];
                at[array->bytes - 1 - b] = low;
            }
    }
    return OCT_OK;
}

oct_status oct_array_read_samples(const oct_array *array, int64_t first, int64_t count, void *to)
{
    const int64_t numel = count * oct_array_row(array);
    OCT_OWNED(oct_free) uint8_t *raw = NULL;
    float *x = to;
    /* Bytes are pixels, and float is the type of samples; other numbers become floats. */
    if (array->bytes == 1 || (array->kind == 'f' && array->bytes == sizeof(float)))
        return oct_array_read(array, first, count, to);
    OCT_TRY(oct_alloc(&raw, (size_t)numel, array->bytes));
    OCT_TRY(oct_array_read(array, first, count, raw));
    for (int64_t i = 0; i < numel; i++)
        x[i] = (float)oct_array_real(array, raw + (size_t)i * array->bytes);
    return OCT_OK;
}

void oct_array_close(oct_array *array)
{
    if (array->drop) array->drop(array);
    if (array->name) oct_span_close(&array->span); /* one without a name was never opened */
    oct_free(&array->name);
    *array = (oct_array){.span = OCT_SPAN_NONE};
}
