/* What saving and loading of checkpoints share: the arrays that a checkpoint holds. */
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

/* Lists all arrays of a model and, unless it is NULL, of its optimizer. averaged: it has averages; with
 * `averages_beside` they stand beside the model, otherwise in it. */
oct_status oct_saved_arrays_list(oct_saved_arrays *list, oct_module *root, const oct_optim *optim,
                                 bool averaged, bool averages_beside);
void oct_saved_arrays_free(oct_saved_arrays *list);
