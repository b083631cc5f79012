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
#include "launch/run/forward.h"
#include "quant/pass/prepare/prepare.h"

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
/* The phase that `step` (steps done before it) runs in; at the end of the plan the last phase,
 * whatever the lengths, since a finished run can always be converted. */
oct_phase oct_plan_phase(const oct_plan *plan, int64_t step);
int64_t oct_plan_steps(const oct_plan *plan); /* of the whole run */
const char *oct_phase_name(oct_phase phase);
bool oct_phase_of_name(const char *name, oct_phase *phase);
/* Epoch (for the data order) and step within it: float and qat epochs count through the run; the
 * epochs of calibration come behind all of them, so its order is its own. */
void oct_plan_position(const oct_plan *plan, int64_t step, int64_t *epoch, int64_t *step_in_epoch);
/* The same for people: float or the whole of qat is a part with epochs from 1 (calibration: one). */
typedef struct oct_place {
    int64_t epoch, epochs;
    int64_t step, steps; /* within the part; step counts from 0 */
} oct_place;
oct_place oct_plan_place(const oct_plan *plan, int64_t step);
/* Whether the model is evaluated after the step that makes `step` steps done: where a phase ends, and
 * after every evaluate.every epochs. The last step's evaluation is the certificate's. */
bool oct_plan_evaluates(const oct_plan *plan, const oct_recipe *recipe, int64_t step);
double oct_plan_lr(const oct_plan *plan, const oct_recipe *recipe, int64_t step);

typedef struct oct_trainer {
    const oct_recipe *recipe; /* borrowed */
    const oct_collective *group;
    const oct_dataset *train_data, *test_data;
    oct_plan plan;
    int64_t step;    /* steps done */
    oct_phase phase; /* that the module tree is in */
    oct_module *model;
    bool prepared;
    oct_params params;
    oct_optim optim; /* none while calibrating */
    bool has_optim;
    oct_quantizers quantizers; /* none before prepare */
    int64_t *control;          /* the control reduction's numbers */
    oct_context *context;
    oct_forward calibration; /* begun by its first step */
    oct_loader loader;
    float *images; /* of this rank's samples */
    int32_t *labels;
    float *logits;      /* of a calibration step, which runs a few leaves at a time */
    oct_text report;    /* of prepare, which is tried at the start: what the model will become */
    int64_t saved_step; /* of the newest checkpoint, kept by the caller; -1: none */
    bool stop;          /* set by the caller: this rank asks all to stop */
} oct_trainer;

/* What one step reports: global, alike on all ranks. */
typedef struct oct_step_result {
    double loss; /* mean */
    int64_t correct, samples;
    bool stop; /* some rank asked to stop */
} oct_step_result;

/* Does everything exist that the recipe names: model, data set format, observer, fake-quant, target?
 * OCT_USAGE with every name that does not. Asked behind the loading of plug-ins. */
oct_status oct_check_names(const oct_recipe *recipe) OCT_NODISCARD;
/* Do recipe, data and number of ranks fit? OCT_USAGE with every problem. Names of models, observers
 * and targets are checked too. Any process can ask; nothing is built. */
oct_status oct_run_check(const oct_recipe *recipe, const oct_dataset *train_data,
                         const oct_dataset *test_data, int ranks) OCT_NODISCARD;

/* Checks, builds the model with its initial values and stands at step 0. */
oct_status oct_trainer_create(oct_trainer *trainer, const oct_recipe *recipe,
                              const oct_collective *group, const oct_dataset *train_data,
                              const oct_dataset *test_data) OCT_NODISCARD;
void oct_trainer_destroy(oct_trainer *trainer);
/* After the last step: gives back the memory that only steps need. */
void oct_trainer_release_memory(oct_trainer *trainer);
/* Collective: enters the phase of the next step if it changed, then one step. After the last step the
 * scales are frozen. OCT_NUMERIC on a loss or gradient that is not finite, alike on all ranks, naming
 * step and phase. */
oct_status oct_trainer_step(oct_trainer *trainer, oct_step_result *result) OCT_NODISCARD;
bool oct_trainer_done(const oct_trainer *trainer);
/* Called on every rank; rank 0 writes a checkpoint and the caller agrees on the outcome. *file (may be
 * NULL): its path on rank 0, owned by the caller; NULL elsewhere. */
