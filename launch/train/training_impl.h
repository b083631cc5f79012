/* A run at work: what its steps (training.c), its records (records.c) and its end (result.c) share. training.c calls
 * the other two, and result.c calls records.c. */
#pragma once

#include "launch/base/meter.h"
#include "launch/runfolder/run_folder.h"
#include "launch/train/training.h"

/* Progress is what a person sees while a run goes on: one bar on a terminal, a plain line now and then elsewhere.
 * Figures are averages over what was done since the last line. */
typedef struct oct_step_totals {
    double seconds, loss_sum, metric_sum; /* the sums of means, each times its samples */
    double norm_sum;                      /* of the steps' gradients; NAN where none was measured */
    int64_t steps, samples, skipped;      /* steps: all; samples: of those that were not skipped */
} oct_step_totals;
void oct_step_totals_add(oct_step_totals *totals, double seconds, const oct_step_result *result);
double oct_step_totals_rate(const oct_step_totals *totals); /* images a second; 0 without time */

typedef struct oct_progress {
    bool bar;
    double every; /* seconds between lines */
    const oct_plan *plan;
    const oct_metric *metric; /* that steps measure, or NULL */
    double shown, last;       /* clock of the last line and of the last step */
    oct_step_totals since;    /* the last line */
    oct_step_totals phase;    /* the phase began, in this process */
} oct_progress;

/* Starts the figures. choice: of --progress (bar, lines, none), or NULL to find out; metric: that steps
 * measure, or NULL. */
void oct_progress_start(oct_progress *progress, const oct_plan *plan, const oct_metric *metric,
                        const char *choice, double every);

typedef struct oct_train_run {
    oct_session *session;
    const oct_args *args;
    const oct_recipe *recipe;
    oct_init init;          /* what the run starts from; empty: its own initial values */
    oct_checkpoint teacher; /* that distill.teacher names; bytes NULL: none, or the model's own */
    oct_dataset train_data, test_data;
    oct_trainer trainer;
    oct_run_folder folder; /* rank 0 */
    char *model_path;
    oct_progress progress;
    oct_step_totals recorded; /* since the last step record */
    int64_t syncs;            /* of the ranks, in the steps of this phase in this process */
    oct_saver saver;
    double
        phase_loss; /* mean over the phase before, or of the run's first step here; 0: none yet */
} oct_train_run;

/* Only rank 0 touches files and speaks. */
static inline bool oct_train_run_speaks(const oct_train_run *run)
{
    return run->session->group->rank == 0;
}

/* records.c. Every rank may call these; rank 0 writes. A new kind of record is a function there and a line in
 * launch/doc/training.md (checkpoints: saver.c). */

/* Before the steps of this session: starts the figures; TensorBoard gets samples of the test data where it is asked for,
 * before the first step of the run. */
void oct_record_start(oct_train_run *run);
/* Adds a step that was done to the figures, and shows and records what is due; at the end of a phase that, too. */
void oct_record_step(oct_train_run *run, oct_phase phase, const oct_step_result *result,
                     bool phase_ends);
/* Records the steps, images and time of the phase that the last step ended, as far as this process took them. */
void oct_record_phase_end(oct_train_run *run, oct_phase phase);
/* Records steps, images and time of a phase that stops with this session and goes on in another one. */
void oct_record_so_far(oct_train_run *run, oct_phase phase);
/* Logs and records scores over the test data, and records the scales of the layers of a prepared model.
 * images_per_s: 0 when it was not measured. */
void oct_record_evaluation(oct_train_run *run, oct_phase phase, const oct_scores *scores,
                           double images_per_s);
/* Makes an object of the best evaluation so far: metric, step, value. */
json_t *oct_stopping_json(const oct_train_run *run);

/* records.c, collective: evaluates the model over the test data, judges that, which may end a phase or the run, and records
 * both; and the weights as TensorBoard's histograms, where it is asked for, of some evaluations of a phase, its last among
 * them. */
oct_status oct_run_evaluate(oct_train_run *run, oct_phase phase, oct_verdict *verdict);

/* Collective, after the last step, whose checkpoint is written: gives back the memory of the steps, converts,
 * certifies, and writes model, records and statistics. *result: on rank 0 the result record (new reference). What
 * cannot be written of the statistics costs a warning. */
oct_status oct_run_result(oct_train_run *run, json_t **result);
