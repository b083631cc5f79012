/* Training takes a run in its folder from its newest checkpoint to the int8 model.
 *
 * The files that a run starts from: `init` of a recipe names a checkpoint of another run, or a file of weights from
 * another framework (io/weights/weights.h); `distill.teacher` names the checkpoint of a teacher. */
#pragma once

#include "io/recipe/recipe.h"
#include "io/weights/weights.h"
#include "launch/train/trainer.h"

#include <jansson.h>

typedef struct oct_init {
    oct_checkpoint checkpoint; /* bytes NULL: none */
    oct_weights weights;       /* path NULL: none */
} oct_init;

/* Opens what recipe->init names and sets recipe->init_sha256 by it; empty when it names nothing.
 * OCT_USAGE when the file is of the wrong phase or is not the one whose digest the recipe holds. */
oct_status oct_init_open(oct_recipe *recipe, oct_init *init);
/* Collective: rank 0 opens, all ranks have it. Close it also after a failure. */
oct_status oct_init_share(oct_session *session, oct_recipe *recipe, oct_init *init);
void oct_init_close(oct_init *init);
static inline bool oct_init_given(const oct_init *init)
{
    return init->checkpoint.bytes || init->weights.path;
}
/* Loads the weights file into the float model of a recipe; does nothing without a file. *lines as below. */
oct_status oct_init_weights(const oct_init *init, oct_module *model, const oct_recipe *recipe,
                            const oct_dataset *data, oct_text *lines);
/* Sets the values of a trainer at step 0. *lines (may be NULL) gets a line that says what was loaded, and one for each thing
 * that was not. OCT_USAGE with all that does not fit. */
oct_status oct_init_apply(const oct_init *init, oct_trainer *trainer, oct_text *lines);

/* Opens what distill.teacher names and sets recipe->distill_sha256 by it; bytes NULL when it names no file. */
oct_status oct_teacher_open(oct_recipe *recipe, oct_checkpoint *checkpoint);
/* Collective: rank 0 opens it, all ranks have it. Close it also after a failure. */
oct_status oct_teacher_share(oct_session *session, oct_recipe *recipe, oct_checkpoint *checkpoint);

/* From now on SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU and (unless nohup has had it ignored) SIGHUP ask for a stop: at
 * the end of the step, or before the first. A second one acts as usual, but for SIGHUP. */
void oct_train_catch_signals(void);

/* Collective: opens the files that the recipe names as starts, and takes the run to its end.
 * *result: on rank 0 the result record (new reference), of this run or of the finished one
 * that was found; NULL elsewhere. OCT_STOPPED when a signal asked for it and all is saved. */
oct_status oct_train(oct_session *session, const oct_args *args, oct_recipe *recipe,
                     json_t **result);
