/* The run folder on disk.
 *
 * metrics.jsonl is the run's memory for people: one JSON object a line, the first with the version of
 * the format. A resumed run first drops the records of steps that it is going to take again, so no
 * step is there twice.
 */
#include "launch/runfolder/run_folder.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "io/file/file.h"
#include "launch/base/failure.h"
#include "launch/base/output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { METRICS_VERSION = 1, RUN_VERSION = 1 };
static const size_t metrics_limit = (size_t)1 << 30;
static const size_t model_limit = (size_t)1 << 32;
static const size_t run_limit = (size_t)1 << 26;

oct_status oct_run_path(const char *folder, const char *name, char **path)
{
    return oct_format(path, oct_ends_with(folder, "/") ? "%s%s" : "%s/%s", folder, name);
}

/* A folder with other files is left alone. One with nothing but our lock and what a killed session
 * was writing counts as empty. */
static oct_status find_foreign_files(const char *path, bool *empty)
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
    oct_recipe there;
    oct_text differences = {0};
    OCT_TRY(oct_recipe_read(&there, path, text, NULL, 0));
    oct_status status = oct_recipe_compare(&there, recipe, &differences);
    if (status == OCT_OK && differences.length > 0) {
        while (differences.data[differences.length - 1] == '\n')
            differences.data[--differences.length] = '\0';
        status = oct_fail(
            OCT_USAGE, "%s%s%s; choose another output=, or use the values of that run\n%s",
            text ? "" : "output: ", text ? path : recipe->output,
            text ? ": is of another recipe" : " holds a run of another recipe", differences.data);
    }
    oct_text_free(&differences);
    oct_recipe_free(&there);
    return status;
}

oct_status oct_run_folder_records(const char *path, json_t **records, size_t *bad_line)
{
    void *bytes = NULL;
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
    oct_free(&bytes);
    return OCT_OK;
}

static const json_t *newest(const json_t *records, const char *kind, const char *phase)
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

/* The folder may have been moved since its result was written. */
static oct_status place_result(const char *folder, const char *model, json_t *result)
{
    char *path = NULL;
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
    oct_free(&path);
    return OCT_OK;
}

static oct_status find_result(const char *folder, json_t **result)
{
    void *bytes = NULL;
    size_t size;
    uint8_t sum[32];
    char hex[65];
    char *metrics = NULL, *model = NULL;
    json_t *records = NULL;
    oct_status status = OCT_OK;
    OCT_TRY_OUT(oct_run_path(folder, "metrics.jsonl", &metrics));
    OCT_TRY_OUT(oct_run_path(folder, "model.int8.h5", &model));
    OCT_TRY_OUT(oct_run_folder_records(metrics, &records, NULL));
    const json_t *found = newest(records, "result", NULL);
    const char *digest = json_string_value(json_object_get(found, "model_sha256"));
    if (digest && oct_file_exists(model)) {
        if (oct_file_read(model, model_limit, &bytes, &size) != OCT_OK)
            oct_fail_clear();
        else
            oct_sha256(bytes, size, sum);
        if (bytes && strcmp(oct_hex(sum, hex), digest) == 0) *result = json_deep_copy(found);
        oct_free(&bytes);
    }
    if (*result) status = place_result(folder, model, *result);
out:
    json_decref(records);
    oct_free(&metrics);
    oct_free(&model);
    return status;
}

oct_status oct_run_folder_look(const oct_recipe *recipe, json_t **result)
{
    char *path = NULL;
    bool empty;
    *result = NULL;
    OCT_TRY(find_foreign_files(recipe->output, &empty));
    if (empty) return OCT_OK;
    OCT_TRY(oct_run_path(recipe->output, "recipe.yaml", &path));
    oct_status status = OCT_OK;
    OCT_CHECK_OUT(
        oct_file_exists(path), OCT_USAGE,
        "output: %s is not empty, but holds no Octet run (no recipe.yaml); choose another "
        "output=",
        recipe->output);
    OCT_TRY_OUT(oct_run_same_recipe(path, NULL, recipe));
    OCT_TRY_OUT(find_result(recipe->output, result));
out:
    oct_free(&path);
    return status;
}

