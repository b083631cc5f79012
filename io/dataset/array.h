/* Arrays of numbers in files, one sample behind the other along the first axis, and data sets made of
 * them: images, labels. A format brings what finds an array in its kind of file; the rest is here.
 *
 * Files are untrusted: a reader has held the size that an array says against what is there. */
#pragma once

#include "io/dataset/dataset.h"

/* A stretch of bytes in an open file, or in memory. */
typedef struct oct_span {
    int fd;          /* owned; -1: memory */
    uint8_t *memory; /* owned */
    int64_t begin, size;
} oct_span;

#define OCT_SPAN_NONE ((oct_span){.fd = -1})
/* Opens a plain file as a whole. */
oct_status oct_span_open(oct_span *span, const char *path) OCT_NODISCARD;
void oct_span_close(oct_span *span);
/* Reads `bytes` at an offset; OCT_DATA under `name` beyond the end. May be called by several threads. */
oct_status oct_span_read(const oct_span *span, int64_t at, void *to, size_t bytes,
                         const char *name) OCT_NODISCARD;

typedef struct oct_array oct_array;
struct oct_array {
    char *name;      /* of file and array, for messages; owned */
    char kind;       /* of an element: 'u', 'i', 'f' */
    size_t bytes;    /* of an element: 1, 2, 4 or 8 */
    bool big;        /* the file has big-endian elements; what is read is little-endian */
    oct_shape shape; /* up to 4 dimensions, none negative */
    oct_span span;   /* of its elements, or of the whole file when it has its own way of reading */
    /* Reads samples [first, first + count); NULL: they lie one behind the other in span. Several
     * threads call it at once. */
    oct_status (*read)(const oct_array *array, int64_t first, int64_t count, void *to);
    void *store; /* read's own; released by drop */
    void (*drop)(oct_array *array);
};

/* Checks that span holds what kind, bytes and shape say, neither more nor less. */
oct_status oct_array_check_size(const oct_array *array) OCT_NODISCARD;
oct_status oct_array_read(const oct_array *array, int64_t first, int64_t count,
                          void *to) OCT_NODISCARD;
/* Reads samples as oct_array_sample says that they are. */
oct_status oct_array_read_samples(const oct_array *array, int64_t first, int64_t count,
                                  void *to) OCT_NODISCARD;
int64_t oct_array_row(const oct_array *array); /* numbers of a sample */
/* An element that was read, as a whole number: false when it is none or beyond 64 bits; as a real one, infinite when
 * it is beyond 64 bits. */
bool oct_array_whole(const oct_array *array, const uint8_t *element, int64_t *value);
double oct_array_real(const oct_array *array, const uint8_t *element);
void oct_array_close(oct_array *array);
/* Finds the type and size of one sample of (N), (N, K), (N, H, W) or (N, H, W, C) numbers: those of 8 bits are kept,
 * all others become floats. OCT_DATA when it has another shape. */
oct_status oct_array_sample(const oct_array *array, oct_image *sample) OCT_NODISCARD;

/* How a format finds arrays. `{split}` in a name stands for train or test. */
struct oct_array_kind {
    const char *extension; /* ".npz" */
    bool one_each;         /* a file holds one array and is named after it */
    /* Of the arrays, where the recipe names none: in a file for all, and in a file for each split. */
    const char *images[2], *labels[2];
    oct_status (*open)(oct_array *array, const char *path, const char *name);
};

/* Members of oct_dataset_format, for one with arrays. */
oct_status oct_arrays_open(oct_dataset *data, const oct_dataset_source *source,
                           oct_split split) OCT_NODISCARD;
oct_status oct_arrays_read_labels(int32_t **labels, int64_t *count,
                                  const oct_dataset_source *source, oct_split split) OCT_NODISCARD;
oct_status oct_arrays_read(const oct_dataset *data, int64_t index, oct_image *image,
                           oct_image *map) OCT_NODISCARD;
void oct_arrays_close(oct_dataset *data);
void oct_arrays_digest(const oct_dataset *data, oct_sha256_state *state);

/* What all formats of arrays have in common. */
#define OCT_ARRAYS_MEMBERS                                                                         \
    .label_file = {"the training labels", "the test labels"}, .takes_file = true,                  \
    .reads_files = true,                                                                           \
    .goals = 1U << OCT_GOAL_CLASS | 1U << OCT_GOAL_VALUES | 1U << OCT_GOAL_MAP,                    \
    .open = oct_arrays_open, .read = oct_arrays_read, .close = oct_arrays_close,                   \
    .digest = oct_arrays_digest, .read_labels = oct_arrays_read_labels
