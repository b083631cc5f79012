/* A row for each sample. Its pictures come from the loader of training, so they are what the model will get,
 * undone only by the normalisation: the leaf of the epoch that the sample is in is fetched, since other
 * samples of the leaf may be mixed into it. */
#include "launch/cmd/data.h"

#include "core/base/mem.h"
#include "core/base/rng.h"
#include "io/augment/geometry.h"
#include "io/batch/loader.h"
#include "io/image/decode.h"
#include "launch/evaluate/evaluate.h"
#include "launch/report/page_run.h"
#include "launch/report/page.h"
#include "launch/train/trainer.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { EPOCHS = 6, SIDE = 160 };

typedef struct drawing {
    const oct_recipe *recipe;
    const oct_dataset *data;
    oct_loader loader, plain; /* of training, and of evaluation */
    int64_t *order;           /* of an epoch */
    int64_t *chosen, rows;
    float *images; /* of a leaf */
    oct_image picture, spare;
} drawing;

/* 0xrrggbb for each class: hues in steps of the golden ratio, far apart, of one saturation and value. */
static uint32_t class_colour(int64_t class)
{
    const double hue = fmod(0.61803398875 * (double)class + 0.58, 1) * 6;
    uint32_t colour = 0;
    for (int c = 0; c < 3; c++) {
        const double away = fabs(fmod(hue + 8 - 2 * c, 6) - 3) - 1;
        const double value = away < 0 ? 0 : away > 1 ? 1 : away;
        colour = colour << 8 | (uint32_t)(50 + 160 * value);
    }
    return colour;
}

/* Chooses samples in the order of the first epoch, one of each class before a second one of any. */
static oct_status choose_samples(drawing *d)
{
    const oct_dataset *data = d->data;
    OCT_OWNED(oct_free) bool *taken = NULL, *seen = NULL;
    const bool by_class = data->goal == OCT_GOAL_CLASS;
    int64_t n = 0;
    OCT_TRY(oct_alloc(&taken, (size_t)data->count, sizeof *taken));
    OCT_TRY(oct_alloc(&seen, by_class ? (size_t)data->classes : 1, sizeof *seen));
    oct_permutation(d->order, data->count, d->loader.seed, 0);
    while (n < d->rows) {
        const int64_t before = n;
        for (int64_t p = 0; p < data->count && n < d->rows; p++) {
            const int64_t sample = d->order[p], class = by_class ? data->labels[sample] : 0;
            if (taken[sample] || (by_class && seen[class])) continue;
            taken[sample] = seen[class] = true;
            d->chosen[n++] = sample;
        }
        if (by_class) memset(seen, 0, (size_t)data->classes * sizeof *seen);
        if (n == before) break;
    }
    d->rows = n;
    return OCT_OK;
}

/* Undoes the normalisation of a pixel, to 0..255; data that are not bytes, of any range, are shown around 128. */
static double pixel_value(const drawing *d, float normalised, int64_t channel)
{
    const oct_normaliser *n = &d->loader.normaliser;
    const int64_t at = n->count == 1 ? 0 : channel;
    if (d->data->dtype != OCT_U8) return 128 + 48 * (double)normalised;
    return 255 * ((double)normalised * (double)n->std[at] + (double)n->mean[at]);
}

/* Lays the classes of a map over the picture, half and half. */
static oct_status blend_map(drawing *d, const int32_t *map)
{
    const int64_t pixels = d->picture.h * d->picture.w;
    OCT_TRY(oct_image_resize(&d->spare, OCT_U8, d->picture.h, d->picture.w, 3));
    for (int64_t p = 0; p < pixels; p++) {
        const uint32_t colour = map[p] < 0 ? 0 : class_colour(map[p]);
        for (int c = 0; c < 3; c++) {
            const double value =
                oct_image_get(&d->picture, p * d->picture.c + (d->picture.c == 3 ? c : 0));
            oct_image_set(&d->spare, p * 3 + c,
                          (value + (double)(colour >> (16 - 8 * c) & 255)) / 2);
        }
    }
    const oct_image kept = d->picture;
    d->picture = d->spare;
    d->spare = kept;
    return OCT_OK;
}

