/* A whole run in its folder: from where it stands to the int8 model. */
#pragma once

#include "io/recipe.h"
#include "launch/session.h"

#include <jansson.h>

/* Collective. *result: on rank 0 the result record (new reference), of this run or of the finished one
 * that was found; NULL elsewhere. OCT_STOPPED when a signal asked for it and all is saved. */
oct_status oct_train(oct_session *session, const oct_args *args, const oct_recipe *recipe,
                     json_t **result) OCT_NODISCARD;
