/* A file of weights is opened by its format, its arrays are listed, and each is read into its place. */
#include "io/weights/weights.h"

#include "core/base/mem.h"
#include "core/base/text.h"
#include "io/file/array.h"
#include "io/file/file.h"
#include "io/weights/format.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { HEAD = 64, ARRAYS_MAX = 1 << 20, NAME_MAX_BYTES = 1024 };

static const oct_weight_format *const formats[] = {
#define OCT_WEIGHT_FORMAT(name) &oct_weight_format_##name,
#include "io/weights/format_list.def"
#undef OCT_WEIGHT_FORMAT
};

/* Reads the first bytes of a plain file and returns how many there are; 0: it cannot be read. */
static size_t read_head(const char *path, uint8_t head[HEAD])
{
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode)) return 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t size = fd >= 0 ? read(fd, head, HEAD) : 0;
    if (fd >= 0) close(fd);
    return size > 0 ? (size_t)size : 0;
}

static bool is_zip(const uint8_t *head, size_t size)
{
    return size >= 4 && memcmp(head, "PK\3\4", 4) == 0;
}

/* The format that a path or a file's first bytes show; NULL: none. */
static const oct_weight_format *format_of(const char *path, const uint8_t *head, size_t size)
{
    for (size_t i = 0; i < OCT_COUNT(formats); i++)
        if (oct_ends_with(path, formats[i]->extension)) return formats[i];
    for (size_t i = 0; i < OCT_COUNT(formats); i++)
        if (formats[i]->is && formats[i]->is(head, size)) return formats[i];
    return NULL;
}

bool oct_weights_is(const char *path)
{
    uint8_t head[HEAD];
    struct stat info;
    if (stat(path, &info) != 0 || S_ISDIR(info.st_mode)) return false;
    const size_t size = read_head(path, head);
    return format_of(path, head, size) != NULL || is_zip(head, size);
}

int64_t oct_weight_numel(const oct_weight *array)
{
    int64_t numel = 1;
    for (int i = 0; i < array->ndim; i++) {
        if (array->dim[i] < 0 || __builtin_mul_overflow(numel, array->dim[i], &numel)) return -1;
        if (numel > INT64_MAX / 8) return -1;
    }
    return numel;
}

const char *oct_weight_shape_text(int ndim, const int64_t *dim, char text[OCT_WEIGHT_SHAPE_BYTES])
{
    size_t used = 1;
    memcpy(text, "(", 2);
    for (int i = 0; i < ndim && used < OCT_WEIGHT_SHAPE_BYTES; i++)
        used += (size_t)snprintf(text + used, OCT_WEIGHT_SHAPE_BYTES - used, "%s%lld",
                                 i ? ", " : "", (long long)dim[i]);
    if (used < OCT_WEIGHT_SHAPE_BYTES)
        snprintf(text + used, OCT_WEIGHT_SHAPE_BYTES - used, "%s)", ndim == 1 ? "," : "");
    return text;
}

oct_status oct_weight_file_add(oct_weight_file *file, const char *name, const oct_weight *like)
{
    oct_weights *w = file->weights;
    const size_t length = strlen(name);
    const int64_t numel = oct_weight_numel(like);
    OCT_CHECK(length > 0 && length < NAME_MAX_BYTES, OCT_DATA,
              "%s: an array has a name of %zu letters; 1 to %d are read", file->path, length,
              NAME_MAX_BYTES - 1);
    OCT_CHECK(w->count < ARRAYS_MAX, OCT_DATA, "%s: holds more than %d arrays", file->path,
              ARRAYS_MAX);
    OCT_CHECK(numel >= 0 && w->num_values <= INT64_MAX / 8 - numel, OCT_DATA,
              "%s: its array %s has more numbers than can be counted", file->path,
              oct_show(name, length).text);
    OCT_TRY(oct_grow(&w->arrays, &file->cap_arrays, (size_t)w->count + 1, sizeof *w->arrays));
    OCT_TRY(oct_grow(&w->names, &file->cap_names, (size_t)w->name_bytes + length + 1, 1));
    oct_weight *array = &w->arrays[w->count++];
    *array = *like;
    array->name_begin = w->name_bytes;
    array->data_begin = w->num_values;
    memcpy(w->names + w->name_bytes, name, length + 1);
    w->name_bytes += (int64_t)length + 1;
    w->num_values += numel;
    return OCT_OK;
}

/* Reads an array, whose numbers must be finite. */
static oct_status read_array(oct_weight_file *file, const oct_weight_format *format, int64_t i)
{
    const oct_weights *w = file->weights;
    const oct_weight *array = &w->arrays[i];
    const char *name = oct_weight_name(w, array);
    const int64_t numel = oct_weight_numel(array);
    float *to = w->values + array->data_begin;
    OCT_TRY(format->read(file, array, to));
    for (int64_t k = 0; k < numel; k++)
        OCT_CHECK(isfinite(to[k]), OCT_DATA,
                  "%s: element %lld of %s is not a finite float; such weights cannot be trained",
                  file->path, (long long)k, oct_show(name, strlen(name)).text);
    return OCT_OK;
}

oct_status oct_weights_read(oct_weights *weights, const char *path)
{
    uint8_t head[HEAD];
    oct_weight_file file = {.path = path, .weights = weights};
    *weights = (oct_weights){0};
    const size_t size = read_head(path, head);
    const oct_weight_format *format = format_of(path, head, size);
    const bool pickled = is_zip(head, size) || (size >= 2 && memcmp(head, "\x80\x02", 2) == 0);
    OCT_CHECK(format || !pickled, OCT_DATA,
              "%s: looks like a file of torch.save, which only Python can read; write "
              "the weights with safetensors.torch.save_file(model.state_dict(), "
              "\"net.safetensors\")",
              path);
    OCT_CHECK(format, OCT_DATA, "%s: is no safetensors, .npz or .onnx file", path);
    OCT_TRY(oct_strdup(&weights->path, path));
    oct_status status = OCT_OK;
    OCT_TRY_OUT(format->open(&file));
    OCT_CHECK_OUT(weights->count > 0, OCT_DATA, "%s: holds no arrays of floating-point numbers%s",
                  path, weights->others ? ", only others" : "");
    OCT_TRY_OUT(oct_alloc(&weights->values, (size_t)weights->num_values, sizeof(float)));
    for (int64_t i = 0; i < weights->count; i++)
        OCT_TRY_OUT(read_array(&file, format, i));
out:
    format->close(&file);
    /* Values may be in files beside this one. */
    const int64_t values = format->external_values ? weights->num_values : 0;
    size_t bytes;
    if (status == OCT_OK)
        status = oct_file_sha256_with(path, weights->values, (size_t)values * sizeof(float), &bytes,
                                      weights->digest);
    if (status != OCT_OK) oct_weights_free(weights);
    return status;
}

void oct_weights_free(oct_weights *weights)
{
    OCT_FREE_ALL(&weights->path, &weights->arrays, &weights->names, &weights->values);
    *weights = (oct_weights){0};
}
