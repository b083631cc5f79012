/* What a key names is opened by rank 0 and goes to all ranks. */
#include "launch/session/checkpoint_key.h"

#include "core/base/mem.h"
#include "io/file/file.h"
#include "launch/session/file_kind.h"
#include "launch/session/job.h"
#include "launch/session/plan.h"
#include "launch/runfolder/run_folder.h"

#include <string.h>
#include <sys/stat.h>

static oct_status open_in_folder(const oct_checkpoint_key *key, bool newest,
                                 oct_checkpoint *checkpoint)
{
    char *folder = NULL;
    if (newest) return oct_job_checkpoint(checkpoint, key->path, OCT_FILE_RUN_FOLDER);
    OCT_TRY(oct_run_checkpoints(key->path, &folder));
    oct_status status =
        oct_checkpoint_newest_in(checkpoint, folder, oct_phase_name(OCT_PHASE_FLOAT));
    oct_free(&folder);
    if (status == OCT_OK && !checkpoint->bytes)
        status = oct_fail(OCT_DATA, "%s: this run has no checkpoint of its float phase", key->path);
    return status;
}

static oct_status open_file(const oct_checkpoint_key *key, bool newest, oct_checkpoint *checkpoint)
{
    oct_file_kind kind;
    struct stat info;
    const oct_status status = oct_file_kind_of(key->path, &kind);
    const bool file = stat(key->path, &info) == 0 && S_ISREG(info.st_mode);
    OCT_CHECK(status != OCT_DATA || !file, OCT_DATA, "%s: %s takes %s", key->path, key->name,
              key->takes);
    OCT_TRY(status);
    if (kind == OCT_FILE_RUN_FOLDER) return open_in_folder(key, newest, checkpoint);
    OCT_CHECK(kind == OCT_FILE_CHECKPOINT, OCT_DATA, "%s: this is %s %s; %s takes %s", key->path,
              kind == OCT_FILE_MODEL ? "an" : "a", oct_file_kind_name(kind), key->name, key->takes);
    return oct_checkpoint_open(checkpoint, key->path);
}

oct_status oct_checkpoint_key_open(const oct_checkpoint_key *key, bool newest,
                                   oct_checkpoint *checkpoint)
{
    *checkpoint = (oct_checkpoint){0};
    if (!key->path[0]) {
        OCT_CHECK(!(*key->digest)[0], OCT_USAGE,
                  "%s: there is no %s that it could be of; write %s: FILE", key->digest_name,
                  key->name, key->name);
        return OCT_OK;
    }
    const oct_status status = open_file(key, newest, checkpoint);
    return status == OCT_DATA ? oct_fail_prefix("%s", key->name) : status;
}

oct_status oct_checkpoint_key_digest(const oct_checkpoint_key *key,
                                     const oct_checkpoint *checkpoint)
{
    uint8_t digest[32];
    char hex[65];
    oct_sha256(checkpoint->bytes, checkpoint->size, digest);
    return oct_checkpoint_key_take(key, checkpoint->path, oct_hex(digest, hex));
}

oct_status oct_checkpoint_key_take(const oct_checkpoint_key *key, const char *path, const char *hex)
{
    OCT_CHECK(!(*key->digest)[0] || strcmp(*key->digest, hex) == 0, OCT_USAGE,
              "%s: %s has the SHA-256 %s, but %s is %s; leave %s out, or name the file that "
              "it is of",
              key->name, path, hex, key->digest_name, *key->digest, key->digest_name);
    oct_free(key->digest);
    return oct_strdup(key->digest, hex);
}

oct_status oct_checkpoint_key_share(const oct_checkpoint_key *key, oct_session *session,
                                    oct_status opened, oct_checkpoint *checkpoint)
{
    oct_status status = OCT_OK;
    OCT_TRY(oct_session_agree(session, opened));
    OCT_TRY(oct_job_share(session, checkpoint));
    if (session->group->rank != 0 && checkpoint->bytes)
        status = oct_checkpoint_key_digest(key, checkpoint);
    return oct_session_agree(session, status);
}