/* Adds the picture to a row, at most SIDE pixels wide and high, with lines of text below it. */
static oct_status add_picture(drawing *d, json_t *row, json_t *values)
{
    json_auto_t *given = values;
    OCT_OWNED(oct_free) char *png = NULL;
    oct_image *p = &d->picture;
    const int64_t side = p->h > p->w ? p->h : p->w;
    if (side > SIDE)
        OCT_TRY(oct_geometry_resize(p, NULL, &d->spare, p->h * SIDE / side + (p->h * SIDE < side),
                                    p->w * SIDE / side + (p->w * SIDE < side)));
    OCT_TRY(oct_png_base64(p, &png));
    json_array_append_new(json_object_get(row, "pictures"),
                          json_pack("{s:s, s:O}", "png", png, "values", given));
    return OCT_OK;
}

static json_t *class_name(const oct_dataset *data, int64_t class)
{
    return data->class_names ? oct_page_name(data->class_names[class])
                             : json_sprintf("class %" PRId64, class);
}

/* Finds the two largest of some probabilities that are above 0; -1: there is none. */
static void find_two_largest(const float *values, int64_t n, int64_t largest[2])
{
    largest[0] = largest[1] = -1;
    for (int64_t i = 0; i < n; i++) {
        if (values[i] <= 0) continue;
        if (largest[0] < 0 || values[i] > values[largest[0]]) {
            largest[1] = largest[0];
            largest[0] = i;
        } else if (largest[1] < 0 || values[i] > values[largest[1]]) {
            largest[1] = i;
        }
    }
}

/* Lists the two classes with the largest shares in a sample, as "70 % cat". */
static json_t *share_names(const oct_dataset *data, const float *values)
{
    int64_t largest[2];
    json_t *list = json_array();
    find_two_largest(values, data->classes, largest);
    for (int i = 0; i < 2 && largest[i] >= 0; i++) {
        json_auto_t *name = class_name(data, largest[i]);
        json_array_append_new(list, json_sprintf("%d %% %s",
                                                 (int)lround(100 * (double)values[largest[i]]),
                                                 json_string_value(name)));
    }
    return list;
}

/* "sample 52", or the name of its file without the folders. */
static json_t *sample_name(const oct_dataset *data, int64_t sample)
{
    const char *file = data->format->sample_name ? data->format->sample_name(data, sample) : NULL;
    const char *slash = file ? strrchr(file, '/') : NULL;
    return file ? oct_page_name(slash ? slash + 1 : file) : json_sprintf("sample %" PRId64, sample);
}

/* Adds a picture to a row: that of image `at` of a fetched leaf, with what mixup or cutmix made of its label. */
static oct_status add_column(drawing *d, json_t *row, bool trains, const float *image,
                             const oct_goals *goals, int64_t at)
{
    const oct_dataset *data = d->data;
    const bool mixes = d->recipe->data_mixup > 0 || d->recipe->data_cutmix > 0;
    const int64_t channels = data->c >= 3 ? 3 : 1; /* of the picture */
    OCT_TRY(oct_image_resize(&d->picture, OCT_U8, data->h, data->w, channels));
    for (int64_t p = 0; p < data->h * data->w; p++)
        for (int64_t c = 0; c < channels; c++)
            oct_image_set(&d->picture, p * channels + c, pixel_value(d, image[p * data->c + c], c));
    if (data->goal == OCT_GOAL_MAP) OCT_TRY(blend_map(d, goals->labels + at * data->rows));
    return add_picture(d, row,
                       mixes && trains && goals->values
                           ? share_names(data, goals->values + at * data->classes)
                           : json_array());
}

/* Fetches the leaf of an epoch that has the sample, as a rank of that leaf alone would. */
static oct_status add_epoch(drawing *d, json_t *row, int64_t sample, int epoch)
{
    const oct_dataset *data = d->data;
    const int64_t leaf = d->loader.leaf, batch = d->loader.batch;
    oct_goals goals;
    int64_t position = 0;
    oct_permutation(d->order, data->count, d->loader.seed, (uint64_t)epoch);
    while (d->order[position] != sample)
        position++;
    const int64_t step = position / batch, samples = oct_loader_samples(&d->loader, step);
    const int64_t in_batch = position - step * batch, at = in_batch % leaf;
    const oct_leaves alone =
        oct_leaves_split(samples, leaf, (int)(in_batch / leaf), (int)((samples + leaf - 1) / leaf));
    OCT_TRY(oct_loader_fetch(&d->loader, epoch, step, &alone, d->images, &goals));
    return add_column(d, row, true, d->images + at * data->h * data->w * data->c, &goals, at);
}

