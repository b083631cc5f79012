/* A format of files of weights: one file io/weights/<name>.c and a line in format_list.def. */
#pragma once

#include "io/weights/weights.h"

/* A file that is being read. */
typedef struct oct_weight_file {
    const char *path;
    oct_weights *weights; /* being made */
    size_t cap_arrays, cap_names;
    void *state; /* the format's own */
} oct_weight_file;

typedef struct oct_weight_format {
    const char *name;
    const char *extension;                        /* ".npz" */
    bool (*is)(const uint8_t *head, size_t size); /* NULL: the first bytes do not say */
    bool external_values;                         /* values may be in files beside this one */
    oct_status (*open)(oct_weight_file *file);    /* lists the arrays: oct_weight_file_add */
    oct_status (*read)(oct_weight_file *file, const oct_weight *array, float *to);
    void (*close)(oct_weight_file *file); /* also after a failed open */
} oct_weight_format;

#define OCT_WEIGHT_FORMAT(name) extern const oct_weight_format oct_weight_format_##name;
#include "io/weights/format_list.def"
#undef OCT_WEIGHT_FORMAT

/* Adds an array of floats to the list, by its name; `like` has its shape and place, the format's number for it. */
oct_status oct_weight_file_add(oct_weight_file *file, const char *name, const oct_weight *like);
