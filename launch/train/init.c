/* The files that a run starts from are opened by rank 0 and go to all ranks; their weights go into the model. */
#include "launch/train/training.h"

#include "core/base/mem.h"
#include "io/file/file.h"
#include "io/weights/fit.h"
#include "launch/runfolder/run_folder.h"
#include "launch/session/file_kind.h"
#include "launch/session/job.h"
#include "launch/session/task.h"

#include <string.h>
#include <sys/stat.h>

/* A key of a recipe may name a checkpoint of another run. Only the digest of the file is part of the recipe's identity,
 * so the file may move, and a resume with another one is refused. */
typedef struct checkpoint_key {
    const char *name, *digest_name; /* of the two keys, for messages */
    const char *path;               /* "": none is named */
    char **digest;                  /* SHA-256 of the file; "": not known yet */
    const char *takes;              /* for messages: "a checkpoint or a run folder" */
} checkpoint_key;

/* Opens the file that the key names; of a run folder the newest checkpoint, or without `newest` the last float one. */
static oct_status open_named_checkpoint(const checkpoint_key *key, bool newest,
                                        oct_checkpoint *checkpoint)
{
    oct_file_kind kind;
    struct stat info;
    oct_status status = oct_file_kind_of(key->path, &kind);
    const bool file = stat(key->path, &info) == 0 && S_ISREG(info.st_mode);
    OCT_CHECK(status != OCT_DATA || !file, OCT_DATA, "%s: %s takes %s", key->path, key->name,
              key->takes);
    OCT_TRY(status);
    if (kind == OCT_FILE_RUN_FOLDER && newest)
        return oct_job_open_checkpoint(checkpoint, key->path, OCT_FILE_RUN_FOLDER);
    if (kind == OCT_FILE_RUN_FOLDER) {
        char *folder = NULL;
        OCT_TRY(oct_run_checkpoints(key->path, &folder));
        status = oct_checkpoint_newest(checkpoint, folder, oct_phase_name(OCT_PHASE_FLOAT));
        oct_free(&folder);
        OCT_CHECK(status != OCT_OK || checkpoint->bytes, OCT_DATA,
                  "%s: this run has no checkpoint of its float phase", key->path);
        return status;
    }
    OCT_CHECK(kind == OCT_FILE_CHECKPOINT, OCT_DATA, "%s: this is %s %s; %s takes %s", key->path,
              kind == OCT_FILE_MODEL ? "an" : "a", oct_file_kind_name(kind), key->name, key->takes);
    return oct_checkpoint_open(checkpoint, key->path);
}

/* Opens the checkpoint that the key names (newest: of a run folder, in any phase); an empty one where it names none. */
static oct_status open_checkpoint_of_key(const checkpoint_key *key, bool newest,
                                         oct_checkpoint *checkpoint)
{
    *checkpoint = (oct_checkpoint){0};
    if (!key->path[0]) {
        OCT_CHECK(!(*key->digest)[0], OCT_USAGE,
                  "%s: there is no %s that it could be of; write %s: FILE", key->digest_name,
                  key->name, key->name);
        return OCT_OK;
    }
    const oct_status status = open_named_checkpoint(key, newest, checkpoint);
    return status == OCT_DATA ? oct_fail_prefix("%s", key->name) : status;
}

/* Sets the digest of the key; OCT_USAGE when the recipe holds another one. */
static oct_status check_and_set_digest(const checkpoint_key *key, const char *path, const char *hex)
{
    OCT_CHECK(!(*key->digest)[0] || strcmp(*key->digest, hex) == 0, OCT_USAGE,
              "%s: %s has the SHA-256 %s, but %s is %s; leave %s out, or name the file that "
              "it is of",
              key->name, path, hex, key->digest_name, *key->digest, key->digest_name);
    oct_free(key->digest);
    return oct_strdup(key->digest, hex);
}

static oct_status check_and_set_checkpoint_digest(const checkpoint_key *key,
                                                  const oct_checkpoint *checkpoint)
{
    uint8_t digest[32];
    char hex[65];
    oct_sha256(checkpoint->bytes, checkpoint->size, digest);
    return check_and_set_digest(key, checkpoint->path, oct_hex(digest, hex));
}

/* Collective: all ranks get the checkpoint that rank 0 opened with the status `opened`, and set its digest. */
static oct_status share_checkpoint(const checkpoint_key *key, oct_session *session,
                                   oct_status opened, oct_checkpoint *checkpoint)
{
    OCT_TRY(oct_session_agree(session, opened));
    OCT_TRY(oct_job_share(session, checkpoint));
    const bool got = session->group->rank != 0 && checkpoint->bytes;
    return oct_session_agree(session,
                             got ? check_and_set_checkpoint_digest(key, checkpoint) : OCT_OK);
}

