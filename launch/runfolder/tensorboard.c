/* Records and weights become TensorBoard's scalars and histograms. */
#include "launch/runfolder/run_folder.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/text.h"
#include "io/image/decode.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { TAG_MAX = 320, BINS = 64, SAMPLES = 8, PICTURE_MOST = 512 * 512 };
static const char hparams[] = "hparams";

static void give_up(const char *what)
{
    oct_log(OCT_LOG_WARN, "TensorBoard gets no %s: %s", what, oct_fail_text(0));
    oct_fail_clear();
}

/* What is said of no step: position, words, sizes. */
static bool is_scalar(const char *name)
{
    static const char *const others[] = {"step", "epoch", "images", "schema_version"};
    for (size_t i = 0; i < OCT_COUNT(others); i++)
        if (strcmp(name, others[i]) == 0) return false;
    return true;
}

/* The numbers of a record, and of the objects in it. */
static void add_scalars(oct_proto *summary, const char *folder, json_t *record)
{
    const char *name;
    json_t *value;
    json_object_foreach(record, name, value)
    {
        char tag[TAG_MAX];
        snprintf(tag, sizeof(tag), "%s/%s", folder, name);
        if (json_is_object(value))
            add_scalars(summary, folder, value);
        else if (json_is_number(value) && is_scalar(name)) {
            oct_proto scalar = {0};
            oct_proto_text(&scalar, OCT_VALUE_TAG, tag);
            oct_proto_float(&scalar, OCT_VALUE_SIMPLE, (float)json_number_value(value));
            oct_proto_message(summary, OCT_SUMMARY_VALUE, &scalar);
        }
    }
}

/* An event of the plug-in hparams: HParamsPluginData with one member, which is freed. */
static void add_hparams(oct_event_file *file, const char *tag, int field, oct_proto *info)
{
    oct_proto content = {0}, plugin = {0}, metadata = {0}, value = {0}, summary = {0};
    oct_proto_message(&content, field, info);
    oct_proto_text(&plugin, OCT_PLUGIN_NAME, hparams);
    oct_proto_message(&plugin, OCT_PLUGIN_CONTENT, &content);
    oct_proto_message(&metadata, OCT_METADATA_PLUGIN, &plugin);
    oct_proto_text(&value, OCT_VALUE_TAG, tag);
    oct_proto_message(&value, OCT_VALUE_METADATA, &metadata);
    oct_proto_message(&summary, OCT_SUMMARY_VALUE, &value);
    oct_event_file_add(file, 0, &summary);
}

static void add_key(oct_proto *info, const char *key, char *text)
{
    oct_proto entry = {0}, value = {0};
    double number;
    bool truth;
    size_t length = strlen(text);
    if (length >= 2 && text[0] == '"') {
        text[length - 1] = '\0';
        text++;
    }
    if (oct_parse_f64(text, &number))
        oct_proto_double(&value, OCT_HPARAM_NUMBER, number);
    else if (oct_parse_bool(text, &truth))
        oct_proto_integer(&value, OCT_HPARAM_BOOL, truth);
    else
        oct_proto_text(&value, OCT_HPARAM_TEXT, text);
    oct_proto_text(&entry, OCT_MAP_KEY, key);
    oct_proto_message(&entry, OCT_MAP_VALUE, &value);
    oct_proto_message(info, OCT_START_HPARAMS, &entry);
}

oct_status oct_tensorboard_open(oct_event_file *file, const oct_recipe *recipe, int64_t step)
{
    oct_text list = {0};
    oct_proto info = {0};
    OCT_TRY(oct_event_file_create(file, recipe->output, step + 1));
    oct_status status = oct_recipe_list(recipe, &list);
    if (status == OCT_OK) {
        /* The list has a line "key: value" for each key of the recipe. */
        for (char *line = list.data, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
            char *value = strstr(line, ": ");
            if (!value || value > end) break;
            *end = *value = '\0';
            value += 2;
            if (strcmp(value, "\"\"") != 0 && strcmp(value, "[]") != 0) add_key(&info, line, value);
        }
        oct_proto_double(&info, OCT_START_TIME, (double)time(NULL));
        add_hparams(file, "_hparams_/session_start_info", OCT_HPARAMS_START, &info);
    }
    oct_text_free(&list);
    return status;
}

void oct_tensorboard_record(oct_event_file *file, json_t *record)
{
    static const struct {
        const char *kind, *folder;
    } shown[] = {{"step", "train"}, {"eval", "test"}, {"scales", "scale"}};
    const char *kind = json_string_value(json_object_get(record, "kind"));
    oct_proto summary = {0};
    if (file->fd < 0 || !kind) return;
    for (size_t i = 0; i < OCT_COUNT(shown); i++)
        if (strcmp(kind, shown[i].kind) == 0) {
            add_scalars(&summary, shown[i].folder, record);
            oct_event_file_add(file, json_integer_value(json_object_get(record, "step")), &summary);
        }
    if (strcmp(kind, "result") == 0) {
        enum { SUCCESS = 1 };
        oct_proto info = {0};
        oct_proto_integer(&info, OCT_END_STATUS, SUCCESS);
        oct_proto_double(&info, OCT_END_TIME, (double)time(NULL));
        add_hparams(file, "_hparams_/session_end_info", OCT_HPARAMS_END, &info);
    }
}

