/* A run can start from another one's weights. Only the digest of the file is part of the recipe's
 * identity, so it may move, and a resume with another file is refused. */
#include "launch/run/init.h"

#include "core/base/mem.h"
#include "io/file.h"
#include "launch/run/file_kind.h"
#include "launch/run/job.h"
#include "launch/run/run_folder.h"
#include "launch/run/build.h"

#include <string.h>

/* A run folder gives the end of its float phase, or with observers its newest checkpoint. */
static oct_status open_in_folder(const oct_recipe *recipe, oct_checkpoint *checkpoint)
{
    char *folder = NULL;
    const char *phase = oct_phase_name(OCT_PHASE_FLOAT);
    if (recipe->init_observers)
        return oct_job_checkpoint(checkpoint, recipe->init, OCT_FILE_RUN_FOLDER);
    OCT_TRY(oct_run_checkpoints(recipe->init, &folder));
    oct_status status = oct_checkpoint_newest_in(checkpoint, folder, phase);
    oct_free(&folder);
    if (status == OCT_OK && !checkpoint->bytes)
        status =
            oct_fail(OCT_DATA, "%s: this run has no checkpoint of its float phase", recipe->init);
    return status;
}

static oct_status open_file(const oct_recipe *recipe, oct_checkpoint *checkpoint)
{
    oct_file_kind kind;
    OCT_TRY(oct_file_kind_of(recipe->init, &kind));
    if (kind == OCT_FILE_RUN_FOLDER) return open_in_folder(recipe, checkpoint);
    OCT_CHECK(kind == OCT_FILE_CHECKPOINT, OCT_DATA,
              "%s: this is %s %s; init takes a checkpoint or a run folder", recipe->init,
              kind == OCT_FILE_MODEL ? "an" : "a", oct_file_kind_name(kind));
    return oct_checkpoint_open(checkpoint, recipe->init);
}

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

static oct_status take_digest(oct_recipe *recipe, const oct_checkpoint *checkpoint)
{
    uint8_t digest[32];
    char hex[65];
    oct_sha256(checkpoint->bytes, checkpoint->size, digest);
    oct_hex(digest, hex);
    OCT_CHECK(!recipe->init_sha256[0] || strcmp(recipe->init_sha256, hex) == 0, OCT_USAGE,
              "init: %s has the SHA-256 %s, but init_sha256 is %s; leave init_sha256 out, or name "
              "the checkpoint that it is of",
              checkpoint->path, hex, recipe->init_sha256);
    oct_free(&recipe->init_sha256);
    return oct_strdup(&recipe->init_sha256, hex);
}

oct_status oct_init_open(oct_recipe *recipe, oct_checkpoint *checkpoint)
{
    *checkpoint = (oct_checkpoint){0};
    if (!recipe->init[0]) {
        OCT_CHECK(!recipe->init_sha256[0], OCT_USAGE,
                  "init_sha256: there is no init that it could be of; write init: FILE");
        return OCT_OK;
    }
    oct_status status = open_file(recipe, checkpoint);
    if (status == OCT_DATA) return oct_fail_prefix("init");
    OCT_TRY(status);
    status = check_phase(recipe, checkpoint);
    if (status == OCT_OK) status = take_digest(recipe, checkpoint);
    if (status != OCT_OK) oct_checkpoint_close(checkpoint);
    return status;
}

oct_status oct_init_share(oct_session *session, oct_recipe *recipe, oct_checkpoint *checkpoint)
{
    bool first = session->group->rank == 0;
    oct_status status = OCT_OK;
    *checkpoint = (oct_checkpoint){0};
    if (first) status = oct_init_open(recipe, checkpoint);
    OCT_TRY(oct_session_agree(session, status));
    OCT_TRY(oct_job_share(session, checkpoint));
    if (!first && checkpoint->bytes) status = take_digest(recipe, checkpoint);
    return oct_session_agree(session, status);
}
