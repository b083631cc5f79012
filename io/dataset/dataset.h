/* Data sets: an index in memory, and samples that are read one at a time, whenever they are needed. Files
 * are untrusted: sizes, counts, magic numbers and labels are checked against the real file size before
 * anything is allocated, and every message names the file. Adding a format: a file in this folder and a
 * line in dataset_list.def. */
#pragma once

#include "core/base/collective.h"
#include "core/base/registry.h"
#include "core/graph/trace.h"
#include "io/file/file.h"
#include "io/image/image.h"

typedef enum oct_split { OCT_TRAIN, OCT_TEST } oct_split;

/* An int8 model holds at most as many numbers in a row of its output. */
enum { OCT_CLASSES_MAX = 65536 };

/* What a sample's output should be, and the words of data.goal. */
#define OCT_GOAL_LIST(X)                                                                           \
    X(OCT_GOAL_CLASS, "class")   /* a class number for each sample */                              \
    X(OCT_GOAL_VALUES, "values") /* numbers: probabilities, several labels, quantities */          \
    X(OCT_GOAL_MAP, "map")       /* a class number for each pixel; negative: ignored */            \
    X(OCT_GOAL_INPUT, "input")   /* the input itself, h x w x c numbers */                         \
    X(OCT_GOAL_NONE, "none")     /* unknown: samples to calibrate with, not to learn from */
typedef enum oct_goal_kind { OCT_GOAL_LIST(OCT_WORD_ID) } oct_goal_kind;
extern const oct_registry oct_goal_kind_table;
/* Names outputs with their number: "10 classes", "12 values"; returns text. */
const char *oct_goal_outputs(oct_goal_kind goal, int64_t count, char text[48]);

typedef struct oct_dataset_format oct_dataset_format;
typedef struct oct_array_kind oct_array_kind;

/* A split of a data set. Who reads it may shorten a copy (count) that lives no longer. */
typedef struct oct_dataset {
    const oct_dataset_format *format;
    int64_t count;
    int64_t h, w, c;                /* of every sample as the model gets it, after the transforms */
    int64_t read_h, read_w, read_c; /* as it is read; h and w 0: they differ */
    oct_dtype dtype;                /* as it is read: OCT_U8, OCT_S8 or OCT_F32 */
    oct_goal_kind goal;
    /* Numbers in a row of outputs: classes, or values; of OCT_GOAL_NONE as the source says. */
    int64_t classes;
    int64_t rows; /* of outputs a sample: 1, or the h x w pixels of a map */
    /* OCT_GOAL_CLASS: count, each in [0, classes). OCT_GOAL_INPUT, where there are any: as in the files, what is unlike
     * the training data has one above 0. Owned. */
    int32_t *labels;
    float *values;      /* OCT_GOAL_VALUES: count x classes; owned */
    char **class_names; /* `classes` of them in one block, or NULL; owned */
    /* SHA-256 of what the format adds for its samples, then of the labels: bytes, or 32 bits each above 256 classes; or of
     * the values. */
    uint8_t digest[32];
    void *store; /* the format's own: its index, or the samples; owned */
    /* Arrays of a program's own (oct_dataset_memory), all borrowed: a network's inputs, each of a shape of its own, whose
     * numbers are c together where there are several. labels: count x rows; values: count x rows x classes. */
    int num_inputs;                    /* 0: a sample is one image of h x w x c */
    oct_shape input[OCT_MODEL_INPUTS]; /* of one sample: dim[0] is 1 */
    const float *array[OCT_MODEL_INPUTS];
} oct_dataset;

/* What is to be opened. Formats pick what they know. */
typedef struct oct_dataset_source {
    const oct_dataset_format *format;
    const char *folder;  /* NULL or empty: the format's own */
    int64_t classes;     /* 0: as many as the format fixes, or as the labels of both splits need */
    int64_t first_label; /* the label in the files that becomes class 0 */
    int64_t channels;    /* of decoded pictures: 1, 3 or 4 */
    const char *images;  /* names of arrays; NULL or empty: the format's own */
    const char *labels;
    int64_t limit;               /* above 0: only this many samples, from the first on */
    oct_goal_kind goal;          /* that is wanted */
    uint64_t seed;               /* of the run, for a split that the files do not have */
    double split;                /* share of the samples that are its test part; 1: all */
    const oct_collective *group; /* the ranks that open it together; NULL: this process alone */
    bool
        labels_only; /* oct_dataset_open sets it for the other split: see oct_dataset_format.open */
} oct_dataset_source;

