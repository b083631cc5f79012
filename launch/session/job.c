/* A job starts on all ranks with the same threads, data and checkpoint. */
#include "launch/session/job.h"

#include "core/base/cpu.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/kernel/float_kernel.h"
#include "dist/comm.h"
#include "dist/rank_table.h"
#include "io/file/file.h"
#include "launch/base/machine.h"
#include "launch/base/output.h"
#include "launch/session/plugin_load.h"
#include "launch/runfolder/run_folder.h"
#include "launch/session/build.h"
#include <octet/version.h>

#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

enum { HOST_BYTES = 64 };

/* Counts the ranks on this host, as the launcher says. */
static int64_t count_local_ranks(void)
{
    int local_rank, ranks;
    return oct_launched_here(&local_rank, &ranks) && ranks > 0 ? ranks : 1;
}

int64_t oct_job_share_of_cores(void)
{
    int64_t share = oct_machine_cores() / count_local_ranks();
    return share > 0 ? share : 1;
}

void oct_job_threads(const oct_session *session, int64_t threads)
{
    omp_set_num_threads((int)threads);
    /* The process that started the ranks, where one did, has said it. */
    if (session->group->rank != 0 || getenv(OCT_RANK_TABLE_VARIABLE)) return;
    int64_t cores = oct_machine_cores(), ranks = count_local_ranks(),
            all = sysconf(_SC_NPROCESSORS_ONLN);
    if (threads > cores)
        oct_log(OCT_LOG_WARN,
                "threads: %lld, but each rank may use only %lld core%s; start mpirun with "
                "`--bind-to none`, or use --ranks",
                (long long)threads, (long long)cores, cores == 1 ? "" : "s");
    else if (ranks * threads > all)
        oct_log(OCT_LOG_WARN,
                "%lld rank%s of %lld thread%s on %lld cores; fewer would be faster and give the "
                "same bits",
                (long long)ranks, ranks == 1 ? "" : "s", (long long)threads,
                threads == 1 ? "" : "s", (long long)all);
}

oct_status oct_job_data(oct_session *session, const oct_recipe *recipe, oct_split split,
                        oct_dataset *data)
{
    uint8_t contents[32];
    OCT_OWNED(oct_text_free) oct_text plugins = {0};
    /* The code must be the same; each host may have it at another path. */
    OCT_TRY(oct_session_agree(session, oct_plugins_record(&plugins, false)));
    OCT_TRY(oct_session_agree(
        session, oct_comm_same(session->comm, plugins.data, plugins.length, "plug-ins")));
    OCT_TRY(oct_load_data(recipe, split, session->group, data));
    OCT_TRY(oct_session_agree(session, oct_dataset_contents(data, contents)));
    return oct_session_agree(session,
                             oct_comm_same(session->comm, contents, sizeof(contents),
                                           split == OCT_TRAIN ? "training data" : "test data"));
}

oct_status oct_job_share(oct_session *session, oct_checkpoint *checkpoint)
{
    const bool first = session->group->rank == 0, given = first && checkpoint->bytes;
    void *bytes = given ? checkpoint->bytes : NULL;
    char *path = given ? checkpoint->path : NULL;
    size_t size = given ? checkpoint->size : 0, path_bytes = given ? strlen(path) + 1 : 0;
    oct_status status = OCT_OK;
    if (session->group->size == 1) return OCT_OK;
    OCT_TRY_OUT(oct_session_share(session, &bytes, &size));
    OCT_TRY_OUT(oct_session_share(session, &path, &path_bytes));
    if (size == 0) return OCT_OK;
    if (!first) {
        void *taken = bytes;
        bytes = NULL;
        status = oct_checkpoint_from_bytes(checkpoint, path, taken, size);
    }
    status = oct_session_agree(session, status);
out:
    if (!first) {
        oct_free(&bytes);
        oct_free(&path);
    }
    return status;
}

/* Reads the recipe of the file's run folder, if any: where the data is on this machine, and what its user measures. */
static oct_status read_run_recipe(const char *file, oct_recipe *of_run, bool *found)
{
    OCT_OWNED(oct_free) char *folder = NULL, *path = NULL;
    oct_status status = OCT_OK;
    *found = false;
    OCT_TRY(oct_run_folder_of(file, &folder));
    if (!folder) return OCT_OK;
    OCT_TRY(oct_run_path(folder, "recipe.yaml", &path));
    status = oct_recipe_read(of_run, path, NULL, NULL, 0);
    *found = status == OCT_OK;
    if (!*found && status != OCT_RESOURCE) {
        oct_fail_clear(); /* not ours after all */
        status = OCT_OK;
    }
    return status;
}

