/* Which run is in a folder: its paths, recipe, records and result. */
#include "launch/runfolder/run_folder.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "io/file/file.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static const size_t metrics_limit = (size_t)1 << 30;

oct_status oct_run_path(const char *folder, const char *name, char **path)
{
    return oct_format(path, oct_ends_with(folder, "/") ? "%s%s" : "%s/%s", folder, name);
}

/* *empty: no folder, or nothing in it but our lock and what a killed session was writing; others are left alone. */
static oct_status check_if_empty(const char *path, bool *empty)
{
    *empty = true;
    DIR *folder = opendir(path);
    if (!folder) {
        int error = errno;
        OCT_CHECK(error == ENOENT, error == ENOTDIR ? OCT_USAGE : OCT_RESOURCE,
                  "output: %s: %s; choose another output=", path,
                  error == ENOTDIR ? "is a file, not a folder" : strerror(error));
        return OCT_OK;
    }
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && strcmp(name, "lock") != 0 &&
            !oct_file_is_temp(name))
            *empty = false;
    }
    closedir(folder);
    return OCT_OK;
}

oct_status oct_run_same_recipe(const char *path, const char *text, const oct_recipe *recipe)
{
    OCT_OWNED(oct_recipe_free) oct_recipe recipe_of_run = {0};
    OCT_OWNED(oct_text_free) oct_text differences = {0};
    OCT_TRY(oct_recipe_read(&recipe_of_run, path, text, NULL, 0));
    OCT_TRY(oct_recipe_compare(&recipe_of_run, recipe, &differences));
    if (differences.length == 0) return OCT_OK;
    while (differences.data[differences.length - 1] == '\n')
        differences.data[--differences.length] = '\0';
    return oct_fail(OCT_USAGE, "%s%s%s; choose another output=, or use the values of that run\n%s",
                    text ? "" : "output: ", text ? path : recipe->output,
                    text ? ": is of another recipe" : " holds a run of another recipe",
                    differences.data);
}

oct_status oct_run_folder_records(const char *path, json_t **records, size_t *bad_line)
{
    OCT_OWNED(oct_free) void *bytes = NULL;
    size_t size = 0;
    if (bad_line) *bad_line = 0;
    *records = json_array();
    OCT_CHECK(*records, OCT_RESOURCE, "%s: out of memory", path);
    if (!oct_file_exists(path)) return OCT_OK;
    OCT_TRY(oct_file_read(path, metrics_limit, &bytes, &size));
    const char *line = bytes, *end = line + size;
    while (line < end) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop) break; /* cut short */
        json_t *record = json_loadb(line, (size_t)(stop - line), 0, NULL);
        if (!json_is_object(record)) {
            json_decref(record);
            if (bad_line) *bad_line = json_array_size(*records) + 1;
            break;
        }
        json_array_append_new(*records, record);
        line = stop + 1;
    }
    return OCT_OK;
}

const json_t *oct_run_records_newest(const json_t *records, const char *kind, const char *phase)
{
    for (size_t i = json_array_size(records); i > 0; i--) {
        const json_t *record = json_array_get(records, i - 1);
        const char *its_kind = json_string_value(json_object_get(record, "kind"));
        const char *its_phase = json_string_value(json_object_get(record, "phase"));
        if (its_kind && strcmp(its_kind, kind) == 0 &&
            (!phase || (its_phase && strcmp(its_phase, phase) == 0)))
            return record;
    }
    return NULL;
}

/* Sets the paths in a result to where the files are now: the folder may have been moved since it was written. */
static oct_status update_result_paths(const char *folder, const char *model, json_t *result)
{
    OCT_OWNED(oct_free) char *path = NULL;
    const char *written = json_string_value(json_object_get(result, "checkpoint"));
    const char *slash = written ? strrchr(written, '/') : NULL;
    json_object_set_new(result, "model", json_string(model));
    if (!written) return OCT_OK;
    OCT_TRY(oct_format(&path, "%s/checkpoints/%s", folder, slash ? slash + 1 : written));
    if (!oct_file_exists(path))
        oct_log(OCT_LOG_WARN,
                "%s: the last checkpoint of this finished run is gone; its int8 model and results "
                "are not touched by that",
                path);
    json_object_set_new(result, "checkpoint", json_string(path));
    return OCT_OK;
}

