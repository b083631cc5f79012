/* A row for each sample. Its pictures come from the loader of training, so they are what the model will get,
 * undone only by the normalisation: the leaf of the epoch that the sample is in is fetched, since other
 * samples of the leaf may be mixed into it. */
#include "launch/cmd/data_sheet.h"

#include "core/base/mem.h"
#include "core/base/rng.h"
#include "io/augment/geometry.h"
#include "io/batch/loader.h"
#include "launch/cmd/canvas.h"
#include "launch/evaluate/evaluate.h"
#include "launch/train/trainer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { EPOCHS = 6, CELL = 160, GAP = 12, MARGIN = 32, NAMES = 212, LINE = 22, TITLE = 3, TEXT = 2 };
enum { LEFT = MARGIN + NAMES, WIDTH = LEFT + (EPOCHS + 1) * (CELL + GAP) + MARGIN };
static const oct_ink paper = 0xffffff, dark = 0x1f2328, grey = 0x6b7280, pale = 0xf1f3f5,
                     line = 0xd8dde3;

typedef struct drawing {
    const oct_recipe *recipe;
    const oct_dataset *data;
    oct_loader loader, plain; /* of training, and of evaluation */
    int64_t *order;           /* of an epoch */
    int64_t *chosen, rows;
    float *images; /* of a leaf */
    oct_image picture, spare;
    oct_image *sheet;
    int64_t top; /* of what is drawn next */
} drawing;

/* A colour for each class: hues that are far apart, of the same brightness. */
static oct_ink class_ink(int64_t class)
{
    const double hue = fmod(0.61803398875 * (double)class + 0.58, 1) * 6;
    oct_ink ink = 0;
    for (int c = 0; c < 3; c++) {
        const double away = fabs(fmod(hue + 8 - 2 * c, 6) - 3) - 1;
        const double value = away < 0 ? 0 : away > 1 ? 1 : away;
        ink = ink << 8 | (oct_ink)(50 + 160 * value);
    }
    return ink;
}

/* Samples of as many classes as there are, in the order of the first epoch. */
static oct_status choose(drawing *d)
{
    const oct_dataset *data = d->data;
    bool *taken = NULL, *seen = NULL;
    const bool by_class = data->goal == OCT_GOAL_CLASS;
    int64_t n = 0;
    oct_status status = oct_alloc(&taken, (size_t)data->count, sizeof *taken);
    OCT_TRY_OUT(status);
    OCT_TRY_OUT(oct_alloc(&seen, by_class ? (size_t)data->classes : 1, sizeof *seen));
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
out:
    oct_free(&taken);
    oct_free(&seen);
    return status;
}

static double value_of(const drawing *d, float normalised, int64_t channel)
{
    const oct_normaliser *n = &d->loader.normaliser;
    const int64_t at = n->count == 1 ? 0 : channel;
    if (d->data->dtype != OCT_U8) return 128 + 48 * (double)normalised;
    return 255 * ((double)normalised * (double)n->std[at] + (double)n->mean[at]);
}

/* Makes a picture of 1 or 3 channels of a normalised sample. */
static oct_status take_picture(drawing *d, const float *image)
{
    const oct_dataset *data = d->data;
    const int64_t channels = data->c >= 3 ? 3 : 1;
    OCT_TRY(oct_image_resize(&d->picture, OCT_U8, data->h, data->w, channels));
    for (int64_t p = 0; p < data->h * data->w; p++)
        for (int64_t c = 0; c < channels; c++)
            oct_image_set(&d->picture, p * channels + c, value_of(d, image[p * data->c + c], c));
    return OCT_OK;
}

/* Lays the classes of a map over the picture, half and half. */
static oct_status colour_map(drawing *d, const int32_t *map)
{
    const int64_t pixels = d->picture.h * d->picture.w;
    OCT_TRY(oct_image_resize(&d->spare, OCT_U8, d->picture.h, d->picture.w, 3));
    for (int64_t p = 0; p < pixels; p++) {
        const oct_ink ink = map[p] < 0 ? 0 : class_ink(map[p]);
        for (int c = 0; c < 3; c++) {
            const double value =
                oct_image_get(&d->picture, p * d->picture.c + (d->picture.c == 3 ? c : 0));
            oct_image_set(&d->spare, p * 3 + c, (value + (double)(ink >> (16 - 8 * c) & 255)) / 2);
        }
    }
    const oct_image kept = d->picture;
    d->picture = d->spare;
    d->spare = kept;
    return OCT_OK;
}

static int64_t at_least_one(double value)
{
    return value < 1 ? 1 : (int64_t)value;
}

/* Small pictures get larger pixels, large ones are resized. */
static oct_status draw_picture(drawing *d, int column)
{
    oct_image *p = &d->picture;
    const int64_t side = p->h > p->w ? p->h : p->w, left = LEFT + column * (CELL + GAP);
    const double scale = (double)CELL / (double)side;
    if (scale < 1)
        OCT_TRY(oct_geometry_resize(p, NULL, &d->spare, at_least_one(scale * (double)p->h),
                                    at_least_one(scale * (double)p->w)));
    const int64_t times = scale < 1 ? 1 : (int64_t)scale;
    oct_canvas_fill(d->sheet, (oct_spot){left, d->top}, CELL, CELL, pale);
    oct_canvas_picture(
        d->sheet, (oct_spot){left + (CELL - times * p->w) / 2, d->top + (CELL - times * p->h) / 2},
        p, times);
    return OCT_OK;
}

