/* Batches are a pure function of the step: order by (seed, epoch), augmentation by (seed, epoch,
 * global sample position). Nothing is remembered between calls, so a resume needs only the step. */
#pragma once

#include "core/base/leaves.h"
#include "io/dataset/dataset.h"

typedef struct oct_loader {
    const oct_dataset *data; /* borrowed */
    uint64_t seed;
    int64_t batch, leaf;
    bool shuffle;
    bool drop_last; /* otherwise a short last batch */
    int crop_padding; /* zero-pad by this much (with the mean, i.e. 0 after normalising) and crop back */
    bool flip;        /* left-right with probability 1/2 */
    float mean[4], std[4]; /* per channel, of values in [0, 1] */
    int64_t *order;        /* of the epoch at hand; owned */
    int64_t order_epoch;   /* -1: none */
} oct_loader;

/* Makes a loader with plain defaults. */
oct_status oct_loader_init(oct_loader *loader, const oct_dataset *data) OCT_NODISCARD;
void oct_loader_deinit(oct_loader *loader);
int64_t oct_loader_steps(const oct_loader *loader); /* per epoch */
/* Returns how many samples that global batch has. */
int64_t oct_loader_samples(const oct_loader *loader, int64_t step_in_epoch);

/* Fills this rank's samples of the step: images (local, h, w, c) normalised floats, labels (local). */
oct_status oct_loader_fetch(oct_loader *loader, int64_t epoch, int64_t step_in_epoch,
                            const oct_leaves *leaves, float *images, int32_t *labels) OCT_NODISCARD;

/* The one normalisation: (byte * (1/255) - mean[c]) * (1/std[c]) in float, for training, evaluation
 * and `octet run`. */
void oct_normalise(const uint8_t *bytes, int64_t pixels, int64_t channels, const float *mean,
                   const float *std, float *out);