/* distill.teacher */

static checkpoint_key teacher_key(oct_recipe *recipe)
{
    const bool named = oct_teacher_wanted(recipe) && !oct_teacher_is_own(recipe);
    return (checkpoint_key){"distill.teacher", "distill.sha256",
                            named ? recipe->distill_teacher : "", &recipe->distill_sha256,
                            "a checkpoint or a run folder"};
}

oct_status oct_teacher_open(oct_recipe *recipe, oct_checkpoint *checkpoint)
{
    const checkpoint_key key = teacher_key(recipe);
    OCT_TRY(open_checkpoint_of_key(&key, false, checkpoint));
    if (!checkpoint->bytes) return OCT_OK;
    const oct_status status = check_and_set_checkpoint_digest(&key, checkpoint);
    if (status != OCT_OK) oct_checkpoint_close(checkpoint);
    return status;
}

/* init */

static oct_status check_init_phase(const oct_recipe *recipe, const oct_checkpoint *checkpoint)
{
    oct_phase phase;
    OCT_TRY(oct_checkpoint_phase(checkpoint, &phase));
    OCT_CHECK(
        recipe->init_observers || phase == OCT_PHASE_FLOAT, OCT_USAGE,
        "init: %s is of the phase %s, but weights come from a checkpoint of the float phase, "
        "which a run folder keeps; to take this one with its quantizers, write "
        "init_observers: true and float.epochs: 0; to take its weights alone, such as for another "
        "target, name what `octet export --format onnx` makes of it as model.onnx",
        checkpoint->path, checkpoint->info.phase);
    OCT_CHECK(
        !recipe->init_observers || phase != OCT_PHASE_FLOAT, OCT_USAGE,
        "init: %s is from the float phase and has no quantizers yet; leave init_observers out",
        checkpoint->path);
    return OCT_OK;
}

static checkpoint_key init_key(oct_recipe *recipe)
{
    return (checkpoint_key){"init", "init_sha256", recipe->init, &recipe->init_sha256,
                            "a checkpoint, a run folder, or weights by name in a .safetensors, "
                            ".npz or .onnx file"};
}

static oct_status open_weights_file(oct_recipe *recipe, oct_weights *weights)
{
    const checkpoint_key key = init_key(recipe);
    OCT_CHECK(!recipe->init_observers, OCT_USAGE,
              "init: %s is a file of weights and has no quantizers; leave init_observers out",
              recipe->init);
    oct_status status = oct_weights_read(weights, recipe->init);
    if (status != OCT_OK) return status == OCT_DATA ? oct_fail_prefix("init") : status;
    status = check_and_set_digest(&key, weights->path, weights->digest);
    if (status != OCT_OK) oct_weights_free(weights);
    return status;
}

oct_status oct_init_open(oct_recipe *recipe, oct_init *init)
{
    const checkpoint_key key = init_key(recipe);
    oct_checkpoint *checkpoint = &init->checkpoint;
    *init = (oct_init){0};
    if (recipe->init[0] && oct_weights_is(recipe->init))
        return open_weights_file(recipe, &init->weights);
    OCT_TRY(open_checkpoint_of_key(&key, recipe->init_observers, checkpoint));
    if (!checkpoint->bytes) return OCT_OK;
    oct_status status = check_init_phase(recipe, checkpoint);
    if (status == OCT_OK && recipe->init_map.count + recipe->init_skip.count > 0)
        status =
            oct_fail(OCT_USAGE,
                     "init: %s is a checkpoint of Octet's, which fits as a whole; init_map and "
                     "init_skip are for files of weights",
                     checkpoint->path);
    if (status == OCT_OK) status = check_and_set_checkpoint_digest(&key, checkpoint);
    if (status != OCT_OK) oct_checkpoint_close(checkpoint);
    return status;
}

/* Collective: gives rank 0's file of weights to all ranks, which set its digest in their recipes. */
static oct_status share_weights(oct_session *session, oct_recipe *recipe, oct_weights *w)
{
    const oct_collective *group = session->group;
    const checkpoint_key key = init_key(recipe);
    const bool first = group->rank == 0;
    oct_weights shared = *w; /* its blocks apart */
    OCT_ASSERT(!first || w->path);
    size_t path = first ? strlen(w->path) + 1 : 0;
    shared.path = shared.names = NULL;
    shared.arrays = NULL;
    shared.values = NULL;
    OCT_TRY(group->broadcast(group, &shared, sizeof shared, 0));
    if (!first) *w = shared;
    size_t arrays = (size_t)w->count * sizeof *w->arrays, names = (size_t)w->name_bytes;
    size_t values = (size_t)w->num_values * sizeof *w->values;
    OCT_TRY(oct_session_share(session, &w->path, &path));
    OCT_TRY(oct_session_share(session, &w->arrays, &arrays));
    OCT_TRY(oct_session_share(session, &w->names, &names));
    OCT_TRY(oct_session_share(session, &w->values, &values));
    return oct_session_agree(session,
                             first ? OCT_OK : check_and_set_digest(&key, w->path, w->digest));
}