oct_status oct_run_folder_log(const char *folder)
{
    char *path = NULL;
    OCT_TRY(oct_run_path(folder, "log.txt", &path));
    oct_status status = oct_log_file(path);
    oct_free(&path);
    return status;
}

oct_status oct_run_folder_log_failure(const char *folder)
{
    char *path = NULL;
    OCT_TRY(oct_run_path(folder, "log.txt", &path));
    oct_failure_log(path);
    oct_free(&path);
    return OCT_OK;
}

oct_status oct_run_folder_open(oct_run_folder *folder, const oct_recipe *recipe,
                               const oct_text *report)
{
    const char *output = recipe->output;
    char *checkpoints = NULL, *path = NULL, *report_path = NULL;
    oct_text text = {0};
    oct_status status = OCT_OK;
    *folder = (oct_run_folder){
        .path = output, .lock = -1, .metrics = -1, .recipe = recipe, .events = {.fd = -1}};
    OCT_TRY(oct_make_folders(output));
    OCT_TRY(oct_folder_lock(output, &folder->lock));
    OCT_TRY_OUT(oct_run_path(output, "checkpoints", &checkpoints));
    OCT_TRY_OUT(oct_run_path(output, "recipe.yaml", &path));
    OCT_TRY_OUT(oct_run_path(output, "model_check_result.txt", &report_path));
    oct_file_clean(output);
    oct_file_clean(checkpoints);
    OCT_TRY_OUT(oct_recipe_write(recipe, false, &text));
    OCT_TRY_OUT(oct_file_write(path, text.data, text.length));
    OCT_TRY_OUT(oct_file_write(report_path, report->data, report->length));
    status = oct_run_folder_log(output);
out:
    oct_text_free(&text);
    oct_free(&report_path);
    oct_free(&path);
    oct_free(&checkpoints);
    return status;
}

void oct_run_folder_close(oct_run_folder *folder)
{
    if (folder->lock < 0 && folder->metrics < 0 && !folder->records) return;
    oct_status status = oct_log_file(NULL);
    OCT_ASSERT(status == OCT_OK);
    if (folder->metrics >= 0) close(folder->metrics);
    folder->metrics = -1;
    oct_event_file_close(&folder->events);
    json_decref(folder->records);
    folder->records = NULL;
    if (folder->lock >= 0) oct_folder_unlock(&folder->lock);
    folder->lock = -1;
}

static oct_status add_json(oct_text *text, const json_t *json, size_t flags)
{
    OCT_TRY(oct_json_text(text, json, flags));
    return oct_text_add(text, "\n");
}

void oct_run_folder_document(oct_run_folder *folder, const char *name, json_t *document)
{
    oct_text text = {0};
    char *path = NULL;
    oct_status status = oct_run_path(folder->path, name, &path);
    if (status == OCT_OK) status = add_json(&text, document, JSON_COMPACT);
    if (status == OCT_OK) status = oct_file_write(path, text.data, text.length);
    if (status != OCT_OK) {
        oct_log(OCT_LOG_WARN, "%s\n%s was not written; the run goes on without it",
                oct_fail_text(0), name);
        oct_fail_clear();
    }
    oct_text_free(&text);
    oct_free(&path);
    json_decref(document);
}

/* A result and the measurements that go with it belong to the very end: a run that goes on from there
 * makes them again. */
static bool is_kept(const json_t *record, int64_t step, int64_t last)
{
    const char *kind = json_string_value(json_object_get(record, "kind"));
    const json_t *at = json_object_get(record, "step");
    if (!kind || !strcmp(kind, "format") || !strcmp(kind, "result") || !json_is_integer(at))
        return false;
    static const char *const at_the_end[] = {"eval", "scales", "confusion"};
    for (size_t i = 0; i < OCT_COUNT(at_the_end); i++)
        if (!strcmp(kind, at_the_end[i]) && json_integer_value(at) >= last) return false;
    return json_integer_value(at) <= step;
}

