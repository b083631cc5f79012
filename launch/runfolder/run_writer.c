/* A run as it writes itself down: metrics.jsonl, run.json, documents, and TensorBoard's view of the same records.
 *
 * metrics.jsonl is the run's memory for people: one JSON object a line, the first with the version of the format. A
 * resumed run first drops the records of steps that it is going to take again, so no step is there twice. */
#include "launch/runfolder/run_folder.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/text.h"
#include "io/file/file.h"
#include "io/image/decode.h"
#include "launch/base/output.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { METRICS_VERSION = 1, RUN_VERSION = 1 };
enum { TAG_MAX = 320, BINS = 64, SAMPLES = 8, PICTURE_MOST = 512 * 512 };

static const size_t run_limit = (size_t)1 << 26;

/* TensorBoard. */

static void warn_of_lost_events(const char *what)
{
    oct_log(OCT_LOG_WARN, "TensorBoard gets no %s: %s", what, oct_error_message(0));
    oct_fail_clear();
}

/* A number of a record with its name. */
typedef struct scalar {
    OctEvent__Summary__Value value;
    char tag[TAG_MAX];
} scalar;

/* Adds the numbers of a record and of the objects in it as scalars FOLDER/NAME, but not its position and sizes. */
static oct_status add_scalars(OctEvent__Summary *summary, size_t *capacity, const char *folder,
                              json_t *record)
{
    static const char *const left_out[] = {"step", "epoch", "images", "schema_version"};
    const char *name;
    json_t *number;
    json_object_foreach(record, name, number)
    {
        bool is_scalar = json_is_number(number);
        for (size_t i = 0; i < OCT_COUNT(left_out); i++)
            is_scalar = is_scalar && strcmp(name, left_out[i]) != 0;
        if (json_is_object(number)) OCT_TRY(add_scalars(summary, capacity, folder, number));
        if (!is_scalar) continue;
        scalar *s;
        OCT_TRY(oct_grow(&summary->value, capacity, summary->n_value + 1, sizeof(void *)));
        OCT_TRY(oct_alloc(&s, 1, sizeof *s));
        summary->value[summary->n_value++] = &s->value;
        oct_event__summary__value__init(&s->value);
        s->value.tag = s->tag;
        s->value.has_simple_value = true;
        s->value.simple_value = (float)json_number_value(number);
        snprintf(s->tag, sizeof s->tag, "%s/%s", folder, name);
    }
    return OCT_OK;
}

/* Adds an event of one value. */
static void add_value(oct_event_file *file, int64_t step, char *tag,
                      OctEvent__Summary__Value *value)
{
    OctEvent__Summary summary = OCT_EVENT__SUMMARY__INIT;
    value->tag = tag;
    summary.n_value = 1;
    summary.value = &value;
    oct_event_file_add(file, step, &summary);
}

/* Adds an event of the plug-in hparams. */
static void add_hparams(oct_event_file *file, char *tag, OctEvent__HParamsPluginData *content)
{
    char name[] = "hparams";
    OctEvent__SummaryMetadata__PluginData plugin = OCT_EVENT__SUMMARY_METADATA__PLUGIN_DATA__INIT;
    OctEvent__SummaryMetadata metadata = OCT_EVENT__SUMMARY_METADATA__INIT;
    OctEvent__Summary__Value value = OCT_EVENT__SUMMARY__VALUE__INIT;
    plugin.plugin_name = name;
    plugin.content = content;
    metadata.plugin_data = &plugin;
    value.metadata = &metadata;
    add_value(file, 0, tag, &value);
}

/* A key of the recipe as a hyperparameter. */
typedef struct hyperparameter {
    OctEvent__SessionStartInfo__HparamsEntry entry;
    OctEvent__HparamValue value;
} hyperparameter;

/* Fills h with a key and its printed value, as a number, a boolean or a string. Borrows both; removes the quotes from
 * `text` in place. */
