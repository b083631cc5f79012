/* NumPy's .npy files, one for each array. */
#include "io/dataset/npy_file.h"

#define FILES                                                                                      \
    "expected: train_images.npy, train_labels.npy, test_images.npy and test_labels.npy, or what "  \
    "data.images and data.labels name"

static oct_status open_file(oct_array *array, const char *path, const char *name)
{
    oct_span span;
    (void)name;
    OCT_TRY(oct_span_open(&span, path));
    return oct_npy_take(array, &span, path, NULL);
}

static const oct_array_kind kind = {
    .extension = ".npy",
    .one_each = true,
    .images = {"{split}_images", "{split}_images"},
    .labels = {"{split}_labels", "{split}_labels"},
    .open = open_file,
};

const oct_dataset_format oct_dataset_npy = {
    .name = "npy",
    .files = FILES,
    OCT_ARRAYS_MEMBERS,
    .arrays = &kind,
};
