/* What the files of the trainer share, from the bottom to the top: batches.c, rank_checks.c, calibration.c, trainer.c. */
#pragma once

#include "launch/train/trainer.h"

/* Which flag of a step's control reduction means what: the maximum over the ranks. */
enum { OCT_FLAG_STOP, OCT_FLAG_UNREAD, OCT_FLAG_SAVED, OCT_FLAG_STATE, OCT_FLAG_STATE_LEAST };

/* batches.c */

/* How many samples a batch has, but for the last of an epoch. */
int64_t oct_trainer_full_batch(const oct_trainer *trainer);

/* Where a batch comes from. */
typedef struct oct_batch_source {
    oct_loader *loader;
    float *images; /* filled with the samples at hand */
    int64_t epoch, number;
} oct_batch_source;

/* Reads the samples of these leaves of a batch, with what they are to become; and, where the loss asks a teacher, what
 * that says of them. OCT_DATA, after which there are zeros in place of what cannot be read. */
oct_status oct_trainer_read(oct_trainer *trainer, const oct_batch_source *source,
                            const oct_leaves *leaves, oct_batch *batch);
oct_status oct_trainer_ask(oct_trainer *trainer, const oct_leaves *leaves, oct_batch *batch);
/* Reads this rank's leaves of a batch. What cannot be read is zeros, noted for oct_trainer_agree_on_unread. */
oct_status oct_trainer_fetch(oct_trainer *trainer, int64_t epoch, int64_t number, oct_batch *batch,
                             oct_leaves *leaves);
/* Collective, where some rank could not read a sample: the run ends, with the name of the first. OCT_OK where all is
 * read. */
oct_status oct_trainer_agree_on_unread(oct_trainer *trainer);

/* rank_checks.c */

/* Makes what the checks need: loader and memory of the audit, times of the stragglers. */
oct_status oct_rank_checks_create(oct_trainer *trainer);
/* Before a step: digests a slice of the state for its flags, and chooses the leaf that is audited, if any. */
oct_status oct_rank_checks_begin(oct_trainer *trainer, const oct_step_batches *b);
/* After a step, collective: OCT_LOST, which names the ranks that have computed other bits or hold another state. */
oct_status oct_rank_checks_end(oct_trainer *trainer, const oct_step_batches *b);

/* calibration.c */

/* Observes the float model on a batch, a few samples at a time if the model allows it. */
oct_status oct_trainer_observe(oct_trainer *trainer, const oct_batch *batch,
                               const oct_leaves *leaves);
/* Collective: watches the batches of calibration once more, in codes, and corrects the weights. */
oct_status oct_trainer_correct(oct_trainer *trainer);
