/* A test part for data sets whose files have none: a share of the samples, drawn by seed. */
#pragma once

#include "io/dataset/dataset.h"

/* Finds which of `count` samples, at least 2, belong to the split: *positions (oct_alloc'ed, ascending, *chosen of
 * them). The share is rounded to samples, and each split gets one at least; at a share of 1 the test is all of them. A pure
 * function of its
 * arguments; `part` numbers the sets that are shared out apart, such as classes. */
typedef struct oct_split_draw {
    int64_t count;
    double share; /* of the test */
    uint64_t seed;
    uint32_t part;
} oct_split_draw;
oct_status oct_split_choose(const oct_split_draw *draw, oct_split split, int64_t **positions,
                            int64_t *chosen) OCT_NODISCARD;

/* Finds a split's file in a folder: train, and test or val or, *drawn, a share of train; *path is the caller's. Without
 * train OCT_DATA with what the format expects. */
oct_status oct_split_file(const char *folder, const char *extension, const char *expected,
                          oct_split split, bool *drawn, char **path) OCT_NODISCARD;