struct oct_dataset_format {
    const char *name;          /* "idx", "cifar10" */
    const char *default_path;  /* or NULL: the recipe must say data.path */
    const char *files;         /* for help: what the folder holds */
    const char *label_file[2]; /* of each split, for messages */
    int64_t classes;           /* fixed by the format; 0: counted, or set by open */
    bool takes_file;           /* data.path may name a file instead of a folder */
    bool reads_files;          /* read opens or decodes something: worth doing ahead of its use */
    unsigned goals;            /* that it can give: 1u << OCT_GOAL_...; 0: classes alone */
    /* Opens a split: the index only, nothing is decoded. Fills count, h, w, c, dtype, store and, by the
     * goal, labels as they are in the files or values with their classes; class names, and with them
     * classes, where it knows them. source->folder is the folder that is meant. What it leaves half-filled
     * when it fails, close releases. source->labels_only: fills count and labels alone, none where the folder has
     * none, so that the classes of both splits are counted. */
    oct_status (*open)(oct_dataset *data, const oct_dataset_source *source, oct_split split);
    /* Reads a sample at its natural size: the image and, for OCT_GOAL_MAP, the class numbers of its pixels
     * (OCT_S32, h x w x 1). Several threads call it at once. OCT_DATA: this sample is damaged. */
    oct_status (*read)(const oct_dataset *data, int64_t index, oct_image *image, oct_image *map);
    /* The file of a sample, relative to the folder; NULL where samples have no files of their own. */
    const char *(*sample_name)(const oct_dataset *data, int64_t index);
    void (*close)(oct_dataset *data); /* releases store, which may be NULL */
    /* Adds to the digest what the samples are: their bytes, some of them, or their names and sizes. */
    void (*digest)(const oct_dataset *data, oct_sha256_state *state);
    /* An expensive index is made by rank 0 alone: the first writes what open put into store as
     * bytes (oct_alloc'ed), the second makes store of them. NULL: every rank opens by itself. */
    oct_status (*pack)(const oct_dataset *data, void **bytes, size_t *size);
    oct_status (*unpack)(oct_dataset *data, const void *bytes, size_t size);
    /* What cifar.c reads: each split's files, NULL at the end, and the bytes before an image; the last
     * one is the label. */
    const char *const *batches[2];
    int label_bytes;
    const oct_array_kind *arrays; /* what oct_arrays_open reads */
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

enum { OCT_PATH_BYTES = 4096 }; /* PATH_MAX of Linux, which strict C does not declare */

typedef struct oct_path {
    char text[OCT_PATH_BYTES];
} oct_path;
/* Writes the path of a file as printf does. OCT_DATA when it is longer than paths can be. */
oct_status oct_path_make(oct_path *path, const char *format, ...) OCT_PRINTF(2, 3);

/* Opens a split; on failure *data is empty. Collective where the source has a group: a failure is agreed
 * upon, and all ranks have the same. */
oct_status oct_dataset_open(oct_dataset *data, const oct_dataset_source *source, oct_split split);
void oct_dataset_close(oct_dataset *data);

/* Digests what this process finds in the files: data->digest and, where samples are read one at a time, each k-th of them:
 * all of up to about 64 MB, and 64 at least. */
oct_status oct_dataset_contents(const oct_dataset *data, uint8_t contents[32]);

/* Sets the size that transforms give every sample, and the numbers of goals that follow from it. */
void oct_dataset_resize(oct_dataset *data, int64_t h, int64_t w, int64_t c);
/* Copies the names of the classes into a data set, and sets their number. */
oct_status oct_dataset_name_classes(oct_dataset *data, char *const *names, int64_t classes);

/* Formats whose samples all lie in memory have them in store, one after another, all of the same size
 * and of dtype, and these functions. */
oct_status oct_memory_read(const oct_dataset *data, int64_t index, oct_image *image,
                           oct_image *map);
void oct_memory_close(oct_dataset *data);
/* Is a number of a map no class: negative, or 255 where there are fewer classes? */
static inline bool oct_is_no_class(const oct_dataset *data, int64_t number)
{
    return number < 0 || (number == UINT8_MAX && data->classes <= UINT8_MAX);
}
void oct_memory_digest(const oct_dataset *data, oct_sha256_state *state);
#define OCT_MEMORY_MEMBERS                                                                         \
    .read = oct_memory_read, .close = oct_memory_close, .digest = oct_memory_digest
/* Makes a data set in memory of `count` samples and labels, all 0, to be filled; sample: their type and size. */
oct_status oct_memory_make(oct_dataset *data, int64_t count, const oct_image *sample,
                           int64_t classes);

extern const oct_dataset_format oct_dataset_memory; /* of samples that a program has made */

/* Points at the inputs of n samples, from `at` on, of a batch of `samples` as a loader fills it: all of input 0 before
 * those of input 1. batch NULL: only their shapes. */
oct_example oct_dataset_inputs(const oct_dataset *data, const float *batch, int64_t samples,
                               int64_t at, int64_t n);

/* Opens one IDX file of images, plain or gzipped, whose dimensions are (count, h, w) or (count, h, w, c), without labels:
 * a data set as of oct_memory_make. */
oct_status oct_idx_open_images(oct_dataset *data, const char *path);

/* Turns an image as CIFAR's files have it, three planes of 32 x 32 bytes, into NHWC. */
enum { OCT_CIFAR_IMAGE = 3 * 32 * 32 };
void oct_cifar_pixels(const uint8_t *planes, uint8_t *pixels);

/* For formats: a test part for data sets whose files have none: a share of the samples, drawn by seed. */
typedef struct oct_split_draw {
    int64_t count;
    double share; /* of the test */
    uint64_t seed;
    uint32_t part;
} oct_split_draw;
/* Finds which of `count` samples, at least 2, belong to the split: *positions (oct_alloc'ed, ascending, *chosen of
 * them). The share is rounded to samples, and each split gets one at least; at a share of 1 the test is all of them.
 * A pure function of its arguments; `part` numbers the sets that are shared out apart, such as classes. */
oct_status oct_split_choose(const oct_split_draw *draw, oct_split split, int64_t **positions,
                            int64_t *chosen);

/* Finds a split's file in a folder: train, and test or val or, *drawn, a share of train. Without train OCT_DATA with what
 * the format expects. */
oct_status oct_split_file(const char *folder, const char *extension, const char *expected,
                          oct_split split, bool *drawn, oct_path *path);