oct_status oct_run_folder_rewind(oct_run_folder *folder, int64_t step, int64_t last)
{
    char *path = NULL;
    json_t *all = NULL;
    oct_text text = {0};
    oct_status status = OCT_OK;
    OCT_TRY_OUT(oct_run_path(folder->path, "metrics.jsonl", &path));
    OCT_TRY_OUT(oct_run_folder_records(path, &all, NULL));
    /* A checkpoint that was written and is not there any more was deleted, or is damaged. */
    const int64_t saved =
        json_integer_value(json_object_get(newest(all, "checkpoint", NULL), "step"));
    if (saved > step)
        oct_log(OCT_LOG_WARN,
                "%s: the checkpoint of step %lld is gone%s; starting again from step %lld",
                folder->path, (long long)saved, step == 0 ? ", and no other is left" : "",
                (long long)step);
    folder->records = json_array();
    json_array_append_new(folder->records, json_pack("{s:i, s:s}", "schema_version",
                                                     METRICS_VERSION, "kind", "format"));
    for (size_t i = 0; i < json_array_size(all); i++)
        if (is_kept(json_array_get(all, i), step, last))
            json_array_append(folder->records, json_array_get(all, i));
    for (size_t i = 0; i < json_array_size(folder->records); i++)
        OCT_TRY_OUT(add_json(&text, json_array_get(folder->records, i), JSON_COMPACT));
    OCT_TRY_OUT(oct_file_write(path, text.data, text.length));
    folder->length = (int64_t)text.length;
    folder->metrics = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
    OCT_CHECK_OUT(folder->metrics >= 0, OCT_RESOURCE, "%s: %s", path, strerror(errno));
    if (folder->recipe->log_tensorboard)
        status = oct_tensorboard_open(&folder->events, folder->recipe, step);
out:
    json_decref(all);
    oct_text_free(&text);
    oct_free(&path);
    return status;
}

void oct_run_folder_record(oct_run_folder *folder, json_t *record)
{
    oct_text text = {0};
    if (folder->metrics >= 0 && record && add_json(&text, record, JSON_COMPACT) == OCT_OK &&
        !oct_file_append(&folder->metrics, &folder->length, text.data, text.length) &&
        !folder->metrics_lost) {
        oct_log(OCT_LOG_WARN, "%s/metrics.jsonl: %s; records are lost, but the run continues",
                folder->path, strerror(errno));
        folder->metrics_lost = true;
    }
    oct_text_free(&text);
    if (!record) return;
    oct_tensorboard_record(&folder->events, record);
    json_array_append_new(folder->records, record);
}

const json_t *oct_run_folder_find(const oct_run_folder *folder, const char *kind, const char *phase)
{
    return newest(folder->records, kind, phase);
}

static json_t *load_sessions(const char *path)
{
    void *bytes = NULL;
    size_t size = 0;
    json_t *root = NULL;
    if (oct_file_exists(path) && oct_file_read(path, run_limit, &bytes, &size) == OCT_OK)
        root = json_loadb(bytes, size, 0, NULL);
    oct_free(&bytes);
    json_t *sessions = json_incref(json_object_get(root, "sessions"));
    json_decref(root);
    if (json_is_array(sessions)) return sessions;
    json_decref(sessions);
    return json_array();
}

/* Bits follow from a plug-in's code too, but only its path is in the recipe. */
static void compare_plugins(const json_t *sessions, const json_t *session)
{
    const json_t *last = json_array_get(sessions, json_array_size(sessions) - 1);
    const json_t *there = json_object_get(last, "plugins"), *plugin;
    size_t i;
    json_array_foreach(there, i, plugin)
    {
        const json_t *here = json_array_get(json_object_get(session, "plugins"), i);
        const json_t *digest = json_object_get(plugin, "sha256");
        if (!json_equal(digest, json_object_get(here, "sha256")))
            oct_log(OCT_LOG_WARN,
                    "plug-in %s differs from the one of the last session (run.json has both "
                    "SHA-256s); the result may differ from that of an uninterrupted run",
                    json_string_value(json_object_get(plugin, "name")));
    }
}

static const char *value_text(const json_t *value, char text[32])
{
    if (json_is_string(value))
        snprintf(text, 32, "%.16s...", json_string_value(value));
    else
        snprintf(text, 32, "%lld", (long long)json_integer_value(value));
    return text;
}

