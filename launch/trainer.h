/* A run: model, phases, steps. All that decides a bit is a pure function of recipe, data and step.
 *
 * The steps of a run are numbered through: float, calibrate, qat, then qat with batch norm frozen,
 * then qat with scales frozen (oct_phase). At a phase boundary the module tree may change (prepare)
 * and the optimizer starts anew.
 */
#pragma once

#include "core/optim/optim.h"
#include "core/optim/schedule.h"
#include "dist/comm.h"
#include "io/checkpoint.h"
#include "io/loader.h"
#include "io/recipe.h"
#include "quant/pass/prepare.h"

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
    int64_t steps_per_epoch;
    int64_t begin[OCT_PHASES + 1];
} oct_plan;

oct_plan oct_plan_of(const oct_recipe *recipe, int64_t train_samples);
oct_phase oct_plan_phase(const oct_plan *plan, int64_t step);
const char *oct_phase_name(oct_phase phase);
/* Epoch (for the data order; counts through the run, calibration reads epoch 0's order of its own)
 * and step within it; learning rate; all pure functions of the step. */
void oct_plan_position(const oct_plan *plan, int64_t step, int64_t *epoch, int64_t *step_in_epoch);
double oct_plan_lr(const oct_plan *plan, const oct_recipe *recipe, int64_t step);

typedef struct oct_trainer {
    const oct_recipe *recipe;      /* borrowed */
    const oct_collective *group;
    const oct_dataset *train_data, *test_data;
    oct_plan plan;
    int64_t step;                  /* steps done */
    oct_phase phase;               /* that the module tree is in */
    oct_module *model;
    bool prepared;
    oct_params params;
    oct_optim optim;
    oct_quantizers quantizers;     /* none before prepare */
    oct_context *context;
    oct_loader loader;
    float *images;                 /* of this rank's samples */
    int32_t *labels;
} oct_trainer;

/* What one step reports: global, alike on all ranks. */
typedef struct oct_step_result {
    double loss;      /* mean */
    int64_t correct, samples;
} oct_step_result;

oct_status oct_trainer_create(oct_trainer *trainer, const oct_recipe *recipe, const oct_collective *group,
                              const oct_dataset *train_data, const oct_dataset *test_data) OCT_NODISCARD;
void oct_trainer_destroy(oct_trainer *trainer);
/* Collective: enters the phase of the next step if it changed, then one step. OCT_NUMERIC on a loss or
 * gradient that is not finite, alike on all ranks, naming step and phase. */
oct_status oct_trainer_step(oct_trainer *trainer, oct_step_result *result) OCT_NODISCARD;
bool oct_trainer_done(const oct_trainer *trainer);
/* Makes the trainer stand where the checkpoint was taken (loaded bytes alike on all ranks). */
oct_status oct_trainer_restore(oct_trainer *trainer, const oct_checkpoint *checkpoint) OCT_NODISCARD;

/* Collective evaluation of a module tree in eval mode over a data set, samples split over ranks.
 * logits (may be NULL): count x classes on rank 0, filled there. */
oct_status oct_evaluate(oct_module *model, const oct_collective *group, const oct_recipe *recipe,
                        const oct_dataset *data, int64_t *correct, float *logits) OCT_NODISCARD;
/* Builds the float model of a recipe for a data set, with initial parameters. */
oct_status oct_build_model(oct_module **model, const oct_recipe *recipe, const oct_dataset *data) OCT_NODISCARD;
/* Builds the model in the phase of a checkpoint (prepared if it was) and loads its state. */
oct_status oct_load_model(oct_module **model, const oct_checkpoint *checkpoint, const oct_recipe *recipe,
                          const oct_dataset *data, bool *prepared) OCT_NODISCARD;
