/* The trainer takes a run's steps through the phases of its plan (plan.h). All that decides a bit is a pure function of
 * recipe, data and step. At a phase boundary the module tree may change (prepare, folding); then training goes on
 * from the averaged weights, if there are any, and optimizer and averages start from zero.
 */
#pragma once

#include "dist/comm.h"
#include "io/batch/loader.h"
#include "launch/train/early_stopping.h"
#include "launch/evaluate/evaluate.h"
#include "launch/evaluate/forward.h"
#include "launch/train/rank_checks.h"
#include "launch/train/saver.h"
#include "launch/session/plan.h"
#include "launch/train/teacher.h"
#include "quant/train/train_step.h"

/* The forwards of calibration, a few samples at a time. */
typedef struct oct_calibration {
    oct_forward forward; /* begun by the first step */
    bool whole;          /* found out: the model takes batches in one piece only */
} oct_calibration;

typedef struct oct_trainer {
    const oct_recipe *recipe; /* borrowed */
    const oct_collective *group;
    const oct_dataset *train_data, *test_data;
    oct_plan plan;
    oct_early_stopping stopping;
    oct_skips skips;
    int64_t step;    /* steps done */
    oct_phase phase; /* that the module tree is in */
    oct_module *model;
    oct_train_step training;
    oct_calibration calibration;
    oct_teacher teacher; /* given by the caller before the first step that is to ask it */
    oct_loader loader;
    oct_straggler straggler;
    oct_replica_check replicas;
    oct_leaf_audit audit;
    float *images;              /* of this rank's samples */
    char unread[OCT_READ_TEXT]; /* why a sample of the step at hand could not be read; or empty */
    float *logits;              /* of a calibration step */
    double data_seconds;        /* that steps waited for samples; the caller sets it back */
    oct_text exports;           /* which formats the int8 model will have (oct_try_deploy) */
    oct_text report;  /* of prepare, which is tried at the start: what the model will become */
    oct_saver *saver; /* the run's; NULL: nothing is saved */
    bool restores; /* enters the phase of a checkpoint, which holds the weights as they are to be */
    bool stop;     /* set by the caller: this rank asks all to stop; after a step: some rank did */
} oct_trainer;

/* Makes the loader of training samples as the recipe wants them. */
oct_status oct_training_loader(oct_loader *loader, const oct_recipe *recipe,
                               const oct_dataset *data) OCT_NODISCARD;
/* Checks, builds the model with its initial values, at step 0. */
oct_status oct_trainer_create(oct_trainer *trainer, const oct_recipe *recipe,
                              const oct_collective *group, const oct_dataset *train_data,
                              const oct_dataset *test_data) OCT_NODISCARD;
void oct_trainer_destroy(oct_trainer *trainer);
/* Gives back the memory that only steps need, after the last one. */
void oct_trainer_release_memory(oct_trainer *trainer);
/* Collective: enters the phase of the next step if it changed, then one step, of all its batches. The last step
 * finishes the run. OCT_NUMERIC on a loss, gradient or parameter that is not finite, the same on all ranks,
 * naming step and phase; or the step is skipped (`nonfinite.step`), and counted. */
oct_status oct_trainer_step(oct_trainer *trainer, oct_step_result *result) OCT_NODISCARD;
bool oct_trainer_done(const oct_trainer *trainer);
/* Makes the model what is deployed: its scales are frozen, and it keeps the averaged weights where there are any. */
oct_status oct_trainer_finish(oct_trainer *trainer) OCT_NODISCARD;
/* Walks through the phases up to this one; empty phases leave their mark all the same. */
oct_status oct_trainer_enter(oct_trainer *trainer, oct_phase phase) OCT_NODISCARD;
/* The optimizer, whose state is part of a checkpoint; NULL while calibrating. */
oct_optim *oct_trainer_optim(oct_trainer *trainer);
/* Collective: evaluates the model as it is over the test data, in the memory of the steps; where weights are
 * averaged, with the averages. */
oct_status oct_trainer_evaluate(oct_trainer *trainer, oct_scores *scores) OCT_NODISCARD;

/* A trainer goes into a checkpoint, and comes out of one. */

/* Called on every rank; rank 0 writes a checkpoint and the caller agrees on the outcome. *file (may be
 * NULL): its path on rank 0, owned by the caller; NULL elsewhere. */
oct_status oct_trainer_save(oct_trainer *trainer, const char *folder,
                            oct_checkpoint_file *file) OCT_NODISCARD;
/* The same by the writer of trainer->saver (rank 0), whose outcome the saver takes later. */
oct_status oct_trainer_save_begin(oct_trainer *trainer, const char *folder) OCT_NODISCARD;
/* Collective: sets the trainer to the state of the checkpoint; rank 0 has it, others its info at least. A
 * failure is the same on all ranks, and may leave the trainer half restored. */
oct_status oct_trainer_restore(oct_trainer *trainer,
                               const oct_checkpoint *checkpoint) OCT_NODISCARD;
/* After the last step: takes the model of an earlier checkpoint of this run's QAT, as it was evaluated there, and
 * makes it the one that is deployed. */
oct_status oct_trainer_go_back(oct_trainer *trainer,
                               const oct_checkpoint *checkpoint) OCT_NODISCARD;
