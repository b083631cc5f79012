/* A run at work: what its steps (training.c), its records (records.c) and its end (result.c) share. */
#pragma once

#include "io/checkpoint/checkpoint.h"
#include "launch/train/init.h"
#include "launch/session/progress.h"
#include "launch/runfolder/run_folder.h"
#include "launch/session/session.h"
#include "launch/train/trainer.h"

typedef struct oct_training {
    oct_session *session;
    const oct_args *args;
    const oct_recipe *recipe;
    oct_init *init;          /* what the run starts from; empty: its own initial values */
    oct_checkpoint *teacher; /* that distill.teacher names; bytes NULL: none, or the model's own */
    oct_dataset train_data, test_data;
    oct_trainer trainer;
    oct_run_folder folder; /* rank 0 */
    char *checkpoints;     /* its folder */
    char *model_path;
    oct_progress progress;
    oct_step_totals recorded; /* since the last step record */
    double record_clock;
    int64_t syncs; /* of the ranks, in the steps of this phase in this process */
    oct_saver saver;
    double
        phase_loss; /* mean over the phase before, or of the run's first step here; 0: none yet */
} oct_training;

/* Only rank 0 touches files and speaks. */
static inline bool oct_training_speaks(const oct_training *run)
{
    return run->session->group->rank == 0;
}