/* Finds the result of a finished run: *result stays NULL where the int8 model is not the file that was recorded. */
static oct_status find_result(const char *folder, json_t **result)
{
    size_t size;
    char hex[65];
    OCT_OWNED(oct_free) char *metrics = NULL, *model = NULL;
    json_auto_t *records = NULL;
    OCT_TRY(oct_run_path(folder, "metrics.jsonl", &metrics));
    OCT_TRY(oct_run_path(folder, "model.int8.h5", &model));
    OCT_TRY(oct_run_folder_records(metrics, &records, NULL));
    const json_t *found = oct_run_records_newest(records, "result", NULL);
    const char *digest = json_string_value(json_object_get(found, "model_sha256"));
    if (digest && oct_file_exists(model)) {
        const bool known = oct_file_sha256(model, &size, hex) == OCT_OK;
        if (!known) oct_fail_clear();
        if (known && strcmp(hex, digest) == 0) *result = json_deep_copy(found);
    }
    return *result ? update_result_paths(folder, model, *result) : OCT_OK;
}

oct_status oct_run_folder_look(const oct_recipe *recipe, json_t **result)
{
    OCT_OWNED(oct_free) char *path = NULL;
    bool empty;
    *result = NULL;
    OCT_TRY(check_if_empty(recipe->output, &empty));
    if (empty) return OCT_OK;
    OCT_TRY(oct_run_path(recipe->output, "recipe.yaml", &path));
    OCT_CHECK(oct_file_exists(path), OCT_USAGE,
              "output: %s is not empty, but holds no Octet run (no recipe.yaml); choose another "
              "output=",
              recipe->output);
    OCT_TRY(oct_run_same_recipe(path, NULL, recipe));
    return find_result(recipe->output, result);
}

oct_status oct_run_folder_log(const char *folder)
{
    OCT_OWNED(oct_free) char *path = NULL;
    OCT_TRY(oct_run_path(folder, "log.txt", &path));
    return oct_log_file(path);
}

/* Cuts the last part of a path that is not empty: "a/b" becomes "a", "a" becomes ".". */
static void cut_to_parent(char *path)
{
    char *slash = strrchr(path, '/');
    if (!slash) path[0] = '.';
    path[!slash || slash == path ? 1 : slash - path] = '\0';
}

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

oct_status oct_run_checkpoints(const char *path, char **folder)
{
    OCT_TRY(oct_run_path(path, "checkpoints", folder));
    if (is_folder(*folder)) return OCT_OK;
    OCT_OWNED(oct_free) char *recipe = NULL;
    OCT_TRY(oct_run_path(path, "recipe.yaml", &recipe));
    if (oct_file_exists(recipe)) return OCT_OK;
    oct_free(folder);
    return oct_strdup(folder, path);
}

/* A run folder is its own, a model is in it, a checkpoint in its checkpoints/. */
oct_status oct_run_folder_of(const char *path, char **folder)
{
    static const char checkpoints[] = "checkpoints";
    OCT_OWNED(oct_free) char *candidate = NULL, *recipe = NULL;
    *folder = NULL;
    if (!path[0]) return OCT_OK;
    OCT_TRY(oct_strdup(&candidate, path));
    if (!is_folder(candidate)) cut_to_parent(candidate);
    size_t length = strlen(candidate), tail = sizeof(checkpoints) - 1;
    if (length >= tail && strcmp(candidate + length - tail, checkpoints) == 0)
        cut_to_parent(candidate);
    OCT_TRY(oct_run_path(candidate, "recipe.yaml", &recipe));
    if (oct_file_exists(recipe)) {
        *folder = candidate;
        candidate = NULL;
    }
    return OCT_OK;
}
