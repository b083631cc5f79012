/* Progress is what a person sees while a run goes on: one bar on a terminal, a plain line now and then
 * elsewhere. Figures are averages over what was done since the last line. */
#pragma once

#include "launch/base/meter.h"
#include "launch/session/plan.h"
#include "quant/train/train_step.h"

typedef struct oct_step_totals {
    double seconds, loss_sum, metric_sum; /* the sums of means, each times its samples */
    double norm_sum;                      /* of the steps' gradients; NAN where none was measured */
    int64_t steps, samples, skipped;      /* steps: all; samples: of those that were not skipped */
} oct_step_totals;

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
/* Notes that a step was done: `step` counts the steps done, `phase` is the one it ran in. */
void oct_progress_step(oct_progress *progress, oct_phase phase, int64_t step,
                       const oct_step_result *result);
/* Starts the clock of steps again, after an evaluation or a checkpoint, which are no part of a step. */
void oct_progress_resume(oct_progress *progress);
/* Shows the line that is due at a phase end, and begins the figures of the next phase. */
void oct_progress_phase_end(oct_progress *progress, oct_phase phase, int64_t step);
void oct_step_totals_add(oct_step_totals *totals, double seconds, const oct_step_result *result);
double oct_step_totals_rate(const oct_step_totals *totals); /* images a second; 0 without time */
