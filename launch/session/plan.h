/* The plan of a run says which phase, epoch and learning rate each step has.
 *
 * The steps of a run are numbered through: float, calibrate, qat, then qat with batch norm frozen,
 * then qat with scales frozen (oct_phase). Everything is a pure function of recipe, data set size and
 * step, and of where phases ended early, if they did (trainer.h), so a resumed run on other ranks takes the same steps.
 */
#pragma once

#include "core/optim/schedule.h"
#include "io/checkpoint/checkpoint.h"
#include "io/recipe/recipe.h"

#define OCT_PHASE_LIST(X)                                                                          \
    X(FLOAT, "float")                                                                              \
    X(CALIBRATE, "calibrate")                                                                      \
    X(QAT, "qat")                                                                                  \
    X(QAT_BN_FROZEN, "qat-bn-frozen")                                                              \
    X(QAT_SCALES_FROZEN, "qat-scales-frozen")

typedef enum oct_phase {
#define X(name, text) OCT_PHASE_##name,
    OCT_PHASE_LIST(X)
#undef X
        OCT_PHASES
} oct_phase;

/* The steps of the run: phase p covers [begin[p], begin[p+1]); phases may be empty. */
typedef struct oct_plan {
    int64_t steps_per_epoch; /* a step is an update, of `accumulate` batches */
    int64_t accumulate, epoch_batches;
    int64_t begin[OCT_PHASES + 1];
    /* What was planned, for epochs and learning rates: a phase may end earlier. */
    int64_t float_steps, qat_steps;
} oct_plan;

oct_plan oct_plan_of(const oct_recipe *recipe, int64_t train_samples);
/* End the float phase, or the whole of QAT, after `step` steps, which lie in it: what follows moves up. */
void oct_plan_end_float(oct_plan *plan, int64_t step);
void oct_plan_end_qat(oct_plan *plan, int64_t step);
/* Finds the phase that `step` (steps done before it) runs in; at the end of the plan the last phase,
 * whatever the lengths, since a finished run can always be converted. */
oct_phase oct_plan_phase(const oct_plan *plan, int64_t step);
int64_t oct_plan_steps(const oct_plan *plan); /* of the whole run */
const char *oct_phase_name(oct_phase phase);
bool oct_phase_of_name(const char *name, oct_phase *phase);
/* Finds the phase that a checkpoint names, which is that of the step before it. OCT_DATA where there is none of that
 * name. */
oct_status oct_checkpoint_phase(const oct_checkpoint *checkpoint, oct_phase *phase);
/* Finds the epoch (for the data order) and the step within it: float and qat epochs count through the run; the
 * epochs of calibration come after all of them, so its order is its own. */
void oct_plan_epoch(const oct_plan *plan, int64_t step, int64_t *epoch, int64_t *step_in_epoch);
/* Finds the batches of a step: its epoch, the first of them within it, and returns how many: `accumulate`, but for the
 * last step of an epoch whose batches do not divide. */
int64_t oct_plan_batches(const oct_plan *plan, int64_t step, int64_t *epoch, int64_t *first);
/* A position is the same for people: float or the whole of qat is a part with epochs from 1 (calibration:
 * one). */
typedef struct oct_plan_position {
    int64_t epoch, epochs;
    int64_t step, steps; /* within the part; step counts from 0 */
} oct_plan_position;
oct_plan_position oct_plan_position_at(const oct_plan *plan, int64_t step);
/* Whether the model is evaluated after the step that makes `step` steps done: where a phase ends, and
 * after every evaluate.every epochs. The last step's evaluation is the certificate's, unless it has to be compared
 * with others before (evaluate.best). */
bool oct_plan_evaluates(const oct_plan *plan, const oct_recipe *recipe, int64_t step);
/* Returns the learning rate of a step by the schedule of its phase; 0 in calibration. */
double oct_plan_lr(const oct_plan *plan, const oct_recipe *recipe, int64_t step);
