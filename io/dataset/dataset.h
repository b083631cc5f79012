/* Image data sets held in memory as bytes, NHWC. Files are untrusted: sizes, counts, magic numbers
 * and labels are checked against the real file size before anything is allocated, and every message
 * names the file. Adding a format: a file in this folder and a line in dataset_list.def. */
#pragma once

#include "core/base/status.h"

#include <stdint.h>

typedef enum oct_split { OCT_TRAIN, OCT_TEST } oct_split;

typedef struct oct_dataset {
    int64_t count, h, w, c;
    int classes;
    uint8_t *images;    /* count x h x w x c, owned */
    uint8_t *labels;    /* count, each < classes; owned */
    uint8_t digest[32]; /* SHA-256 over images then labels */
} oct_dataset;

typedef struct oct_dataset_format {
    const char *name;         /* "idx", "cifar10" */
    const char *default_path; /* or NULL: the recipe must say data.path */
    const char *files;        /* for help: what the folder holds */
    oct_status (*load)(oct_dataset *data, const char *folder, oct_split split);
} oct_dataset_format;

#define OCT_DATASET(id, file) extern const oct_dataset_format oct_dataset_##file;
#include "io/dataset/dataset_list.def"
#undef OCT_DATASET

const oct_dataset_format *oct_dataset_find(const char *name);
size_t oct_dataset_formats(void);
const oct_dataset_format *oct_dataset_at(size_t i);

/* limit > 0 keeps the first `limit` samples. On failure *data is empty. */
oct_status oct_dataset_load(oct_dataset *data, const char *format, const char *folder,
                            oct_split split, int64_t limit) OCT_NODISCARD;
void oct_dataset_free(oct_dataset *data);
