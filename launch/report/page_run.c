/* A sentence of a failure begins with the file's path, which depends on where the folder is seen from; a
 * report has the same bytes from everywhere, so it is cut to the file's name. */
#include "launch/report/page_run.h"

#include "core/base/mem.h"
#include "io/file/file.h"
#include "launch/session/file_kind.h"
#include "launch/runfolder/run_folder.h"

#include <stdio.h>
#include <string.h>

enum { SCHEMA_VERSION = 1 };
static const size_t text_limit = (size_t)1 << 26;

const char *const oct_run_file_names[OCT_RUN_FILES] = {
#define X(id, name) name,
    OCT_RUN_FILE_LIST(X)
#undef X
};

/* What is to do where a file is missing. */
static const char *const absent[OCT_RUN_FILES] = {
    [OCT_RUN_FILE_RECORDS] = "nothing has been recorded yet",
    [OCT_RUN_FILE_RECIPE] = "the recipe of the run is missing",
    [OCT_RUN_FILE_SESSIONS] = "no session has been described",
    [OCT_RUN_FILE_MODEL] = "the run has not been converted: there is no int8 model yet",
    [OCT_RUN_FILE_CHECK] = "prepare has not reported yet",
    [OCT_RUN_FILE_LAYERS] = "layers have not been measured; a run measures them at its end",
    [OCT_RUN_FILE_WORST] =
        "worst-classified images are missing; a run that classifies collects them at its end",
    [OCT_RUN_FILE_SENSITIVITY] =
        "not measured; octet sensitivity RUN -o RUN/run.sensitivity does it",
};

/* Keeps the failure of a file as the reason why it is not shown; only memory that runs out stays a failure. */
static oct_status keep_reason(oct_page_run *run, oct_run_file file, oct_status status)
{
    if (status == OCT_OK || oct_fail_code() == OCT_RESOURCE) return status;
    oct_free(&run->why[file]);
    const char *sentence = oct_error_message(0);
    const size_t length = strlen(run->folder);
    const bool inside = strncmp(sentence, run->folder, length) == 0 && sentence[length] == '/';
    OCT_TRY(oct_strdup(&run->why[file], inside ? sentence + length + 1 : sentence));
    oct_fail_clear();
    return OCT_OK;
}

static oct_status read_text(oct_run_file file, const char *path, char **text)
{
    size_t size;
    OCT_OWNED(oct_free) void *bytes = NULL;
    OCT_TRY(oct_file_read(path, text_limit, &bytes, &size));
    OCT_CHECK(!memchr(bytes, '\0', size), OCT_DATA, "%s: is not a text", oct_run_file_names[file]);
    *text = bytes;
    bytes = NULL;
    return OCT_OK;
}

static oct_status read_json(oct_run_file file, const char *path, json_t **root)
{
    json_error_t error;
    OCT_OWNED(oct_free) char *text = NULL;
    OCT_TRY(read_text(file, path, &text));
    json_auto_t *read = json_loads(text, 0, &error);
    const char *name = oct_run_file_names[file];
    OCT_CHECK(read, OCT_DATA, "%s: line %d: not JSON: %s", name, error.line, error.text);
    const json_t *version = json_object_get(read, "schema_version");
    OCT_CHECK(json_is_integer(version), OCT_DATA, "%s: is not a file of a run", name);
    OCT_CHECK(json_integer_value(version) == SCHEMA_VERSION, OCT_DATA,
              "%s: has version %lld, and this program knows version %d", name,
              (long long)json_integer_value(version), SCHEMA_VERSION);
    *root = json_incref(read);
    return OCT_OK;
}

static oct_status read_records(oct_page_run *run, const char *path)
{
    size_t bad_line = 0, i;
    json_t *record;
    json_decref(run->records);
    run->records = NULL;
    OCT_TRY(oct_run_folder_records(path, &run->records, &bad_line));
    /* Plots ask for one kind at a time, some of them for each layer. */
    json_array_foreach(run->records, i, record)
    {
        const char *kind = json_string_value(json_object_get(record, "kind"));
        if (!kind) continue;
        if (!json_object_get(run->kinds, kind)) json_object_set_new(run->kinds, kind, json_array());
        OCT_CHECK(json_array_append(json_object_get(run->kinds, kind), record) == 0, OCT_RESOURCE,
                  "metrics.jsonl: out of memory");
    }
    run->result = oct_page_run_record(run, "result");
    OCT_CHECK(!bad_line, OCT_DATA,
              "metrics.jsonl: line %zu is not a JSON object; what follows is not shown", bad_line);
    return OCT_OK;
}

