/* A run can start from another one's weights. */
#include "launch/run/init.h"

#include "launch/run/build.h"
#include "launch/run/checkpoint_key.h"

static oct_status check_phase(const oct_recipe *recipe, const oct_checkpoint *checkpoint)
{
    oct_phase phase;
    OCT_TRY(oct_checkpoint_phase(checkpoint, &phase));
    OCT_CHECK(recipe->init_observers || phase == OCT_PHASE_FLOAT, OCT_USAGE,
              "init: %s is of the phase %s, but weights come from a checkpoint of the float phase, "
              "which a run folder keeps; to take this one with its quantizers, write "
              "init_observers: true and float.epochs: 0",
              checkpoint->path, checkpoint->info.phase);
    OCT_CHECK(
        !recipe->init_observers || phase != OCT_PHASE_FLOAT, OCT_USAGE,
        "init: %s is from the float phase and has no quantizers yet; leave init_observers out",
        checkpoint->path);
    return OCT_OK;
}

static oct_checkpoint_key key_of(oct_recipe *recipe)
{
    return (oct_checkpoint_key){"init", "init_sha256", recipe->init, &recipe->init_sha256};
}

oct_status oct_init_open(oct_recipe *recipe, oct_checkpoint *checkpoint)
{
    const oct_checkpoint_key key = key_of(recipe);
    OCT_TRY(oct_checkpoint_key_open(&key, recipe->init_observers, checkpoint));
    if (!checkpoint->bytes) return OCT_OK;
    oct_status status = check_phase(recipe, checkpoint);
    if (status == OCT_OK) status = oct_checkpoint_key_digest(&key, checkpoint);
    if (status != OCT_OK) oct_checkpoint_close(checkpoint);
    return status;
}

oct_status oct_init_share(oct_session *session, oct_recipe *recipe, oct_checkpoint *checkpoint)
{
    const oct_checkpoint_key key = key_of(recipe);
    oct_status status = OCT_OK;
    *checkpoint = (oct_checkpoint){0};
    if (session->group->rank == 0) status = oct_init_open(recipe, checkpoint);
    return oct_checkpoint_key_share(&key, session, status, checkpoint);
}
