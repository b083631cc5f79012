/* `init` of a recipe names the checkpoint that a run starts from. */
#pragma once

#include "io/checkpoint.h"
#include "io/recipe.h"
#include "launch/run/session.h"

/* Opens what recipe->init names and sets recipe->init_sha256 by it; bytes NULL when it names nothing.
 * OCT_USAGE when the file is of the wrong phase or is not the one whose digest the recipe holds. */
oct_status oct_init_open(oct_recipe *recipe, oct_checkpoint *checkpoint) OCT_NODISCARD;
/* Collective: rank 0 opens, all ranks have it. */
oct_status oct_init_share(oct_session *session, oct_recipe *recipe,
                          oct_checkpoint *checkpoint) OCT_NODISCARD;