oct_status oct_trainer_save(oct_trainer *trainer, const char *folder, char **file) OCT_NODISCARD;
/* At step 0: takes the weights of another run's checkpoint, with recipe->init_observers the state of its
 * quantizers too. OCT_USAGE with all that differs when it is of another model. */
oct_status oct_trainer_start_from(oct_trainer *trainer,
                                  const oct_checkpoint *checkpoint) OCT_NODISCARD;
/* Makes the trainer stand where the checkpoint was taken (loaded bytes alike on all ranks). */
oct_status oct_trainer_restore(oct_trainer *trainer,
                               const oct_checkpoint *checkpoint) OCT_NODISCARD;

/* Collective evaluation of a module tree in eval mode over a data set, samples split over ranks.
 * logits (may be NULL): count x classes on rank 0, filled there. */
oct_status oct_evaluate(oct_module *model, const oct_collective *group, const oct_recipe *recipe,
                        const oct_dataset *data, int64_t *correct, float *logits) OCT_NODISCARD;
/* Collective: the same of the trainer's model over its test data, in the memory of its steps. */
oct_status oct_trainer_evaluate(oct_trainer *trainer, int64_t *correct) OCT_NODISCARD;
/* Its parts, for who evaluates something else in the same split of the samples: */
oct_leaves oct_evaluation_leaves(const oct_recipe *recipe, const oct_dataset *data,
                                 const oct_collective *group);
/* Samples at a time, whole leaves: at most a rank's share of a training step. */
int64_t oct_evaluation_batch(const oct_recipe *recipe, int ranks);
/* Images [first, first + n) of the data set as normalised floats. */
void oct_evaluation_images(const oct_recipe *recipe, const oct_dataset *data, int64_t first,
                           int64_t n, float *images);
/* Not collective: logits of this rank's samples, in its own forwards of at most `batch`. */
oct_status oct_evaluate_local(oct_module *model, const oct_recipe *recipe, const oct_dataset *data,
                              const oct_leaves *leaves, int64_t batch, float *logits) OCT_NODISCARD;
/* Samples whose largest logit (the first of equal ones) is at the label. */
int64_t oct_count_correct(const float *logits, const int32_t *labels, int64_t samples,
                          int64_t classes);
/* Collective: sum over ranks of a count; and rows of all ranks in order of samples on rank 0. */
oct_status oct_sum_count(const oct_collective *group, int64_t mine, int64_t *total) OCT_NODISCARD;
oct_status oct_gather_rows(const oct_collective *group, const oct_leaves *leaves, int64_t row,
                           const float *mine, float *all) OCT_NODISCARD;

/* One split of the data set that a recipe names. */
oct_status oct_load_data(const oct_recipe *recipe, oct_split split,
                         oct_dataset *data) OCT_NODISCARD;
/* Builds the float model of a recipe for a data set, with initial parameters. */
oct_status oct_build_model(oct_module **model, const oct_recipe *recipe,
                           const oct_dataset *data) OCT_NODISCARD;
/* Prepares it as the recipe asks; report as for oct_prepare. */
oct_status oct_prepare_model(oct_module **model, const oct_recipe *recipe, const oct_dataset *data,
                             oct_text *report) OCT_NODISCARD;
/* What a prepared model does in a phase (but folding, which changes it: oct_fold_batch_norm). */
void oct_set_phase(oct_module *model, const oct_quantizers *quantizers, oct_phase phase);
/* A checkpoint is taken after a step, so it stands in that step's phase; the last one in the last
 * phase, whatever the lengths. */
oct_status oct_checkpoint_phase(const oct_checkpoint *checkpoint, oct_phase *phase) OCT_NODISCARD;
/* Builds the model in the phase of a checkpoint (prepared if it was) and loads its state. */
oct_status oct_build_from_checkpoint(oct_module **model, const oct_checkpoint *checkpoint,
                                     const oct_recipe *recipe, const oct_dataset *data,
                                     bool *prepared) OCT_NODISCARD;
