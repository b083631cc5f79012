/* A recipe is run by the commands that make an int8 model of it. */
#pragma once

#include "launch/session/session.h"
#include "launch/train/training.h"

/* Collective: the recipe's run in its folder, as oct_train, with the files that it names and the report of the run.
 * *result: on rank 0 the result record (new reference); NULL elsewhere. */
oct_status oct_run_recipe(oct_session *session, const oct_args *args, oct_recipe *recipe,
                          json_t **result) OCT_NODISCARD;
