/* A trainer goes into a checkpoint, and comes out of one. */
#pragma once

#include "io/checkpoint/checkpoint.h"
#include "launch/train/trainer.h"

/* Called on every rank; rank 0 writes a checkpoint and the caller agrees on the outcome. *file (may be
 * NULL): its path on rank 0, owned by the caller; NULL elsewhere. */
oct_status oct_trainer_save(oct_trainer *trainer, const char *folder,
                            oct_checkpoint_file *file) OCT_NODISCARD;
/* The same by the writer of trainer->saver (rank 0), whose outcome the saver takes later. */
oct_status oct_trainer_save_begin(oct_trainer *trainer, const char *folder) OCT_NODISCARD;
/* At step 0: takes the weights of another run's checkpoint, with recipe->init_observers the state of its
 * quantizers too. OCT_USAGE with all that differs when it is of another model. */
oct_status oct_trainer_start_from(oct_trainer *trainer,
                                  const oct_checkpoint *checkpoint) OCT_NODISCARD;
/* Collective: sets the trainer to the state of the checkpoint; rank 0 has it, others its info at least. A
 * failure is the same on all ranks, and may leave the trainer half restored. */
oct_status oct_trainer_restore(oct_trainer *trainer,
                               const oct_checkpoint *checkpoint) OCT_NODISCARD;
/* After the last step: takes the model of an earlier checkpoint of this run's QAT, as it was evaluated there, and
 * makes it the one that is deployed. */
oct_status oct_trainer_go_back(oct_trainer *trainer,
                               const oct_checkpoint *checkpoint) OCT_NODISCARD;