oct_status oct_init_share(oct_session *session, oct_recipe *recipe, oct_init *init)
{
    const oct_collective *group = session->group;
    const checkpoint_key key = init_key(recipe);
    *init = (oct_init){0};
    OCT_TRY(oct_session_agree(session, group->rank == 0 ? oct_init_open(recipe, init) : OCT_OK));
    bool weights = init->weights.path != NULL;
    OCT_TRY(group->broadcast(group, &weights, sizeof weights, 0));
    if (weights) return share_weights(session, recipe, &init->weights);
    return share_checkpoint(&key, session, OCT_OK, &init->checkpoint);
}

oct_status oct_teacher_share(oct_session *session, oct_recipe *recipe, oct_checkpoint *checkpoint)
{
    const checkpoint_key key = teacher_key(recipe);
    const bool first = session->group->rank == 0;
    *checkpoint = (oct_checkpoint){0};
    return share_checkpoint(&key, session, first ? oct_teacher_open(recipe, checkpoint) : OCT_OK,
                            checkpoint);
}

void oct_init_close(oct_init *init)
{
    oct_checkpoint_close(&init->checkpoint);
    oct_weights_free(&init->weights);
}

static oct_status report_weights(const oct_weights *w, const oct_weight_report *r,
                                 const oct_recipe *recipe, oct_text *lines)
{
    OCT_TRY(oct_text_add(lines, "weights of %s: %lld of the model's %lld parameters and buffers\n",
                         w->path, (long long)r->taken, (long long)r->wanted));
    if (r->classifier.length > 0)
        OCT_TRY(oct_text_add(lines, "init: the last layer keeps its initial values: %s\n",
                             r->classifier.data));
    if (r->kept > 0)
        OCT_TRY(oct_text_add(lines, "init: %lld keep%s their initial values: %s\n",
                             (long long)r->kept, r->kept == 1 ? "s" : "", r->kept_names.data));
    if (r->taken < r->wanted - r->taken && recipe->init_skip.count == 0)
        OCT_TRY(oct_text_add(lines,
                             "init: most of the model is not in the file; compare the names, "
                             "init_map renames them\n"));
    if (r->unused > 0)
        OCT_TRY(oct_text_add(lines, "init: %lld array%s of the file %s not used: %s\n",
                             (long long)r->unused, r->unused == 1 ? "" : "s",
                             r->unused == 1 ? "is" : "are", r->unused_names.data));
    return OCT_OK;
}

oct_status oct_init_weights(const oct_init *init, oct_module *model, const oct_recipe *recipe,
                            const oct_dataset *data, oct_text *lines)
{
    const oct_weight_rules rules = {&recipe->init_map, &recipe->init_skip};
    oct_weight_report report;
    if (!init->weights.path) return OCT_OK;
    oct_status status =
        oct_weights_load(&init->weights, model,
                         OCT_EXAMPLE(OCT_SHAPE(1, data->h, data->w, data->c)), &rules, &report);
    if (status == OCT_OK && lines) status = report_weights(&init->weights, &report, recipe, lines);
    oct_weight_report_free(&report);
    return status;
}

oct_status oct_init_apply(const oct_init *init, oct_trainer *trainer, oct_text *lines)
{
    const oct_checkpoint *checkpoint = &init->checkpoint;
    if (!checkpoint->bytes)
        return oct_init_weights(init, trainer->model, trainer->recipe, trainer->train_data, lines);
    if (trainer->recipe->init_observers) OCT_TRY(oct_trainer_enter(trainer, OCT_PHASE_CALIBRATE));
    OCT_OWNED(oct_text_free) oct_text differences = {0};
    OCT_TRY(oct_checkpoint_compare(checkpoint, trainer->model, &differences));
    const char *why = trainer->recipe->init_observers
                          ? ", or was prepared by other quant keys, such as for another target"
                          : "";
    OCT_CHECK(differences.length == 0, OCT_USAGE,
              "init: %s does not fit %s%s; these parts differ:\n%s", checkpoint->path,
              oct_recipe_model(trainer->recipe), why, differences.data);
    OCT_TRY(oct_checkpoint_load(checkpoint, trainer->model, NULL));
    if (!lines) return OCT_OK;
    return oct_text_add(lines, "weights of %s (step %lld, phase %s)\n", checkpoint->path,
                        (long long)checkpoint->info.step, checkpoint->info.phase);
}