static void name_class(const oct_dataset *data, int64_t class, char text[96])
{
    if (data->class_names)
        snprintf(text, 96, "%.80s", data->class_names[class]);
    else
        snprintf(text, 96, "class %" PRId64, class);
}

/* The two largest of some probabilities, or -1. */
static void find_largest(const float *values, int64_t n, int64_t largest[2])
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

/* Writes which classes a sample has, and how much of them, below a picture or beside it. */
static void draw_values(drawing *d, oct_spot at, int64_t w, const float *values)
{
    int64_t largest[2];
    find_largest(values, d->data->classes, largest);
    for (int i = 0; i < 2 && largest[i] >= 0; i++) {
        char name[96], text[160];
        name_class(d->data, largest[i], name);
        oct_snprintf(text, sizeof text, "%.0f%% %s", 100 * (double)values[largest[i]], name);
        oct_canvas_text(d->sheet, (oct_spot){at.x, at.y + i * LINE}, w, TEXT, i ? grey : dark,
                        text);
    }
}

static bool is_mixing(const drawing *d)
{
    return d->recipe->data_mixup > 0 || d->recipe->data_cutmix > 0;
}

/* "sample 52", or the name of its file without the folders. */
static void name_sample(const oct_dataset *data, int64_t sample, char text[160])
{
    const char *file = data->format->sample_name ? data->format->sample_name(data, sample) : NULL;
    const char *slash = file ? strrchr(file, '/') : NULL;
    if (file)
        snprintf(text, 160, "%.150s", slash ? slash + 1 : file);
    else
        snprintf(text, 160, "sample %" PRId64, sample);
}

static void draw_name(drawing *d, int64_t sample)
{
    const oct_dataset *data = d->data;
    char text[160] = "";
    name_sample(data, sample, text);
    oct_canvas_text(d->sheet, (oct_spot){MARGIN + 14, d->top + LINE}, NAMES - 26, TEXT, grey, text);
    if (data->goal == OCT_GOAL_VALUES)
        draw_values(d, (oct_spot){MARGIN + 14, d->top + 2 * LINE}, NAMES - 26,
                    data->values + sample * data->classes);
    if (data->goal != OCT_GOAL_CLASS) return;
    name_class(data, data->labels[sample], text);
    oct_canvas_text(d->sheet, (oct_spot){MARGIN + 14, d->top}, NAMES - 26, TEXT, dark, text);
    oct_canvas_fill(d->sheet, (oct_spot){MARGIN, d->top}, 5, CELL, class_ink(data->labels[sample]));
}

static oct_status draw_column(drawing *d, int column, const float *image, const oct_goals *goals,
                              int64_t at)
{
    const oct_dataset *data = d->data;
    OCT_TRY(take_picture(d, image));
    if (data->goal == OCT_GOAL_MAP) OCT_TRY(colour_map(d, goals->labels + at * data->rows));
    OCT_TRY(draw_picture(d, column));
    if (is_mixing(d) && column > 0 && goals->values)
        draw_values(d, (oct_spot){LEFT + column * (CELL + GAP), d->top + CELL + 6}, CELL,
                    goals->values + at * data->classes);
    return OCT_OK;
}

/* Fetches the leaf of an epoch that has the sample, as a rank of that leaf alone would. */
static oct_status draw_epoch(drawing *d, int64_t sample, int epoch)
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
    return draw_column(d, epoch + 1, d->images + at * data->h * data->w * data->c, &goals, at);
}

static oct_status draw_row(drawing *d, int64_t sample)
{
    oct_goals goals;
    draw_name(d, sample);
    OCT_TRY(oct_loader_read(&d->plain, sample, 1, d->images, &goals));
    OCT_TRY(draw_column(d, 0, d->images, &goals, 0));
    for (int epoch = 0; epoch < EPOCHS; epoch++)
        OCT_TRY(draw_epoch(d, sample, epoch));
    d->top += CELL + GAP + (is_mixing(d) ? 2 * LINE : 0);
    return OCT_OK;
}

/* Writes the transforms, as many on a line as there is room for. */
static oct_status list_transforms(const oct_recipe *r, oct_text *out)
{
    for (int i = 0; i < r->data_train.count; i++)
        OCT_TRY(oct_text_add(out, "%s\n", r->data_train.value[i]));
    if (r->data_size[0]) OCT_TRY(oct_text_add(out, "size %s\n", r->data_size));
    if (r->data_crop_padding)
        OCT_TRY(oct_text_add(out, "crop_padding %" PRId64 "\n", r->data_crop_padding));
    if (r->data_flip) OCT_TRY(oct_text_add(out, "data.flip\n"));
    if (r->data_mixup > 0) OCT_TRY(oct_text_add(out, "mixup %g\n", r->data_mixup));
    if (r->data_cutmix > 0) OCT_TRY(oct_text_add(out, "cutmix %g\n", r->data_cutmix));
    return out->length ? OCT_OK : oct_text_add(out, "no augmentation\n");
}