/* image: bytes of 1 or 3 channels, which is also the number of TensorFlow's colour space. */
static oct_status add_picture(oct_event_file *file, int64_t number, const oct_image *image)
{
    char tag[TAG_MAX];
    void *png = NULL;
    size_t size;
    oct_proto picture = {0}, value = {0}, summary = {0};
    OCT_TRY(oct_png_write(image, &png, &size));
    snprintf(tag, sizeof(tag), "samples/%lld", (long long)number);
    oct_proto_integer(&picture, OCT_IMAGE_HEIGHT, image->h);
    oct_proto_integer(&picture, OCT_IMAGE_WIDTH, image->w);
    oct_proto_integer(&picture, OCT_IMAGE_COLORSPACE, image->c);
    oct_proto_bytes(&picture, OCT_IMAGE_PNG, png, size);
    oct_proto_text(&value, OCT_VALUE_TAG, tag);
    oct_proto_message(&value, OCT_VALUE_IMAGE, &picture);
    oct_proto_message(&summary, OCT_SUMMARY_VALUE, &value);
    oct_event_file_add(file, 0, &summary);
    oct_free(&png);
    return OCT_OK;
}

void oct_tensorboard_samples(oct_event_file *file, const oct_dataset *data)
{
    oct_image image = {0}, map = {0};
    oct_status status = OCT_OK;
    for (int64_t i = 0; i < SAMPLES && i < data->count && file->fd >= 0 && status == OCT_OK; i++) {
        int64_t number = data->count <= SAMPLES ? i : i * data->count / SAMPLES;
        status = data->format->read(data, number, &image, &map);
        const bool picture = image.dtype == OCT_U8 && (image.c == 1 || image.c == 3) &&
                             image.h * image.w <= PICTURE_MOST;
        if (status == OCT_OK && picture) status = add_picture(file, number, &image);
    }
    if (status != OCT_OK) give_up("samples");
    oct_image_free(&image);
    oct_image_free(&map);
}

typedef struct histogram {
    double min, max, sum, sum_squares, count[BINS], limit[BINS];
} histogram;

static void count_values(histogram *h, const float *x, int64_t n)
{
    *h = (histogram){.min = (double)x[0], .max = (double)x[0]};
    for (int64_t i = 0; i < n; i++) {
        double v = (double)x[i];
        h->min = fmin(h->min, v);
        h->max = fmax(h->max, v);
        h->sum += v;
        h->sum_squares += v * v;
    }
    double width = (h->max - h->min) / BINS;
    for (int i = 0; i < BINS; i++)
        h->limit[i] = i < BINS - 1 ? h->min + width * (i + 1) : h->max;
    for (int64_t i = 0; i < n; i++) {
        int bin = width > 0 ? (int)(((double)x[i] - h->min) / width) : 0;
        h->count[bin < BINS ? bin : BINS - 1]++;
    }
}

typedef struct weights {
    oct_event_file *file;
    int64_t step;
} weights;

static oct_status add_weight(void *user, const oct_state_item *item)
{
    weights *w = user;
    histogram h;
    char tag[TAG_MAX];
    oct_proto histo = {0}, value = {0}, summary = {0};
    if (!item->param || item->tensor->shape.ndim < 2) return OCT_OK;
    count_values(&h, oct_f32(item->tensor), oct_numel(item->tensor));
    oct_proto_double(&histo, OCT_HISTOGRAM_MIN, h.min);
    oct_proto_double(&histo, OCT_HISTOGRAM_MAX, h.max);
    oct_proto_double(&histo, OCT_HISTOGRAM_NUM, (double)oct_numel(item->tensor));
    oct_proto_double(&histo, OCT_HISTOGRAM_SUM, h.sum);
    oct_proto_double(&histo, OCT_HISTOGRAM_SUM_SQUARES, h.sum_squares);
    oct_proto_doubles(&histo, OCT_HISTOGRAM_LIMITS, h.limit, BINS);
    oct_proto_doubles(&histo, OCT_HISTOGRAM_COUNTS, h.count, BINS);
    snprintf(tag, sizeof(tag), "weights/%s", item->path);
    oct_proto_text(&value, OCT_VALUE_TAG, tag);
    oct_proto_message(&value, OCT_VALUE_HISTOGRAM, &histo);
    oct_proto_message(&summary, OCT_SUMMARY_VALUE, &value);
    oct_event_file_add(w->file, w->step, &summary);
    return OCT_OK;
}

void oct_tensorboard_weights(oct_event_file *file, oct_module *model, int64_t step)
{
    if (file->fd < 0) return;
    if (oct_module_state(model, add_weight, &(weights){file, step}) != OCT_OK) give_up("weights");
}
