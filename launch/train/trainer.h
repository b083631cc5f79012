/* The trainer takes a run's steps through the phases of its plan (plan.h). All that decides a bit is a pure function of
 * recipe, data and step. At a phase boundary the module tree may change (prepare, folding); then training goes on
 * from the averaged weights, if there are any, and optimizer and averages start from zero.
 */
#pragma once

#include "dist/comm.h"
#include "io/batch/loader.h"
#include "io/checkpoint/checkpoint.h"
#include "launch/evaluate/evaluate.h"
#include "launch/runfolder/run_folder.h"
#include "launch/session/plan.h"
#include "launch/session/session.h"
#include "launch/train/rank_checks.h"
#include "quant/layers/layer_source.h"
#include "quant/train/train_step.h"

#include <math.h>

typedef struct oct_trainer oct_trainer;

/* The teacher of distillation: a model whose outputs a training step compares its own with. It is another run's
 * model, which may be of another architecture, or the run's own as its float phase left it. */
typedef struct oct_teacher {
    oct_module *model; /* NULL: there is none */
    oct_context *cx;   /* does not communicate */
    oct_forwards forward;
    oct_shape sample;
    int64_t outputs; /* of a sample */
    float *y;        /* of the samples asked for last */
    size_t capacity;
} oct_teacher;

/* Not collective: makes the model of a checkpoint the teacher of a run with this recipe. */
oct_status oct_teacher_create(oct_teacher *teacher, const oct_checkpoint *checkpoint,
                              const oct_recipe *recipe, const oct_dataset *data);
/* Not collective: makes this model the teacher; takes it over, also on failure. */
oct_status oct_teacher_take(oct_teacher *teacher, oct_module **model, const oct_dataset *data);
void oct_teacher_destroy(oct_teacher *teacher);

/* The saver of a run owns all that is known of its checkpoints: the newest one, the one that is being written beside the
 * steps, and how often a save failed or came too early. A run fills in the first members. The functions are collective,
 * with the same values on all ranks. */

/* A save that the writer carries out. */
typedef struct oct_save_under_way {
    bool begun;
    bool required; /* its failure ends the run */
    int64_t step;
    double compared; /* seconds for which the ranks compared their state before it */
} oct_save_under_way;

typedef struct oct_saver {
    oct_session *session;
    oct_trainer *trainer;          /* whose state is saved */
    oct_run_folder *records;       /* rank 0 */
    char *folder;                  /* of the checkpoints; made and freed by the run */
    oct_checkpoint_writer *writer; /* rank 0; made and destroyed by the run */
    oct_checkpoint_file file; /* rank 0: the newest that this process has written; no path: none */
    int64_t step;             /* of the newest checkpoint, also of an earlier session; -1: none */
    oct_save_under_way under_way;
    bool ended;      /* after a step: the save under way has ended on some rank */
    double waited_s; /* for a save under way before the next could begin */
    int64_t waits;
    int failures; /* one after another */
} oct_saver;

/* Compares the state of all ranks, then saves it: beside the steps that follow, or at once where it is the last, since the
 * run ends or stops. OCT_RESOURCE is a warning unless the save is required, or others failed before. */
oct_status oct_saver_save(oct_saver *saver, bool required, bool last);
/* Before parameters change: waits until the save under way has copied them. NULL is fine. */
void oct_saver_wait_copied(const oct_saver *saver);
/* Waits for the end of the save under way, if there is one, and takes its result. NULL is fine. */
oct_status oct_saver_settle(oct_saver *saver);

/* The forwards of calibration, a few samples at a time. */
typedef struct oct_calibration {
    oct_forwards forward; /* begun by the first step */
    bool whole;           /* found out: the model takes batches in one piece only */
} oct_calibration;

struct oct_trainer {
    const oct_recipe *recipe; /* borrowed */
    const oct_collective *group;
    const oct_dataset *train_data, *test_data;
    oct_plan plan;
    oct_early_stopping stopping;
    oct_skips skips;
    int64_t step; /* steps done */
    int64_t
        epochs_before; /* the plan: of earlier plans of the same training, which decide the order of samples */
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
};

/* The batches of a step, in their epoch. */
typedef struct oct_step_batches {
    int64_t epoch, first, count, samples;
} oct_step_batches;
oct_step_batches oct_trainer_batches(const oct_trainer *trainer, int64_t step);

/* Makes the loader of training samples as the recipe wants them. */
oct_status oct_trainer_loader(oct_loader *loader, const oct_recipe *recipe,
                              const oct_dataset *data);
/* Checks, builds the model with its initial values, at step 0. */
oct_status oct_trainer_create(oct_trainer *trainer, const oct_recipe *recipe,
                              const oct_collective *group, const oct_dataset *train_data,
                              const oct_dataset *test_data);
