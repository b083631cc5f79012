/* NumPy's .npz as a file of weights: numpy.savez("net.npz", **arrays). */
#include "core/base/mem.h"
#include "core/base/text.h"
#include "io/dataset/npy_file.h"
#include "io/dataset/zip_file.h"
#include "io/weights/format.h"

#include <string.h>

static const char tail[] = ".npy";

static oct_status open_member(const oct_weight_file *file, const char *member, oct_array *array)
{
    oct_span span;
    char *shown = NULL;
    OCT_TRY(oct_format(&shown, "%s: %s", file->path, oct_show(member, strlen(member)).text));
    oct_status status = oct_zip_member(&span, file->path, member);
    if (status == OCT_OK) status = oct_npy_take(array, &span, shown);
    oct_free(&shown);
    return status;
}

/* PyTorch counts batches in an array without dimensions, which nothing here needs. */
static bool is_counter(const char *name)
{
    static const char counter[] = "num_batches_tracked";
    const size_t length = strlen(name), own = sizeof counter - 1;
    return length >= own && strcmp(name + length - own, counter) == 0;
}

/* Lists the array of a member, whose name has lost its tail. */
static oct_status add_array(oct_weight_file *file, const char *name, const char *member)
{
    oct_array array;
    oct_weight like = {0};
    if (is_counter(name)) {
        file->weights->others++;
        return OCT_OK;
    }
    OCT_TRY(open_member(file, member, &array));
    const bool is_float = array.kind == 'f';
    like.ndim = array.shape.ndim;
    memcpy(like.dim, array.shape.dim, sizeof array.shape.dim);
    oct_array_close(&array);
    if (is_float) return oct_weight_file_add(file, name, &like);
    file->weights->others++;
    return OCT_OK;
}

static oct_status visit(void *user, const char *member, size_t length)
{
    oct_weight_file *file = user;
    const size_t end = sizeof tail - 1;
    char *whole = NULL, *name = NULL;
    oct_status status = OCT_OK;
    if (length <= end || memcmp(member + length - end, tail, end) != 0) return OCT_OK;
    OCT_CHECK(!memchr(member, '\0', length), OCT_DATA, "%s: is damaged: a name holds a zero byte",
              file->path);
    OCT_TRY_OUT(oct_format(&whole, "%.*s", (int)length, member));
    OCT_TRY_OUT(oct_format(&name, "%.*s", (int)(length - end), member));
    status = add_array(file, name, whole);
out:
    oct_free(&whole);
    oct_free(&name);
    return status;
}

static oct_status open_archive(oct_weight_file *file)
{
    return oct_zip_names(file->path, visit, file);
}

static oct_status read_array(oct_weight_file *file, const oct_weight *weight, float *to)
{
    const int64_t numel = oct_weight_numel(weight);
    oct_array array;
    uint8_t *bytes = NULL;
    char *member = NULL;
    OCT_TRY(oct_format(&member, "%s%s", oct_weight_name(file->weights, weight), tail));
    oct_status status = open_member(file, member, &array);
    oct_free(&member);
    OCT_TRY(status);
    OCT_CHECK_OUT(array.kind == 'f' && oct_shape_numel(&array.shape) == numel, OCT_DATA,
                  "%s: has changed while it was read", file->path);
    OCT_TRY_OUT(oct_alloc(&bytes, (size_t)numel, array.bytes));
    OCT_TRY_OUT(oct_array_read(&array, 0, array.shape.dim[0], bytes));
    oct_weight_floats(array.bytes == 8   ? OCT_WEIGHT_F64
                      : array.bytes == 4 ? OCT_WEIGHT_F32
                                         : OCT_WEIGHT_F16,
                      bytes, numel, to);
out:
    oct_free(&bytes);
    oct_array_close(&array);
    return status;
}

static void close_archive(oct_weight_file *file)
{
    (void)file;
}

const oct_weight_format oct_weight_format_npz = {
    .name = "npz",
    .extension = ".npz",
    .open = open_archive,
    .read = read_array,
    .close = close_archive,
};