static void set_hyperparameter(hyperparameter *h, char *key, char *text)
{
    double number;
    bool truth;
    const size_t length = strlen(text);
    const bool quoted = length >= 2 && text[0] == '"';
    oct_event__session_start_info__hparams_entry__init(&h->entry);
    oct_event__hparam_value__init(&h->value);
    h->entry.key = key;
    h->entry.value = &h->value;
    if (quoted) {
        text[length - 1] = '\0';
        text++;
    }
    if (!quoted && oct_parse_f64(text, &number)) {
        h->value.kind_case = OCT_EVENT__HPARAM_VALUE__KIND_NUMBER_VALUE;
        h->value.number_value = number;
    } else if (!quoted && oct_parse_bool(text, &truth)) {
        h->value.kind_case = OCT_EVENT__HPARAM_VALUE__KIND_BOOL_VALUE;
        h->value.bool_value = truth;
    } else {
        h->value.kind_case = OCT_EVENT__HPARAM_VALUE__KIND_STRING_VALUE;
        h->value.string_value = text;
    }
}

/* Opens the next event file of a run, which takes over after `step` steps, with the recipe as hyperparameters. */
static oct_status open_event_file(oct_event_file *file, const oct_recipe *recipe, int64_t step)
{
    OCT_OWNED(oct_text_free) oct_text list = {0};
    OCT_OWNED(oct_free) hyperparameter *parameters = NULL;
    OCT_OWNED(oct_free) OctEvent__SessionStartInfo__HparamsEntry **entries = NULL;
    OctEvent__SessionStartInfo info = OCT_EVENT__SESSION_START_INFO__INIT;
    OctEvent__HParamsPluginData content = OCT_EVENT__HPARAMS_PLUGIN_DATA__INIT;
    char tag[] = "_hparams_/session_start_info";
    size_t lines = 0;
    OCT_TRY(oct_event_file_create(file, recipe->output, step + 1));
    OCT_TRY(oct_recipe_list(recipe, &list));
    for (size_t i = 0; i < list.length; i++)
        lines += list.data[i] == '\n';
    OCT_TRY(oct_alloc(&parameters, lines, sizeof *parameters));
    OCT_TRY(oct_alloc(&entries, lines, sizeof *entries));
    info.hparams = entries;
    /* The list has a line "key: value" for each key of the recipe. */
    for (char *line = list.data, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        char *value = strstr(line, ": ");
        if (!value || value > end) break;
        *end = *value = '\0';
        value += 2;
        if (strcmp(value, "\"\"") == 0 || strcmp(value, "[]") == 0) continue;
        hyperparameter *h = &parameters[info.n_hparams];
        set_hyperparameter(h, line, value);
        entries[info.n_hparams++] = &h->entry;
    }
    info.start_time_secs = (double)time(NULL);
    content.session_start_info = &info;
    add_hparams(file, tag, &content);
    return OCT_OK;
}

/* Adds what a record holds for TensorBoard. */
static void add_event(oct_event_file *file, json_t *record)
{
    static const struct {
        const char *kind, *folder;
    } shown[] = {{"step", "train"}, {"eval", "test"}, {"scales", "scale"}};
    const char *kind = json_string_value(json_object_get(record, "kind"));
    if (file->fd < 0 || !kind) return;
    for (size_t i = 0; i < OCT_COUNT(shown); i++) {
        OctEvent__Summary summary = OCT_EVENT__SUMMARY__INIT;
        size_t capacity = 0;
        if (strcmp(kind, shown[i].kind) != 0) continue;
        if (add_scalars(&summary, &capacity, shown[i].folder, record) == OCT_OK) {
            oct_event_file_add(file, json_integer_value(json_object_get(record, "step")), &summary);
        } else {
            oct_fail_clear();
            oct_event_file_warn(file, "out of memory");
        }
        for (size_t k = 0; k < summary.n_value; k++)
            oct_free(&summary.value[k]);
        oct_free(&summary.value);
    }
    if (strcmp(kind, "result") == 0) {
        OctEvent__SessionEndInfo info = OCT_EVENT__SESSION_END_INFO__INIT;
        OctEvent__HParamsPluginData content = OCT_EVENT__HPARAMS_PLUGIN_DATA__INIT;
        char tag[] = "_hparams_/session_end_info";
        info.status = OCT_EVENT__SESSION_END_INFO__STATUS__STATUS_SUCCESS;
        info.end_time_secs = (double)time(NULL);
        content.session_end_info = &info;
        add_hparams(file, tag, &content);
    }
}