/* The same for a float model of a program's own, which it takes over, also on failure; there is no plan yet, and nothing
 * is checked. Data of the same shapes may take the place of `data` before a step, with oct_trainer_open_loader. */
oct_status oct_trainer_adopt(oct_trainer *trainer, const oct_recipe *recipe,
                             const oct_collective *group, const oct_dataset *data,
                             oct_module **model);
/* Makes the trainer's loader anew, for train_data as it is now. */
oct_status oct_trainer_open_loader(oct_trainer *trainer);
void oct_trainer_destroy(oct_trainer *trainer);
/* Gives back the memory that only steps need, after the last one. */
void oct_trainer_release_memory(oct_trainer *trainer);
/* Collective: enters the phase of the next step if it changed, then one step, of all its batches. The last step
 * finishes the run. OCT_NUMERIC on a loss, gradient or parameter that is not finite, the same on all ranks,
 * naming step and phase; or the step is skipped (`nonfinite.step`), and counted. */
oct_status oct_trainer_step(oct_trainer *trainer, oct_step_result *result);
/* Collective: one step of these batches at this learning rate in the phase that the model is in, whatever the plan says.
 * OCT_NUMERIC says neither step nor phase. */
oct_status oct_trainer_take_step(oct_trainer *trainer, const oct_step_batches *batches, double lr,
                                 oct_step_result *result);
bool oct_trainer_done(const oct_trainer *trainer);
/* Makes the model what is deployed: its scales are frozen, and it keeps the averaged weights where there are any. */
oct_status oct_trainer_finish(oct_trainer *trainer);
/* Walks through the phases up to this one; empty phases leave their mark all the same. */
oct_status oct_trainer_enter(oct_trainer *trainer, oct_phase phase);
/* The optimizer, whose state is part of a checkpoint; NULL while calibrating. */
static inline oct_optim *oct_trainer_optim(oct_trainer *trainer)
{
    return trainer->phase == OCT_PHASE_CALIBRATE ? NULL : &trainer->training.optim;
}
/* Collective: evaluates the model as it is over the test data, in the memory of the steps; where weights are
 * averaged, with the averages. */
oct_status oct_trainer_evaluate(oct_trainer *trainer, oct_scores *scores);

/* A trainer goes into a checkpoint, and comes out of one. */

/* Called on every rank; rank 0 writes a checkpoint and the caller agrees on the outcome. *file (may be
 * NULL): its path on rank 0, owned by the caller; NULL elsewhere. */
oct_status oct_trainer_save(oct_trainer *trainer, const char *folder, oct_checkpoint_file *file);
/* Collective: sets the trainer to the state of the checkpoint; rank 0 has it, others its info at least. A
 * failure is the same on all ranks, and may leave the trainer half restored. */
oct_status oct_trainer_restore(oct_trainer *trainer, const oct_checkpoint *checkpoint);

/* Early stopping: what the evaluations of a run decide, which of them was the best and where a phase ends early.
 *
 * An evaluation is judged by the metric evaluate.best, in the float phase and in the whole of QAT for itself. The first of
 * equals is the best; a value that is NaN is never. After evaluate.patience evaluations without a better one the phase
 * ends: float goes on to calibration, QAT to its end. Everything follows from the evaluations before, which are the same
 * on all ranks, and is in every checkpoint, so a run that is resumed anywhere decides the same. */

/* What an evaluation meant. */
typedef struct oct_verdict {
    bool best; /* so far, and of QAT: its state is worth a checkpoint */
    bool ends; /* the phase, before its time; the plan knows it already */
} oct_verdict;

/* The metric that decides, or NULL: nothing is decided. */
const oct_metric *oct_early_stopping_metric(const oct_recipe *recipe);
/* Judges the evaluation after `step` steps, and moves the plan where a phase ends. */
oct_verdict oct_early_stopping_judge(oct_early_stopping *stopping, oct_plan *plan,
                                     const oct_recipe *recipe, int64_t step,
                                     const oct_scores *scores);
/* The steps after which the best evaluation of QAT was made; 0: there was none yet. */
static inline int64_t oct_early_stopping_best(const oct_early_stopping *stopping,
                                              const oct_plan *plan)
{
    const bool known = stopping->best_step > plan->begin[OCT_PHASE_QAT];
    return known && !isnan(stopping->best_value) ? stopping->best_step : 0;
}
/* Applies to a plan what was decided. OCT_DATA when it cannot be of this plan; path: where it comes from. */
oct_status oct_early_stopping_apply(const oct_early_stopping *stopping, oct_plan *plan,
                                    const char *path);
/* Collective, in QAT: compares the gradients of batches, from the first epoch's first on, by the recipe's numerics with those
 * by float32: adds to the sums of each bound parameter, and to those of all weights, which follow. Nothing is learned. */
oct_status oct_trainer_compare_gradients(oct_trainer *trainer, int64_t batches,
                                         oct_error_sums *sums);
