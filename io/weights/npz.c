/* NumPy's .npz as a file of weights: numpy.savez("net.npz", **arrays). */
#include "core/base/mem.h"
#include "core/base/text.h"
#include "io/dataset/npy_file.h"
#include "io/weights/format.h"

#include <string.h>

static const char ending[] = ".npy";

/* Opens the array of a member of the archive; *no_numbers: it holds elements of another type than numbers. */
static oct_status open_member(const oct_weight_file *file, const char *member, oct_array *array,
                              bool *no_numbers)
{
    oct_span span;
    OCT_OWNED(oct_free) char *shown = NULL;
    OCT_TRY(oct_format(&shown, "%s: %s", file->path, oct_show(member, strlen(member)).text));
    OCT_TRY(oct_zip_member(file->state, member, &span));
    return oct_npy_take(array, &span, shown, no_numbers);
}

/* Adds the array of a member to the weights if it holds floats; its name without ".npy" is `length` long. */
static oct_status add_array(oct_weight_file *file, const char *member, size_t length)
{
    oct_array array;
    oct_weight like = {0};
    OCT_OWNED(oct_free) char *name = NULL;
    bool no_numbers = false;
    OCT_TRY(open_member(file, member, &array, &no_numbers));
    const bool is_weight = !no_numbers && array.kind == 'f';
    like.ndim = array.shape.ndim;
    memcpy(like.dim, array.shape.dim, sizeof array.shape.dim);
    oct_array_close(&array);
    if (!is_weight) {
        file->weights->others++;
        return OCT_OK;
    }
    OCT_TRY(oct_format(&name, "%.*s", (int)length, member));
    return oct_weight_file_add(file, name, &like);
}

/* Opens the archive, and lists its members that are float arrays. */
static oct_status open_archive(oct_weight_file *file)
{
    const size_t ending_length = sizeof ending - 1;
    oct_zip *zip = NULL;
    const char *member;
    OCT_TRY(oct_zip_open(&zip, file->path));
    file->state = zip;
    for (int64_t i = 0; (member = oct_zip_name(zip, i)); i++) {
        const size_t length = strlen(member);
        if (length > ending_length && oct_ends_with(member, ending))
            OCT_TRY(add_array(file, member, length - ending_length));
    }
    return OCT_OK;
}

/* Reads an array as floats; the archive may have changed since it was listed. */
static oct_status read_array(oct_weight_file *file, const oct_weight *weight, float *to)
{
    OCT_OWNED(oct_array_close) oct_array array = {.span = OCT_SPAN_NONE};
    OCT_OWNED(oct_free) char *member = NULL;
    bool no_numbers = false;
    OCT_TRY(oct_format(&member, "%s%s", oct_weight_name(file->weights, weight), ending));
    OCT_TRY(open_member(file, member, &array, &no_numbers));
    OCT_CHECK(!no_numbers && array.kind == 'f' &&
                  oct_shape_numel(&array.shape) == oct_weight_numel(weight),
              OCT_DATA, "%s: has changed while it was read", file->path);
    return oct_array_read_samples(&array, 0, array.shape.ndim > 0 ? array.shape.dim[0] : 1, to);
}

static void close_archive(oct_weight_file *file)
{
    oct_zip *zip = file->state;
    oct_zip_close(&zip);
}

const oct_weight_format oct_weight_format_npz = {
    .name = "npz",
    .extension = ".npz",
    .open = open_archive,
    .read = read_array,
    .close = close_archive,
};