/* Each of the data's parts; what was not written down by an older Octet is not compared. */
static oct_status compare_data(const oct_run_folder *folder, const json_t *there,
                               const json_t *here)
{
    static const char *const parts[] = {"train", "test"};
    static const char *const keys[] = {"images", "sha256", "contents"};
    for (size_t i = 0; i < OCT_COUNT(parts) * OCT_COUNT(keys); i++) {
        const char *part = parts[i / OCT_COUNT(keys)], *key = keys[i % OCT_COUNT(keys)];
        const json_t *was = json_object_get(json_object_get(there, part), key);
        const json_t *is = json_object_get(json_object_get(here, part), key);
        char then[32], now[32];
        if (!was || !is || json_equal(was, is)) continue;
        return oct_fail(OCT_DATA,
                        "data.path: the data are not those of the last session of %s: %s.%s is %s, "
                        "and was %s (run.json)%s",
                        folder->path, part, key, value_text(is, now), value_text(was, then),
                        folder->recipe->data_changed
                            ? ""
                            : "; give it the data of then, choose another output=, or go on with "
                              "these by data.changed=true");
    }
    return OCT_OK;
}

oct_status oct_run_folder_same_data(const oct_run_folder *folder, json_t *data)
{
    char *path = NULL;
    oct_status status = oct_run_path(folder->path, "run.json", &path);
    json_t *sessions = status == OCT_OK ? load_sessions(path) : NULL;
    const json_t *last = json_array_get(sessions, json_array_size(sessions) - 1);
    if (status == OCT_OK) status = compare_data(folder, json_object_get(last, "data"), data);
    if (status == OCT_DATA && folder->recipe->data_changed) {
        oct_log(OCT_LOG_WARN, "%s", oct_fail_text(0));
        oct_fail_clear();
        status = OCT_OK;
    }
    json_decref(sessions);
    json_decref(data);
    oct_free(&path);
    return status;
}

oct_status oct_run_folder_session(oct_run_folder *folder, json_t *session)
{
    char *path = NULL;
    oct_text text = {0};
    json_t *sessions = NULL, *root = NULL;
    oct_status status = OCT_OK;
    OCT_TRY_OUT(oct_run_path(folder->path, "run.json", &path));
    sessions = load_sessions(path);
    compare_plugins(sessions, session);
    json_array_append(sessions, session);
    root = json_pack("{s:i, s:O}", "schema_version", RUN_VERSION, "sessions", sessions);
    OCT_TRY_OUT(add_json(&text, root, JSON_INDENT(2)));
    OCT_TRY_OUT(oct_file_write(path, text.data, text.length));
out:
    oct_text_free(&text);
    json_decref(root);
    json_decref(sessions);
    json_decref(session);
    oct_free(&path);
    return status;
}

/* path is not empty. */
static void to_parent(char *path)
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
    char *recipe = NULL;
    oct_status status = oct_run_path(path, "recipe.yaml", &recipe);
    bool run = status == OCT_OK && oct_file_exists(recipe);
    oct_free(&recipe);
    if (status != OCT_OK || run) return status;
    oct_free(folder);
    return oct_strdup(folder, path);
}

/* A run folder is its own, a model is in it, a checkpoint in its checkpoints/. */
oct_status oct_run_folder_of(const char *path, char **folder)
{
    static const char checkpoints[] = "checkpoints";
    char *here = NULL, *recipe = NULL;
    oct_status status = OCT_OK;
    *folder = NULL;
    if (!path[0]) return OCT_OK;
    OCT_TRY(oct_strdup(&here, path));
    if (!is_folder(here)) to_parent(here);
    size_t length = strlen(here), tail = sizeof(checkpoints) - 1;
    if (length >= tail && strcmp(here + length - tail, checkpoints) == 0) to_parent(here);
    OCT_TRY_OUT(oct_run_path(here, "recipe.yaml", &recipe));
    if (oct_file_exists(recipe)) {
        *folder = here;
        here = NULL;
    }
out:
    oct_free(&recipe);
    oct_free(&here);
    return status;
}