oct_status oct_job_open_checkpoint(oct_checkpoint *checkpoint, const char *path, oct_file_kind kind)
{
    OCT_OWNED(oct_free) char *folder = NULL;
    if (kind != OCT_FILE_RUN_FOLDER) return oct_checkpoint_open(checkpoint, path);
    OCT_TRY(oct_run_checkpoints(path, &folder));
    oct_status status = oct_checkpoint_newest(checkpoint, folder, NULL);
    if (status == OCT_OK && !checkpoint->bytes)
        status = oct_fail(OCT_DATA,
                          "%s: this run has no checkpoint yet; repeat the `octet train` command "
                          "that started it",
                          path);
    return status;
}

/* Points the recipe of a checkpoint to the ONNX file in its run folder, or beside it, or else to what that folder's recipe
 * names; of_run is that recipe, or NULL. */
static oct_status find_onnx_copy(oct_recipe *recipe, const char *file, const oct_recipe *of_run)
{
    const char *slash = strrchr(file, '/');
    OCT_OWNED(oct_free) char *run = NULL, *beside = NULL, *copy = NULL;
    if (!recipe->model_onnx_sha256[0] || recipe->model_onnx[0]) return OCT_OK;
    OCT_TRY(oct_run_folder_of(file, &run));
    OCT_TRY(oct_format(&beside, "%.*s", slash ? (int)(slash - file) : 1, slash ? file : "."));
    OCT_TRY(oct_run_path(run ? run : beside, OCT_ONNX_COPY, &copy));
    const char *found = oct_file_exists(copy) ? copy : of_run ? of_run->model_onnx : "";
    oct_free(&recipe->model_onnx);
    return oct_strdup(&recipe->model_onnx, found);
}

/* Reads the recipe inside of a file; where the data is, and what is measured, comes from the recipe of its run folder. */
static oct_status read_recipe_of_file(oct_recipe *recipe, const char *file, const char *text,
                                      const char *plugins, const char *data_path)
{
    oct_recipe of_run;
    char *override = NULL;
    bool in_run;
    OCT_TRY(read_run_recipe(file, &of_run, &in_run));
    if (!data_path && in_run) data_path = of_run.data_path;
    oct_status status = OCT_OK;
    if (data_path) OCT_TRY_OUT(oct_format(&override, "data.path=%s", data_path));
    const char *overrides[] = {override};
    OCT_TRY_OUT(oct_recipe_read(recipe, file, text, overrides, data_path && *data_path ? 1 : 0));
    status = find_onnx_copy(recipe, file, in_run ? &of_run : NULL);
    if (in_run) {
        const oct_texts metrics = recipe->metrics;
        recipe->metrics = of_run.metrics;
        of_run.metrics = metrics;
    }
    if (status == OCT_OK) status = oct_plugins_load(&recipe->plugins, true, plugins);
    if (status != OCT_OK) {
        (void)oct_fail_prefix("%s", file); /* who wants them */
        oct_recipe_free(recipe);
    }
out:
    oct_free(&override);
    if (in_run) oct_recipe_free(&of_run);
    return status;
}

oct_status oct_job_checkpoint_recipe(oct_recipe *recipe, const oct_checkpoint *checkpoint,
                                     const char *data_path)
{
    return read_recipe_of_file(recipe, checkpoint->path, checkpoint->info.recipe, NULL, data_path);
}

/* Sets a number for each channel; a model may have others than recipes allow. */
static void set_channels(oct_reals *reals, const float *value, int64_t channels)
{
    reals->count = channels <= OCT_REALS_MAX ? (int)channels : 1;
    for (int i = 0; i < reals->count; i++)
        reals->value[i] = (double)value[i];
}

oct_status oct_job_program_recipe(oct_recipe *recipe, const char *file, const oct_model *m,
                                  const char *data, const char *const *overrides, size_t count)
{
    const oct_value *in = &m->program.values[m->program.inputs[0]],
                    *out = &m->program.values[m->program.output];
    const bool values = oct_model_gives_values(m);
    const bool map = out->h * out->w > 1 && (out->dtype == OCT_S32 ? 1 : m->classes) == out->c;
    const char *goal = values ? "values" : map ? "map" : "class";
    OCT_OWNED(oct_text_free) oct_text text = {0};
    OCT_TRY(oct_text_add(&text,
                         "schema: 1\nmodel:\n  name: program\nloss:\n  kind: %s\n"
                         "data:\n  goal: %s\n  classes: %d\n  channels: %d\n%s",
                         values ? "mse" : "cross_entropy", goal, m->classes,
                         in->c == 1 || in->c == 4 ? (int)in->c : 3, data ? data : ""));
    OCT_TRY(oct_recipe_read(recipe, file, text.data, overrides, count));
    if (!oct_words_give(overrides, count, "data.mean="))
        set_channels(&recipe->data_mean, m->mean, in->c);
    if (!oct_words_give(overrides, count, "data.std="))
        set_channels(&recipe->data_std, m->std, in->c);
    /* Data without a test part are for testing as a whole. */
    if (!oct_words_give(overrides, count, "data.split=")) recipe->data_split = 1;
    return OCT_OK;
}