/* image: bytes of 1 or 3 channels, which is also the number of TensorFlow's colour space. */
static oct_status add_picture(oct_event_file *file, int64_t number, const oct_image *image)
{
    char tag[TAG_MAX];
    OCT_OWNED(oct_free) void *png = NULL;
    OctEvent__Summary__Image picture = OCT_EVENT__SUMMARY__IMAGE__INIT;
    OctEvent__Summary__Value value = OCT_EVENT__SUMMARY__VALUE__INIT;
    size_t size;
    OCT_TRY(oct_png_write(image, &png, &size));
    snprintf(tag, sizeof(tag), "samples/%lld", (long long)number);
    picture.height = (int32_t)image->h;
    picture.width = (int32_t)image->w;
    picture.colorspace = (int32_t)image->c;
    picture.encoded_image_string = (ProtobufCBinaryData){.len = size, .data = png};
    value.image = &picture;
    add_value(file, 0, tag, &value);
    return OCT_OK;
}

void oct_tensorboard_samples(oct_event_file *file, const oct_dataset *data)
{
    OCT_OWNED(oct_image_free) oct_image image = {0}, map = {0};
    oct_status status = OCT_OK;
    for (int64_t i = 0; i < SAMPLES && i < data->count && file->fd >= 0 && status == OCT_OK; i++) {
        int64_t number = data->count <= SAMPLES ? i : i * data->count / SAMPLES;
        status = data->format->read(data, number, &image, &map);
        const bool picture = image.dtype == OCT_U8 && (image.c == 1 || image.c == 3) &&
                             image.h * image.w <= PICTURE_MOST;
        if (status == OCT_OK && picture) status = add_picture(file, number, &image);
    }
    if (status != OCT_OK) warn_of_lost_events("samples");
}

/* Counts values in bins. The histogram's lists have room for BINS. */
static void count_values(OctEvent__HistogramProto *h, const float *x, int64_t n)
{
    h->num = (double)n;
    h->min = h->max = (double)x[0];
    for (int64_t i = 0; i < n; i++) {
        double v = (double)x[i];
        h->min = fmin(h->min, v);
        h->max = fmax(h->max, v);
        h->sum += v;
        h->sum_squares += v * v;
    }
    double width = (h->max - h->min) / BINS;
    for (int i = 0; i < BINS; i++)
        h->bucket_limit[i] = i < BINS - 1 ? h->min + width * (i + 1) : h->max;
    for (int64_t i = 0; i < n; i++) {
        int bin = width > 0 ? (int)(((double)x[i] - h->min) / width) : 0;
        h->bucket[bin < BINS ? bin : BINS - 1]++;
    }
    h->n_bucket_limit = h->n_bucket = BINS;
}

typedef struct weight_events {
    oct_event_file *file;
    int64_t step;
} weight_events;

/* Adds the histogram of a parameter that has 2 dimensions or more; called for each item of the model. */
static oct_status add_weight(void *user, const oct_state_item *item)
{
    weight_events *events = user;
    double limits[BINS], counts[BINS] = {0};
    char tag[TAG_MAX];
    OctEvent__HistogramProto histogram = OCT_EVENT__HISTOGRAM_PROTO__INIT;
    OctEvent__Summary__Value value = OCT_EVENT__SUMMARY__VALUE__INIT;
    if (!item->param || item->tensor->shape.ndim < 2) return OCT_OK;
    histogram.bucket_limit = limits;
    histogram.bucket = counts;
    count_values(&histogram, oct_f32(item->tensor), oct_numel(item->tensor));
    snprintf(tag, sizeof(tag), "weights/%s", item->path);
    value.histo = &histogram;
    add_value(events->file, events->step, tag, &value);
    return OCT_OK;
}

