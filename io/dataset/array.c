/* Arrays in files: their bytes. */
#include "io/dataset/array.h"

#include "core/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

oct_status oct_span_open(oct_span *span, const char *path)
{
    struct stat info;
    *span = OCT_SPAN_NONE;
    span->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    OCT_CHECK(span->fd >= 0, errno == EACCES || errno == EMFILE ? OCT_RESOURCE : OCT_DATA,
              "%s: cannot be read: %s", path, strerror(errno));
    oct_status status = fstat(span->fd, &info) == 0
                            ? oct_file_check_regular(path, &info)
                            : oct_fail(OCT_DATA, "%s: cannot be read: %s", path, strerror(errno));
    span->size = info.st_size;
    if (status != OCT_OK) oct_span_close(span);
    return status;
}

void oct_span_close(oct_span *span)
{
    if (span->fd >= 0) close(span->fd);
    oct_free(&span->memory);
    *span = OCT_SPAN_NONE;
}

static oct_status read_file(const oct_span *span, int64_t at, char *to, size_t bytes,
                            const char *name)
{
    while (bytes > 0) {
        const ssize_t got = pread(span->fd, to, bytes, span->begin + at);
        if (got < 0 && errno == EINTR) continue;
        OCT_CHECK(got > 0, OCT_DATA, "%s: cannot be read: %s", name,
                  got < 0 ? strerror(errno) : "it has become shorter");
        to += got;
        at += got;
        bytes -= (size_t)got;
    }
    return OCT_OK;
}

oct_status oct_span_read(const oct_span *span, int64_t at, void *to, size_t bytes, const char *name)
{
    OCT_CHECK(at >= 0 && at <= span->size && bytes <= (size_t)(span->size - at), OCT_DATA,
              "%s: is damaged or cut short: %zu bytes at %" PRId64 " are beyond its end", name,
              bytes, at);
    if (span->fd >= 0) return read_file(span, at, to, bytes, name);
    if (bytes > 0) memcpy(to, span->memory + span->begin + at, bytes);
    return OCT_OK;
}

oct_status oct_array_check_size(const oct_array *array)
{
    char shape[96];
    const int64_t numel = oct_shape_numel(&array->shape);
    OCT_CHECK(numel >= 0 && numel <= INT64_MAX / 8 &&
                  numel * (int64_t)array->bytes == array->span.size,
              OCT_DATA,
              "%s: is damaged or cut short: %s numbers of %zu bytes are not the %" PRId64
              " bytes that are there",
              array->name, oct_shape_text(&array->shape, shape), array->bytes, array->span.size);
    return OCT_OK;
}

static void turn_bytes(uint8_t *at, int64_t numel, size_t bytes)
{
    for (int64_t i = 0; i < numel; i++, at += bytes)
        for (size_t b = 0; b < bytes / 2; b++) {
            const uint8_t low = at[b];
            at[b] = at[bytes - 1 - b];
            at[bytes - 1 - b] = low;
        }
}

oct_status oct_array_read(const oct_array *array, int64_t first, int64_t count, void *to)
{
    const oct_shape *s = &array->shape;
    int64_t row = 1;
    for (int i = 1; i < s->ndim; i++)
        row *= s->dim[i];
    const int64_t sample = row * (int64_t)array->bytes;
    if (array->read)
        OCT_TRY(array->read(array, first, count, to));
    else
        OCT_TRY(
            oct_span_read(&array->span, first * sample, to, (size_t)(count * sample), array->name));
    if (array->big) turn_bytes(to, count * row, array->bytes);
    return OCT_OK;
}

void oct_array_close(oct_array *array)
{
    if (array->drop) array->drop(array);
    if (array->name) oct_span_close(&array->span); /* one without a name was never opened */
    oct_free(&array->name);
    *array = (oct_array){.span = OCT_SPAN_NONE};
}

static oct_status take_type(oct_image *sample, const oct_array *a)
{
    const bool byte = a->bytes == 1 && a->kind != 'f';
    OCT_CHECK(byte || (a->kind == 'f' && a->bytes == 4), OCT_DATA,
              "%s: holds numbers of type %c%zu; samples are u1, i1 or f4; convert them, such as "
              "with numpy: array.astype('float32')",
              a->name, a->kind, a->bytes);
    sample->dtype = !byte ? OCT_F32 : a->kind == 'u' ? OCT_U8 : OCT_S8;
    return OCT_OK;
}

/* (N), (N, K), (N, H, W) or (N, H, W, C). */
static oct_status take_shape(oct_image *sample, const oct_array *a)
{
    char text[96];
    const int64_t *d = a->shape.dim;
    const int ndim = a->shape.ndim;
    sample->h = ndim > 2 ? d[1] : 1;
    sample->w = ndim > 2 ? d[2] : 1;
    sample->c = ndim == 2 ? d[1] : ndim == 4 ? d[3] : 1;
    const int64_t bytes = OCT_IMAGE_BYTES_MAX / 4;
    const bool sized = sample->h > 0 && sample->w > 0 && sample->c > 0 &&
                       sample->h <= OCT_IMAGE_SIDE_MAX && sample->w <= OCT_IMAGE_SIDE_MAX &&
                       sample->c <= bytes / (sample->h * sample->w);
    OCT_CHECK(sized && d[0] > 0, OCT_DATA,
              "%s: has the shape %s; samples are (N), (N, K), (N, H, W) or (N, H, W, C), each side "
              "from 1 to %d",
              a->name, oct_shape_text(&a->shape, text), OCT_IMAGE_SIDE_MAX);
    return OCT_OK;
}

oct_status oct_array_sample(const oct_array *array, oct_image *sample)
{
    *sample = (oct_image){0};
    OCT_TRY(take_type(sample, array));
    return take_shape(sample, array);
}
