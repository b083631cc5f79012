/* The trainer's steps and their audit share how a batch is read. */
#pragma once

#include "launch/train/trainer.h"

/* The batches of a step, in their epoch. */
typedef struct oct_step_batches {
    int64_t epoch, first, count, samples;
} oct_step_batches;

/* Where a batch comes from. */
typedef struct oct_batch_source {
    oct_loader *loader;
    float *images; /* filled with the samples at hand */
    int64_t epoch, number;
} oct_batch_source;

/* Reads the samples of these leaves of a batch, with what they are to become; and, where the loss asks a teacher, what
 * that says of them. OCT_DATA, after which there are zeros in place of what cannot be read. */
oct_status oct_trainer_read(oct_trainer *trainer, const oct_batch_source *source,
                            const oct_leaves *leaves, oct_batch *batch) OCT_NODISCARD;
oct_status oct_trainer_ask(oct_trainer *trainer, const oct_leaves *leaves,
                           oct_batch *batch) OCT_NODISCARD;

/* The batches of a step. */
oct_step_batches oct_trainer_batches(const oct_trainer *trainer, int64_t step);
/* A batch of an epoch, and which leaves of it are here. What cannot be read is zeros and noted, until all ranks: */
oct_status oct_trainer_fetch(oct_trainer *trainer, int64_t epoch, int64_t number, oct_batch *batch,
                             oct_leaves *leaves) OCT_NODISCARD;
/* Collective: agree that this ends the run, with the name of the first. OCT_OK where all is read. */
oct_status oct_trainer_agree_on_unread(oct_trainer *trainer) OCT_NODISCARD;

/* leaf_audit.c: before a step begins; and after it, collective: OCT_LOST naming who has computed other bits. */
oct_status oct_trainer_audit_create(oct_trainer *trainer) OCT_NODISCARD;
void oct_trainer_audit_begin(oct_trainer *trainer, const oct_step_batches *batches);
oct_status oct_trainer_audit_end(oct_trainer *trainer,
                                 const oct_step_batches *batches) OCT_NODISCARD;