oct_status oct_job_model_recipe(oct_recipe *recipe, const char *file, const oct_model *model,
                                const char *data_path)
{
    if (!oct_model_has_recipe(model))
        return oct_job_program_recipe(recipe, file, model, NULL, NULL, 0);
    return read_recipe_of_file(recipe, file, model->recipe, model->plugins, data_path);
}

/* Makes an object of the variables that decide how a run computes, and how it was started. */
static json_t *environment_record(void)
{
    static const char *const prefixes[] = {"OMP_", "GOMP_", "OCT_", "OMPI_COMM_WORLD_",
                                           "SLURM_JOB_ID"};
    json_t *object = json_object();
    for (char **entry = environ; *entry; entry++) {
        const char *equals = strchr(*entry, '=');
        for (size_t i = 0; equals && i < OCT_COUNT(prefixes); i++)
            if (strncmp(*entry, prefixes[i], strlen(prefixes[i])) == 0) {
                char name[128] = "";
                size_t length = (size_t)(equals - *entry);
                if (length < sizeof(name)) {
                    memcpy(name, *entry, length);
                    json_object_set_new(object, name, json_string(equals + 1));
                }
            }
    }
    return object;
}

static json_t *data_record(const oct_dataset *data)
{
    char hex[65], all[65];
    uint8_t contents[32];
    if (oct_dataset_contents(data, contents) != OCT_OK) return NULL;
    return json_pack("{s:I, s:s, s:s}", "images", (json_int_t)data->count, "sha256",
                     oct_hex(data->digest, hex), "contents", oct_hex(contents, all));
}

json_t *oct_job_data_record(const oct_dataset *train_data, const oct_dataset *test_data)
{
    return json_pack("{s:o, s:o}", "train", data_record(train_data), "test",
                     data_record(test_data));
}

/* Collective: refuses different float kernels: OpenBLAS computes other bits than ours, and others on other hosts. */
static oct_status check_float_kernels(const oct_collective *group)
{
    const bool blas = oct_float_kernel_here() == &oct_float_kernel_blas;
    const char *name = oct_float_kernel_name();
    const int64_t mine = blas ? (int64_t)(oct_digest(name, strlen(name)) >> 1) : 0;
    int64_t words[] = {mine, -mine}; /* maximum and, negated, minimum over the ranks */
    OCT_TRY(group->max_i64(group, words, OCT_COUNT(words)));
    OCT_CHECK(
        words[0] == -words[1], OCT_USAGE,
        "float products are made by OpenBLAS on some ranks and not on others, or by other "
        "kernels of it (here: %s), so that the number of ranks would change bits; set OCT_ISA=ref "
        "on all hosts, or use hosts of one kind",
        name);
    return OCT_OK;
}

oct_status oct_job_describe(oct_session *session, const oct_args *args, const oct_recipe *recipe,
                            const oct_dataset *train_data, const oct_dataset *test_data,
                            json_t **description)
{
    const oct_collective *group = session->group;
    char host[HOST_BYTES] = "", started[32];
    OCT_OWNED(oct_free) char *hosts = NULL;
    const bool first = group->rank == 0;
    *description = NULL;
    strncpy(host, oct_comm_host(session->comm), sizeof(host) - 1);
    OCT_TRY(oct_session_agree(session,
                              first ? oct_alloc(&hosts, (size_t)group->size, HOST_BYTES) : OCT_OK));
    OCT_TRY(group->gather(group, host, sizeof(host), hosts));
    OCT_TRY(check_float_kernels(group));
    if (!first) return OCT_OK;

    json_t *command = json_array(), *host_names = json_array();
    for (int i = 0; i < args->argc; i++)
        json_array_append_new(command, oct_json_string(args->argv[i]));
    for (int rank = 0; rank < group->size; rank++)
        json_array_append_new(host_names, json_string(hosts + (size_t)rank * HOST_BYTES));
    const time_t seconds = time(NULL);
    struct tm parts;
    strftime(started, sizeof started, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &parts));
    *description =
        json_pack("{s:s, s:s, s:o, s:i, s:I, s:o, s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:o}",
                  "version", OCT_VERSION, "started", started, "command", command, "ranks",
                  group->size, "threads", (json_int_t)recipe->threads, "hosts", host_names, "cpu",
                  oct_cpu_model(), "isa", oct_isa_best(), "float_kernel", oct_float_kernel_name(),
                  "numerics", oct_numerics_name(recipe->numerics), "mpi",
                  oct_comm_library(session->comm), "plugins", oct_plugins_json(), "environment",
                  environment_record(), "data", oct_job_data_record(train_data, test_data));
    OCT_CHECK(*description, OCT_RESOURCE, "run.json: out of memory");
    return OCT_OK;
}
