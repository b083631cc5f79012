/* Data sets made of arrays: images and labels. A format brings what finds an array in its kind of file; the rest is
 * here. */
#pragma once

#include "io/dataset/dataset.h"
#include "io/file/array.h"

/* Finds the type and size of one sample of (N), (N, K), (N, H, W) or (N, H, W, C) numbers: those of 8 bits are kept,
 * all others become floats. OCT_DATA when it has another shape. */
oct_status oct_array_sample(const oct_array *array, oct_image *sample);

/* How a format finds arrays. `{split}` in a name stands for train or test. */
struct oct_array_kind {
    const char *extension; /* ".npz" */
    bool one_each;         /* a file holds one array and is named after it */
    /* Of the arrays, where the recipe names none: in a file for all, and in a file for each split. */
    const char *images[2], *labels[2];
    oct_status (*open)(oct_array *array, const char *path, const char *name);
};

/* Opens a split of arrays. This and those below are members of oct_dataset_format. */
oct_status oct_arrays_open(oct_dataset *data, const oct_dataset_source *source, oct_split split);
oct_status oct_arrays_read(const oct_dataset *data, int64_t index, oct_image *image,
                           oct_image *map);
void oct_arrays_close(oct_dataset *data);
void oct_arrays_digest(const oct_dataset *data, oct_sha256_state *state);

/* What all formats of arrays have in common. */
#define OCT_ARRAYS_MEMBERS                                                                         \
    .label_file = {"the training labels", "the test labels"}, .takes_file = true,                  \
    .reads_files = true,                                                                           \
    .goals = 1U << OCT_GOAL_CLASS | 1U << OCT_GOAL_VALUES | 1U << OCT_GOAL_MAP,                    \
    .open = oct_arrays_open, .read = oct_arrays_read, .close = oct_arrays_close,                   \
    .digest = oct_arrays_digest
