/* Image data sets held in memory as bytes, NHWC. Files are untrusted: sizes, counts, magic numbers
 * and labels are checked against the real file size before anything is allocated, and every message
 * names the file. Adding a format: a file in this folder and a line in dataset_list.def. */
#pragma once

#include "core/base/registry.h"

typedef enum oct_split { OCT_TRAIN, OCT_TEST } oct_split;

/* An int8 model holds at most as many numbers in its output. */
enum { OCT_CLASSES_MAX = 65536 };

typedef struct oct_dataset {
    int64_t count, h, w, c;
    int classes;
    uint8_t *images; /* count x h x w x c, owned */
    int32_t *labels; /* count, each in [0, classes); owned */
    uint8_t
        digest[32]; /* SHA-256 over images then labels: bytes, or 32 bits each above 256 classes */
} oct_dataset;

typedef struct oct_dataset_format oct_dataset_format;
struct oct_dataset_format {
    const char *name;          /* "idx", "cifar10" */
    const char *default_path;  /* or NULL: the recipe must say data.path */
    const char *files;         /* for help: what the folder holds */
    const char *label_file[2]; /* of each split, for messages */
    int classes;               /* fixed by the format; 0: counted */
    /* Fills all but classes and digest; labels as they are in the files. */
    oct_status (*load)(const oct_dataset_format *self, oct_dataset *data, const char *folder,
                       oct_split split);
    /* Reads only the labels of a split, for formats that count; NULL when the folder has none. */
    oct_status (*read_labels)(int32_t **labels, int64_t *count, const char *folder,
                              oct_split split);
    /* What oct_cifar_load reads: each split's files, NULL at the end, and the bytes before an image, the last
     * of which is the label. */
    const char *const *batches[2];
    int label_bytes;
};

#define OCT_DATASET(id, file) extern const oct_dataset_format oct_dataset_##file;
#include "io/dataset/dataset_list.def"
#undef OCT_DATASET
typedef enum oct_dataset_id {
#define OCT_DATASET(id, file) OCT_DATASET_##id,
#include "io/dataset/dataset_list.def"
#undef OCT_DATASET
} oct_dataset_id;
extern const oct_registry oct_dataset_id_table;

/* What is to be loaded. */
typedef struct oct_dataset_source {
    const oct_dataset_format *format;
    const char *folder;  /* NULL or empty: the format's own */
    int64_t classes;     /* 0: as many as the format fixes, or as the labels of both splits need */
    int64_t first_label; /* the label in the files that becomes class 0 */
    int64_t limit;       /* above 0: only the first so many samples */
} oct_dataset_source;

/* Loads a split; on failure *data is empty. */
oct_status oct_dataset_load(oct_dataset *data, const oct_dataset_source *source,
                            oct_split split) OCT_NODISCARD;
void oct_dataset_free(oct_dataset *data);
