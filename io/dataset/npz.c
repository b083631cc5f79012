/* NumPy's .npz: arrays in a zip archive. Those of numpy.savez are read a sample at a time, those of
 * numpy.savez_compressed whole. */
#include "core/base/mem.h"
#include "io/dataset/npy_file.h"
#include "io/dataset/zip_file.h"

#define FILES                                                                                      \
    "expected: data.path=DATA.npz with train_images, train_labels, test_images and test_labels, "  \
    "or a folder with train.npz and test.npz (or val.npz) of images and labels, or what "          \
    "data.images and data.labels name"

static oct_status open_member(oct_array *array, const char *path, const char *name)
{
    char *member = NULL, *shown = NULL;
    oct_zip *zip = NULL;
    oct_span span;
    oct_status status = OCT_OK;
    OCT_TRY_OUT(oct_format(&member, "%s.npy", name));
    OCT_TRY_OUT(oct_format(&shown, "%s/%s", path, name));
    OCT_TRY_OUT(oct_zip_open(&zip, path));
    OCT_TRY_OUT(oct_zip_member(zip, member, &span));
    status = oct_npy_take(array, &span, shown, NULL);
out:
    oct_zip_close(&zip);
    oct_free(&member);
    oct_free(&shown);
    return status;
}

static const oct_array_kind kind = {
    .extension = ".npz",
    .images = {"{split}_images", "images"},
    .labels = {"{split}_labels", "labels"},
    .open = open_member,
};

const oct_dataset_format oct_dataset_npz = {
    .name = "npz",
    .files = FILES,
    OCT_ARRAYS_MEMBERS,
    .arrays = &kind,
};
