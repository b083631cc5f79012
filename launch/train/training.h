/* Training takes a run in its folder from its newest checkpoint to the int8 model. */
#pragma once

#include "launch/train/init.h"
#include "launch/session/session.h"

#include <jansson.h>

/* From now on SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU and (unless nohup has had it ignored) SIGHUP ask for a stop: at
 * the end of the step, or before the first. A second one acts as usual, but for SIGHUP. */
void oct_train_catch_signals(void);

/* Collective.
 * *result: on rank 0 the result record (new reference), of this run or of the finished one
 * that was found; NULL elsewhere. OCT_STOPPED when a signal asked for it and all is saved. */
oct_status oct_train(oct_session *session, const oct_args *args, const oct_recipe *recipe,
                     oct_train_files *files, json_t **result) OCT_NODISCARD;