void oct_tensorboard_weights(oct_event_file *file, oct_module *model, int64_t step)
{
    if (file->fd < 0) return;
    if (oct_module_state(model, add_weight, &(weight_events){file, step}) != OCT_OK)
        warn_of_lost_events("weights");
}

/* The folder. */

oct_status oct_run_folder_open(oct_run_folder *folder, const oct_recipe *recipe,
                               const oct_text *report)
{
    const char *output = recipe->output;
    OCT_OWNED(oct_free) char *checkpoints = NULL, *path = NULL, *report_path = NULL;
    OCT_OWNED(oct_text_free) oct_text text = {0};
    *folder = (oct_run_folder){
        .path = output, .lock = -1, .metrics = -1, .recipe = recipe, .events = {.fd = -1}};
    OCT_TRY(oct_make_folders(output));
    OCT_TRY(oct_folder_lock(output, &folder->lock));
    OCT_TRY(oct_run_path(output, "checkpoints", &checkpoints));
    OCT_TRY(oct_run_path(output, "recipe.yaml", &path));
    OCT_TRY(oct_run_path(output, "model_check_result.txt", &report_path));
    oct_file_clean(output);
    oct_file_clean(checkpoints);
    OCT_TRY(oct_recipe_write(recipe, false, &text));
    OCT_TRY(oct_file_write(path, text.data, text.length));
    OCT_TRY(oct_file_write(report_path, report->data, report->length));
    return oct_run_folder_log(output);
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
    OCT_OWNED(oct_text_free) oct_text text = {0};
    OCT_OWNED(oct_free) char *path = NULL;
    oct_status status = oct_run_path(folder->path, name, &path);
    if (status == OCT_OK) status = add_json(&text, document, JSON_COMPACT);
    if (status == OCT_OK) status = oct_file_write(path, text.data, text.length);
    if (status != OCT_OK) {
        oct_log(OCT_LOG_WARN, "%s\n%s was not written; the run goes on without it",
                oct_error_message(0), name);
        oct_fail_clear();
    }
    json_decref(document);
}

/* Whether a record stays where a run goes on from `step`. A result and the measurements that go with it belong to
 * the very end: a run that goes on from there makes them again. */
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
    OCT_OWNED(oct_free) char *path = NULL;
    json_auto_t *all = NULL;
    OCT_OWNED(oct_text_free) oct_text text = {0};
    OCT_TRY(oct_run_path(folder->path, "metrics.jsonl", &path));
    OCT_TRY(oct_run_folder_records(path, &all, NULL));
    /* A checkpoint that was written and is not there any more was deleted, or is damaged. */
    const int64_t saved = json_integer_value(
        json_object_get(oct_run_records_newest(all, "checkpoint", NULL), "step"));
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
        OCT_TRY(add_json(&text, json_array_get(folder->records, i), JSON_COMPACT));
    OCT_TRY(oct_file_write(path, text.data, text.length));
    folder->length = (int64_t)text.length;
    folder->metrics = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
    OCT_CHECK(folder->metrics >= 0, OCT_RESOURCE, "%s: %s", path, strerror(errno));
    if (folder->recipe->log_tensorboard)
        return open_event_file(&folder->events, folder->recipe, step);
    return OCT_OK;
}

void oct_run_folder_record(oct_run_folder *folder, json_t *record)
{
    OCT_OWNED(oct_text_free) oct_text text = {0};
    if (folder->metrics >= 0 && record && add_json(&text, record, JSON_COMPACT) == OCT_OK &&
        !oct_file_append(&folder->metrics, &folder->length, text.data, text.length) &&
        !folder->metrics_lost) {
        oct_log(OCT_LOG_WARN, "%s/metrics.jsonl: %s; records are lost, but the run continues",
                folder->path, strerror(errno));
        folder->metrics_lost = true;
    }
    if (!record) return;
    add_event(&folder->events, record);
    json_array_append_new(folder->records, record);
}

const json_t *oct_run_folder_find(const oct_run_folder *folder, const char *kind, const char *phase)
{
    return oct_run_records_newest(folder->records, kind, phase);
}

