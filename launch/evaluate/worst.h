/* The worst-classified samples are those whose label has the largest loss. */
#pragma once

#include "io/dataset/dataset.h"
#include "launch/evaluate/evaluate.h"

enum { OCT_WORST_SAMPLES = 24, OCT_WORST_SIDE = 64 };

typedef struct oct_worst_sample {
    int64_t index; /* in the data */
    int32_t label, predicted;
    double probability; /* of what was predicted */
    double loss;        /* cross-entropy of the label */
} oct_worst_sample;

/* Collective: finds the worst samples of all ranks. outputs: those of this rank, logits with a label each. Worst first, of equal ones the first in the data. The same on any number of ranks.
 * worst: OCT_WORST_SAMPLES of them on rank 0. Returns through count how many there are. */
oct_status oct_worst_find(const oct_collective *group, const oct_outputs *outputs,
                          oct_worst_sample *worst, int *count) OCT_NODISCARD;
/* Makes the document worst.json: the samples with their names and a thumbnail of at most 64 x 64 pixels, of
 * images with 1 or 3 channels of bytes. */
oct_status oct_worst_document(const oct_worst_sample *worst, int count, const oct_dataset *data,
                              json_t **document) OCT_NODISCARD;
