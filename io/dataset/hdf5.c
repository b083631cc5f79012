/* Arrays in HDF5 files, as h5py writes them. */
#include "io/dataset/h5_file.h"

#define FILES                                                                                      \
    "expected: data.path=DATA.h5 with train/images, train/labels, test/images and test/labels, "   \
    "or a folder with train.h5 and test.h5 (or val.h5) of images and labels, or what "             \
    "data.images and data.labels name"

static const oct_array_kind kind = {
    .extension = ".h5",
    .images = {"{split}/images", "images"},
    .labels = {"{split}/labels", "labels"},
    .open = oct_h5_array_open,
};

const oct_dataset_format oct_dataset_hdf5 = {
    .name = "hdf5",
    .files = FILES,
    OCT_ARRAYS_MEMBERS,
    .arrays = &kind,
};