/* Reads the sessions of run.json; an empty array where there are none, or the file is damaged. */
static json_t *load_sessions(const char *path)
{
    OCT_OWNED(oct_free) void *bytes = NULL;
    size_t size = 0;
    json_auto_t *root = NULL;
    if (oct_file_exists(path) && oct_file_read(path, run_limit, &bytes, &size) == OCT_OK)
        root = json_loadb(bytes, size, 0, NULL);
    json_t *sessions = json_object_get(root, "sessions");
    return json_is_array(sessions) ? json_incref(sessions) : json_array();
}

static const char *short_value_text(const json_t *value, char text[32])
{
    if (json_is_string(value))
        snprintf(text, 32, "%.16s...", json_string_value(value));
    else
        snprintf(text, 32, "%lld", (long long)json_integer_value(value));
    return text;
}

/* Compares count and digests of the samples of each split; what an older Octet did not record is not compared. */
static oct_status compare_data(const oct_run_folder *folder, const json_t *recorded,
                               const json_t *present)
{
    static const char *const splits[] = {"train", "test"};
    static const char *const keys[] = {"images", "sha256", "contents"};
    for (size_t i = 0; i < OCT_COUNT(splits) * OCT_COUNT(keys); i++) {
        const char *split = splits[i / OCT_COUNT(keys)], *key = keys[i % OCT_COUNT(keys)];
        const json_t *was = json_object_get(json_object_get(recorded, split), key);
        const json_t *is = json_object_get(json_object_get(present, split), key);
        char then[32], now[32];
        if (!was || !is || json_equal(was, is)) continue;
        return oct_fail(OCT_DATA,
                        "data.path: the data are not those of the last session of %s: %s.%s is %s, "
                        "and was %s (run.json)%s",
                        folder->path, split, key, short_value_text(is, now),
                        short_value_text(was, then),
                        folder->recipe->data_changed
                            ? ""
                            : "; give it the data of then, choose another output=, or go on with "
                              "these by data.changed=true");
    }
    return OCT_OK;
}

oct_status oct_run_folder_same_data(const oct_run_folder *folder, json_t *data)
{
    OCT_OWNED(oct_free) char *path = NULL;
    oct_status status = oct_run_path(folder->path, "run.json", &path);
    json_auto_t *sessions = status == OCT_OK ? load_sessions(path) : NULL;
    const json_t *last = json_array_get(sessions, json_array_size(sessions) - 1);
    if (status == OCT_OK) status = compare_data(folder, json_object_get(last, "data"), data);
    if (status == OCT_DATA && folder->recipe->data_changed) {
        oct_log(OCT_LOG_WARN, "%s", oct_error_message(0));
        oct_fail_clear();
        status = OCT_OK;
    }
    json_decref(data);
    return status;
}

oct_status oct_run_folder_session(oct_run_folder *folder, json_t *session)
{
    OCT_OWNED(oct_free) char *path = NULL;
    OCT_OWNED(oct_text_free) oct_text text = {0};
    json_auto_t *given = session, *sessions = NULL, *root = NULL;
    OCT_TRY(oct_run_path(folder->path, "run.json", &path));
    sessions = load_sessions(path);
    /* Bits follow from a plug-in's code too, but only its path is in the recipe. */
    const json_t *last = json_array_get(sessions, json_array_size(sessions) - 1);
    const json_t *recorded = json_object_get(last, "plugins"), *plugin;
    size_t i;
    json_array_foreach(recorded, i, plugin)
    {
        const json_t *present = json_array_get(json_object_get(given, "plugins"), i);
        const json_t *digest = json_object_get(plugin, "sha256");
        if (!json_equal(digest, json_object_get(present, "sha256")))
            oct_log(OCT_LOG_WARN,
                    "plug-in %s differs from the one of the last session (run.json has both "
                    "SHA-256s); the result may differ from that of an uninterrupted run",
                    json_string_value(json_object_get(plugin, "name")));
    }
    json_array_append(sessions, given);
    root = json_pack("{s:i, s:O}", "schema_version", RUN_VERSION, "sessions", sessions);
    OCT_TRY(add_json(&text, root, JSON_INDENT(2)));
    return oct_file_write(path, text.data, text.length);
}