static oct_status add_row(drawing *d, json_t *rows, int64_t sample)
{
    const oct_dataset *data = d->data;
    oct_goals goals;
    json_t *row = json_pack("{s:o, s:[]}", "name", sample_name(data, sample), "pictures");
    json_array_append_new(rows, row);
    if (data->goal == OCT_GOAL_VALUES)
        json_object_set_new(row, "values",
                            share_names(data, data->values + sample * data->classes));
    if (data->goal == OCT_GOAL_CLASS) {
        const int64_t class = data->labels[sample];
        json_object_set_new(row, "class", class_name(data, class));
        json_object_set_new(row, "colour", json_sprintf("#%06x", class_colour(class)));
    }
    OCT_TRY(oct_loader_read(&d->plain, sample, 1, d->images, &goals));
    OCT_TRY(add_column(d, row, false, d->images, &goals, 0));
    for (int epoch = 0; epoch < EPOCHS; epoch++)
        OCT_TRY(add_epoch(d, row, sample, epoch));
    return OCT_OK;
}

static void add_share(json_t *list, const char *name, double value)
{
    char text[48];
    oct_snprintf(text, sizeof text, "%s %g", name, value);
    if (value > 0) json_array_append_new(list, json_string(text));
}

static json_t *list_transforms(const oct_recipe *r)
{
    json_t *list = json_array();
    for (int i = 0; i < r->data_train.count; i++)
        json_array_append_new(list, oct_page_name(r->data_train.value[i]));
    if (r->data_size[0]) json_array_append_new(list, json_sprintf("size %s", r->data_size));
    if (r->data_crop_padding)
        json_array_append_new(list, json_sprintf("crop_padding %" PRId64, r->data_crop_padding));
    if (r->data_flip) json_array_append_new(list, json_string("data.flip"));
    add_share(list, "mixup", r->data_mixup);
    add_share(list, "cutmix", r->data_cutmix);
    if (json_array_size(list) == 0) json_array_append_new(list, json_string("no augmentation"));
    return list;
}

/* Name, data, transforms and columns. */
static json_t *describe_sheet(const oct_recipe *r, const oct_dataset *data)
{
    const bool classes = data->goal == OCT_GOAL_CLASS || data->goal == OCT_GOAL_MAP;
    json_t *columns = json_array();
    json_array_append_new(columns, json_string("evaluated"));
    for (int epoch = 1; epoch <= EPOCHS; epoch++)
        json_array_append_new(columns, json_sprintf("epoch %d", epoch));
    return json_pack("{s:o, s:o, s:o, s:o, s:[]}", "name", oct_page_name(r->name), "about",
                     json_sprintf("%s, %" PRId64 " training samples, %" PRId64 "×%" PRId64
                                  "×%" PRId64 " %s, %" PRId64 " %s, seed %" PRId64,
                                  data->format->name, data->count, data->h, data->w, data->c,
                                  oct_dtype_name(data->dtype), data->classes,
                                  classes ? "classes" : "values", r->seed),
                     "transforms", list_transforms(r), "columns", columns, "rows");
}

oct_status oct_data_sheet(const oct_recipe *recipe, const oct_dataset *data, int64_t samples,
                          oct_text *page)
{
    drawing d = {.recipe = recipe, .data = data, .rows = samples};
    json_t *sheet = describe_sheet(recipe, data), *facts = json_pack("{s:o}", "sheet", sheet);
    const size_t image = (size_t)(data->h * data->w * data->c);
    oct_status status = oct_trainer_loader(&d.loader, recipe, data);
    OCT_TRY_OUT(status);
    OCT_TRY_OUT(oct_evaluation_loader(&d.plain, recipe, data));
    OCT_TRY_OUT(oct_alloc(&d.order, (size_t)data->count, sizeof *d.order));
    OCT_TRY_OUT(oct_alloc(&d.chosen, (size_t)d.rows, sizeof *d.chosen));
    OCT_TRY_OUT(oct_alloc(&d.images, (size_t)d.loader.leaf * image, sizeof *d.images));
    OCT_TRY_OUT(choose_samples(&d));
    for (int64_t i = 0; i < d.rows; i++)
        OCT_TRY_OUT(add_row(&d, json_object_get(sheet, "rows"), d.chosen[i]));
    status = oct_page_write(page, facts, "");
out:
    json_decref(facts);
    oct_loader_deinit(&d.loader);
    oct_loader_deinit(&d.plain);
    OCT_FREE_ALL(&d.order, &d.chosen, &d.images);
    oct_image_free(&d.picture);
    oct_image_free(&d.spare);
    return status;
}
