/* What saving and loading of checkpoints share: the arrays that a checkpoint holds, and how a save goes on. */
#pragma once

#include "core/nn/module.h"
#include "core/optim/optim.h"
#include "io/checkpoint/checkpoint.h"

enum { OCT_CHECKPOINT_FORMAT = 1, OCT_ITEM_PATH = 512 };

/* The whole numbers of early stopping, as a file has them. */
#define OCT_EARLY_STOPPING_NUMBERS(X)                                                              \
    X(float_end)                                                                                   \
    X(qat_end)                                                                                     \
    X(best_step)                                                                                   \
    X(since)

/* One array of a checkpoint: state of the model or of the optimizer. */
typedef struct oct_saved_array {
    char *path; /* in the file */
    oct_dtype dtype;
    oct_shape shape;
    void *data; /* of the model or the optimizer */
    oct_value_range range;
    size_t bytes, offset; /* offset: in memory of as many bytes as all of them have */
    bool buffer;          /* a forward may change it, other arrays only an update */
} oct_saved_array;

typedef struct oct_saved_arrays {
    oct_saved_array *items;
    size_t count, capacity, bytes;
} oct_saved_arrays;

/* Lists all arrays of a model and, unless it is NULL, of its optimizer. averaged: it has averages; with `aside` they
 * stand beside the model, otherwise in it. */
oct_status oct_saved_arrays_list(oct_saved_arrays *list, oct_module *root, const oct_optim *optim,
                                 bool averaged, bool aside) OCT_NODISCARD;
void oct_saved_arrays_free(oct_saved_arrays *list);

/* A save in its parts. */
typedef struct oct_saving {
    char *folder;
    oct_checkpoint_info info; /* texts owned */
    oct_keep keep;
    oct_saved_arrays list;
    uint8_t *early; /* values that are copied at the beginning */
    uint8_t *image; /* of the file; zeros where arrays lie that are not copied */
    size_t size;
} oct_saving;

/* Notes what is to be saved, and copies what may change before the next update. */
oct_status oct_saving_begin(oct_saving *saving, const char *folder, const oct_checkpoint_info *info,
                            oct_module *root, const oct_optim *optim, oct_keep keep) OCT_NODISCARD;
/* Makes the image of the file, with its small arrays; the others stay where they are. */
oct_status oct_saving_lay_out(oct_saving *saving) OCT_NODISCARD;
/* Copies them into the image; after it model and optimizer are not looked at any more. */
void oct_saving_copy(oct_saving *saving);
/* Writes the file and the manifest. file may be NULL. */
oct_status oct_saving_write(oct_saving *saving, oct_checkpoint_file *file) OCT_NODISCARD;
void oct_saving_free(oct_saving *saving);