static void draw_chips(drawing *d, char *list)
{
    char *rest = NULL;
    int64_t x = MARGIN;
    for (char *word = strtok_r(list, "\n", &rest); word; word = strtok_r(NULL, "\n", &rest)) {
        const int64_t room = WIDTH - 2 * MARGIN - 16, wide = oct_canvas_text_width(word, TEXT);
        const int64_t w = wide < room ? wide : room;
        if (x > MARGIN && x + w + 16 > WIDTH - MARGIN) {
            x = MARGIN;
            d->top += LINE + 14;
        }
        oct_canvas_fill(d->sheet, (oct_spot){x, d->top}, w + 16, LINE + 6, pale);
        oct_canvas_text(d->sheet, (oct_spot){x + 8, d->top + 7}, w, TEXT, dark, word);
        x += w + 16 + 10;
    }
    d->top += LINE + 24;
}

static void describe_data(const drawing *d, char text[256])
{
    const oct_dataset *data = d->data;
    snprintf(text, 256,
             "%s, %" PRId64 " training samples, %" PRId64 "x%" PRId64 "x%" PRId64 " %s, %" PRId64
             " %s, seed %" PRId64,
             data->format->name, data->count, data->h, data->w, data->c,
             oct_dtype_name(data->dtype), data->classes,
             data->goal == OCT_GOAL_CLASS || data->goal == OCT_GOAL_MAP ? "classes" : "values",
             d->recipe->seed);
}

static oct_status draw_head(drawing *d)
{
    oct_text list = {0};
    char text[256];
    OCT_TRY(list_transforms(d->recipe, &list));
    d->top = MARGIN;
    snprintf(text, sizeof text, "%.200s", d->recipe->name);
    oct_canvas_text(d->sheet, (oct_spot){MARGIN, d->top}, WIDTH - 2 * MARGIN, TITLE, dark, text);
    d->top += 36;
    describe_data(d, text);
    oct_canvas_text(d->sheet, (oct_spot){MARGIN, d->top}, WIDTH - 2 * MARGIN, TEXT, grey, text);
    d->top += LINE + 12;
    draw_chips(d, list.data);
    oct_text_free(&list);
    for (int column = 0; column <= EPOCHS; column++) {
        snprintf(text, sizeof text, column ? "epoch %d" : "evaluated", column);
        oct_canvas_text(d->sheet, (oct_spot){LEFT + column * (CELL + GAP), d->top}, CELL, TEXT,
                        grey, text);
    }
    d->top += LINE;
    oct_canvas_fill(d->sheet, (oct_spot){MARGIN, d->top}, WIDTH - 2 * MARGIN, 2, line);
    d->top += GAP;
    return OCT_OK;
}

/* Heads are at most so high; what is not needed is cut off at the end. */
static int64_t most_height(const drawing *d)
{
    const int64_t chips = d->recipe->data_train.count + 5;
    return 240 + chips * (LINE + 14) + d->rows * (CELL + GAP + 2 * LINE) + MARGIN;
}

static oct_status draw_all(drawing *d)
{
    const oct_dataset *data = d->data;
    const size_t image = (size_t)(data->h * data->w * data->c);
    OCT_TRY(oct_training_loader(&d->loader, d->recipe, data));
    OCT_TRY(oct_evaluation_loader(&d->plain, d->recipe, data));
    OCT_TRY(oct_alloc(&d->order, (size_t)data->count, sizeof *d->order));
    OCT_TRY(oct_alloc(&d->chosen, (size_t)d->rows, sizeof *d->chosen));
    OCT_TRY(oct_alloc(&d->images, (size_t)d->loader.leaf * image, sizeof *d->images));
    OCT_TRY(choose(d));
    OCT_TRY(oct_image_resize(d->sheet, OCT_U8, most_height(d), WIDTH, 3));
    oct_canvas_fill(d->sheet, (oct_spot){0, 0}, WIDTH, d->sheet->h, paper);
    OCT_TRY(draw_head(d));
    for (int64_t i = 0; i < d->rows; i++)
        OCT_TRY(draw_row(d, d->chosen[i]));
    d->sheet->h = d->top + MARGIN - GAP;
    return OCT_OK;
}

oct_status oct_data_sheet(const oct_recipe *recipe, const oct_dataset *data, int64_t samples,
                          oct_image *sheet)
{
    drawing d = {.recipe = recipe, .data = data, .rows = samples, .sheet = sheet};
    const oct_status status = draw_all(&d);
    oct_loader_deinit(&d.loader);
    oct_loader_deinit(&d.plain);
    oct_free(&d.order);
    oct_free(&d.chosen);
    oct_free(&d.images);
    oct_image_free(&d.picture);
    oct_image_free(&d.spare);
    return status;
}
