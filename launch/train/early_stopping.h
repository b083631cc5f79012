/* Early stopping: what the evaluations of a run decide, which of them was the best and where a phase ends early.
 *
 * An evaluation is judged by the metric evaluate.best, in the float phase and in the whole of QAT for itself.
 * The first of equals is the best; a value that is NaN is never. After evaluate.patience evaluations
 * without a better one the phase ends: float goes on to calibration, QAT to its end. Everything follows from
 * the evaluations before, which are the same on all ranks, and is in every checkpoint, so a run that
 * is resumed anywhere decides the same.
 */
#pragma once

#include "io/checkpoint/checkpoint.h"
#include "launch/evaluate/evaluate.h"
#include "launch/session/plan.h"

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
int64_t oct_early_stopping_best(const oct_early_stopping *stopping, const oct_plan *plan);
/* Applies to a plan what was decided. OCT_DATA when it cannot be of this plan; path: where it comes from. */
oct_status oct_early_stopping_apply(const oct_early_stopping *stopping, oct_plan *plan,
                                    const char *path) OCT_NODISCARD;