static oct_status read_file(oct_page_run *run, oct_run_file file, const char *path, bool large)
{
    OCT_CHECK(oct_file_exists(path), OCT_DATA, "%s: %s", oct_run_file_names[file], absent[file]);
    switch (file) {
    case OCT_RUN_FILE_RECORDS:
        return read_records(run, path);
    case OCT_RUN_FILE_RECIPE:
        OCT_TRY(oct_recipe_read(&run->recipe, path, NULL, NULL, 0));
        return oct_recipe_list(&run->recipe, &run->recipe_text);
    case OCT_RUN_FILE_SESSIONS:
        return read_json(file, path, &run->sessions);
    case OCT_RUN_FILE_MODEL:
        OCT_TRY(oct_model_load(&run->model, path, large));
        run->has_model = true;
        return OCT_OK;
    case OCT_RUN_FILE_CHECK:
        OCT_TRY(read_text(file, path, &run->check));
        oct_text_clean(run->check);
        return OCT_OK;
    case OCT_RUN_FILE_LAYERS:
        return read_json(file, path, &run->layers);
    case OCT_RUN_FILE_WORST:
        return read_json(file, path, &run->worst);
    case OCT_RUN_FILE_SENSITIVITY:
        return oct_sensitivity_read(&run->sensitivity, path);
    case OCT_RUN_FILES:
        break;
    }
    return OCT_OK;
}

oct_status oct_page_run_open(oct_page_run *run, const char *path, bool records_only, bool large)
{
    const int files = records_only ? OCT_RUN_FILE_RECIPE + 1 : OCT_RUN_FILES;
    oct_file_kind kind;
    *run = (oct_page_run){0};
    OCT_TRY(oct_file_take(path, OCT_FILE_RUN_FOLDER,
                          "give the run folder that `octet train` wrote (the recipe's output)",
                          &kind));
    OCT_TRY(oct_run_folder_of(path, &run->folder));
    if (!run->folder) OCT_TRY(oct_strdup(&run->folder, path));
    run->records = json_array();
    run->kinds = json_object();
    OCT_CHECK(run->records && run->kinds, OCT_RESOURCE, "%s: out of memory", path);
    for (int file = 0; file < files; file++) {
        OCT_OWNED(oct_free) char *full = NULL;
        OCT_TRY(oct_run_path(run->folder, oct_run_file_names[file], &full));
        OCT_TRY(
            keep_reason(run, (oct_run_file)file, read_file(run, (oct_run_file)file, full, large)));
    }
    return OCT_OK;
}

void oct_page_run_close(oct_page_run *run)
{
    oct_free(&run->folder);
    json_decref(run->kinds);
    json_decref(run->records);
    json_decref(run->sessions);
    json_decref(run->layers);
    json_decref(run->worst);
    oct_recipe_free(&run->recipe);
    oct_text_free(&run->recipe_text);
    if (run->has_model) oct_model_free(&run->model);
    oct_free(&run->check);
    oct_sensitivity_free(&run->sensitivity);
    for (int i = 0; i < OCT_RUN_FILES; i++)
        oct_free(&run->why[i]);
    *run = (oct_page_run){0};
}

json_t *oct_page_run_records(const oct_page_run *run, const char *kind)
{
    return json_object_get(run->kinds, kind);
}

json_t *oct_page_run_record(const oct_page_run *run, const char *kind)
{
    const json_t *records = oct_page_run_records(run, kind);
    size_t count = json_array_size(records);
    return count ? json_array_get(records, count - 1) : NULL;
}

json_t *oct_page_beginning(const char *text, size_t bytes)
{
    const char *at = text, *end = text + strlen(text);
    for (size_t length; at < end; at += length) {
        oct_utf8(at, end, &length);
        if ((size_t)(at - text) + length > bytes) break;
    }
    return json_sprintf("%.*s%s", (int)(at - text), text, at < end ? "…" : "");
}

json_t *oct_page_name(const char *text)
{
    char copy[OCT_NAME_BYTES + 5]; /* one more character, so that a longer name is cut */
    snprintf(copy, sizeof copy, "%s", text);
    oct_text_clean(copy);
    return oct_page_beginning(copy, OCT_NAME_BYTES);
}
