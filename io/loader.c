/* Batches are made here: order, crop, flip and normalisation of the samples that this rank owns.
 *
 * Position p of an epoch draws from Philox(seed, AUGMENT, epoch * count + p): of sub 0 word 0 decides on the
 * flip, words 1 and 2 on the vertical and horizontal offset of the crop; transforms have the other subs. A
 * word means the same whichever of them are on. As the draw belongs to the position in the global order, no
 * rank needs to know what the others do.
 *
 * A crop is taken from the image padded by zeros *after* normalisation, that is by the mean. (Padding
 * before normalisation, as by black, would give -mean/std there.) The flip comes after the crop.
 */
#include "io/loader.h"

#include "core/base/mem.h"
#include "core/base/rng.h"

#include <inttypes.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

enum { BYTE_VALUES = 256, IGNORED = -1 };

/* A thread reads into these. */
struct oct_loader_scratch {
    oct_image image, map;
    float *spare; /* of a sample that is mixed, and its values */
    size_t spare_capacity;
};
typedef struct oct_loader_scratch scratch;

static inline float normalised(float value, float unit, float mean, float inverse_std)
{
    return (value * unit - mean) * inverse_std;
}

static float unit_of(oct_dtype dtype)
{
    return dtype == OCT_U8 ? 1.0f / 255.0f : dtype == OCT_S8 ? 1.0f / 128.0f : 1.0f;
}

static float value_at(const oct_image *image, int64_t i)
{
    if (image->dtype == OCT_U8) return (float)((const uint8_t *)image->data)[i];
    if (image->dtype == OCT_S8) return (float)((const int8_t *)image->data)[i];
    return ((const float *)image->data)[i];
}

oct_normaliser oct_normaliser_of(const oct_reals *mean, const oct_reals *std)
{
    oct_normaliser n = {.count = mean->count > std->count ? mean->count : std->count};
    for (int c = 0; c < n.count; c++) {
        n.mean[c] = (float)mean->value[mean->count == 1 ? 0 : c];
        n.std[c] = (float)std->value[std->count == 1 ? 0 : c];
    }
    return n;
}

/* Which of a normaliser's values are those of channel c. */
static int64_t place(const oct_normaliser *n, int64_t c)
{
    return n->count == 1 ? 0 : c;
}

void oct_normalise_image(const oct_image *image, const oct_normaliser *n, float *out)
{
    const float unit = unit_of(image->dtype);
    const int64_t pixels = image->h * image->w;
    for (int64_t c = 0; c < image->c; c++) {
        const float mean = n->mean[place(n, c)], inverse_std = 1.0f / n->std[place(n, c)];
        for (int64_t i = c; i < pixels * image->c; i += image->c)
            out[i] = normalised(value_at(image, i), unit, mean, inverse_std);
    }
}

void oct_normalise(const uint8_t *bytes, int64_t pixels, int64_t channels, const float *mean,
                   const float *std, float *out)
{
    for (int64_t c = 0; c < channels; c++) {
        float inverse_std = 1.0f / std[c];
        for (int64_t i = 0; i < pixels; i++)
            out[i * channels + c] =
                normalised((float)bytes[i * channels + c], 1.0f / 255.0f, mean[c], inverse_std);
    }
}

oct_status oct_loader_init(oct_loader *loader, const oct_dataset *data)
{
    *loader = (oct_loader){
        .data = data,
        .seed = 1,
        .batch = 128,
        .leaf = 8,
        .shuffle = true,
        .normaliser = {.count = 1, .std = {1}},
        .order_epoch = -1,
    };
    return OCT_OK;
}

void oct_loader_deinit(oct_loader *loader)
{
    for (int i = 0; i < loader->threads; i++) {
        oct_image_free(&loader->scratch[i].image);
        oct_image_free(&loader->scratch[i].map);
        oct_free(&loader->scratch[i].spare);
    }
    oct_free(&loader->scratch);
    oct_free(&loader->order);
    oct_free(&loader->labels);
    oct_free(&loader->values);
    *loader = (oct_loader){0};
}

static bool is_mixing(const oct_loader *loader)
{
    return loader->mixing.mixup > 0 || loader->mixing.cutmix > 0;
}

/* Room for the scratch of each thread, and in it for samples whose size is known. */
static oct_status reserve_scratch(oct_loader *loader)
{
    const oct_dataset *data = loader->data;
    const int threads = omp_get_max_threads();
    size_t capacity = (size_t)loader->threads;
    if (threads <= loader->threads) return OCT_OK;
    OCT_TRY(oct_grow(&loader->scratch, &capacity, (size_t)threads, sizeof *loader->scratch));
    for (; loader->threads < threads; loader->threads++) {
        scratch *s = &loader->scratch[loader->threads];
        *s = (scratch){0};
        OCT_TRY(oct_image_resize(&s->image, data->dtype, data->read_h, data->read_w, data->read_c));
    }
    const size_t spare = (size_t)(data->h * data->w * data->c + data->classes);
    for (int i = 0; i < loader->threads && is_mixing(loader); i++)
        OCT_TRY(oct_grow(&loader->scratch[i].spare, &loader->scratch[i].spare_capacity, spare,
                         sizeof(float)));
    return OCT_OK;
}

static oct_status reserve(oct_loader *loader, int64_t samples)
{
    const oct_dataset *data = loader->data;
    const size_t n =
        samples > 0 ? (size_t)samples : 1; /* goals are never NULL where there are some */
    OCT_TRY(reserve_scratch(loader));
    if (data->goal == OCT_GOAL_VALUES || is_mixing(loader))
        return oct_grow(&loader->values, &loader->value_capacity, n * (size_t)data->classes,
                        sizeof *loader->values);
    if (data->goal == OCT_GOAL_INPUT) return OCT_OK;
    return oct_grow(&loader->labels, &loader->label_capacity, n * (size_t)data->rows,
                    sizeof *loader->labels);
}

static oct_status reserve_order(oct_loader *loader)
{
    if (loader->order) return OCT_OK;
    return oct_alloc(&loader->order, (size_t)loader->data->count, sizeof(*loader->order));
}

oct_status oct_loader_reserve(oct_loader *loader, int64_t samples)
{
    OCT_TRY(reserve_order(loader));
    return reserve(loader, samples);
}

int64_t oct_loader_steps(const oct_loader *loader)
{
    int64_t count = loader->data->count;
    return loader->drop_last ? count / loader->batch : (count + loader->batch - 1) / loader->batch;
}

int64_t oct_loader_samples(const oct_loader *loader, int64_t step_in_epoch)
{
    int64_t left = loader->data->count - step_in_epoch * loader->batch;
    return left < loader->batch ? left : loader->batch;
}

static oct_status find_order(oct_loader *loader, int64_t epoch)
{
    OCT_TRY(reserve_order(loader));
    if (loader->order_epoch == epoch) return OCT_OK;
    if (loader->shuffle) {
        oct_permutation(loader->order, loader->data->count, loader->seed, (uint64_t)epoch);
    } else {
        for (int64_t i = 0; i < loader->data->count; i++)
            loader->order[i] = i;
    }
    loader->order_epoch = epoch;
    return OCT_OK;
}

/* A table of what every byte becomes, by the one formula, so that the bits are those of oct_normalise. */
typedef struct look_up {
    float value[OCT_REALS_MAX][BYTE_VALUES];
} look_up;

static void fill_look_up(const oct_normaliser *n, oct_dtype dtype, look_up *table)
{
    const float unit = unit_of(dtype);
    for (int c = 0; c < n->count; c++) {
        float inverse_std = 1.0f / n->std[c];
        for (int v = 0; v < BYTE_VALUES; v++)
            table->value[c][v] = normalised(dtype == OCT_S8 ? (float)(int8_t)v : (float)v, unit,
                                            n->mean[c], inverse_std);
    }
}

/* How a sample is cropped and mirrored: by the draw of its place in the epoch, or not at all. */
typedef struct move {
    int64_t down, right; /* of the crop against the image, -crop_padding to crop_padding */
    bool flip;
} move;

static move draw_move(const oct_loader *loader, const oct_draw *draw)
{
    uint32_t words[4];
    uint32_t offsets = 2 * (uint32_t)loader->crop_padding + 1;
    oct_philox(draw->seed, OCT_STREAM_AUGMENT, draw->index, 0, words);
    return (move){
        .down = (int64_t)oct_below(words[1], offsets) - loader->crop_padding,
        .right = (int64_t)oct_below(words[2], offsets) - loader->crop_padding,
        .flip = loader->flip && oct_below(words[0], 2) == 1,
    };
}

/* Some samples on their way into a batch. */
typedef struct filling {
    oct_loader *loader;
    int64_t first; /* position of the first in the epoch, or in the data set */
    bool training; /* in the order of an epoch, moved */
    uint64_t draw; /* of position 0 */
    const look_up *table;
    float *images;
} filling;

/* The columns of a row that a crop finds in the image: [begin, end), of `w`. */
static int64_t begin_of(const move *m)
{
    return m->right < 0 ? -m->right : 0;
}

static int64_t end_of(const move *m, int64_t w)
{
    return m->right > 0 ? w - m->right : w;
}

/* Copies one row of the crop: columns that lie in the image are looked up, the others stay 0. */
static void copy_row(const filling *f, const oct_image *image, int64_t y, const move *m, float *out)
{
    const oct_normaliser *n = &f->loader->normaliser;
    const int64_t w = image->w, channels = image->c, row = y * w * channels;
    for (int64_t x = begin_of(m); x < end_of(m, w); x++) {
        const int64_t from = row + (x + m->right) * channels;
        float *to = out + (m->flip ? w - 1 - x : x) * channels;
        for (int64_t c = 0; c < channels; c++)
            to[c] = f->table->value[place(n, c)][((const uint8_t *)image->data)[from + c]];
    }
}

/* The same of floats. */
static void copy_floats(const filling *f, const oct_image *image, int64_t y, const move *m,
                        float *out)
{
    const oct_normaliser *n = &f->loader->normaliser;
    const int64_t w = image->w, channels = image->c, row = y * w * channels;
    const float *data = image->data;
    for (int64_t x = begin_of(m); x < end_of(m, w); x++) {
        const float *from = data + row + (x + m->right) * channels;
        float *to = out + (m->flip ? w - 1 - x : x) * channels;
        for (int64_t c = 0; c < channels; c++)
            to[c] = normalised(from[c], 1.0f, n->mean[place(n, c)], 1.0f / n->std[place(n, c)]);
    }
}

static void copy_image(const filling *f, const oct_image *image, const move *m, float *out)
{
    const int64_t row = image->w * image->c;
    memset(out, 0, (size_t)(image->h * row) * sizeof(float));
    for (int64_t y = 0; y < image->h; y++) {
        const int64_t from = y + m->down;
        if (from < 0 || from >= image->h) continue;
        if (image->dtype == OCT_F32)
            copy_floats(f, image, from, m, out + y * row);
        else
            copy_row(f, image, from, m, out + y * row);
    }
}

/* A map moves with its image; what comes from outside of it is ignored. */
static void copy_map(const oct_image *map, const move *m, int32_t *out)
{
    const int32_t *data = map->data;
    for (int64_t y = 0; y < map->h; y++)
        for (int64_t x = 0; x < map->w; x++) {
            const int64_t from_y = y + m->down, from_x = x + m->right;
            const bool in = from_y >= 0 && from_y < map->h && from_x >= 0 && from_x < map->w;
            out[y * map->w + (m->flip ? map->w - 1 - x : x)] =
                in ? data[from_y * map->w + from_x] : IGNORED;
        }
}

static oct_status check_size(const oct_dataset *data, int64_t sample, const oct_image *image)
{
    OCT_ASSERT(image->dtype == data->dtype);
    OCT_CHECK(image->h == data->h && image->w == data->w && image->c == data->c, OCT_DATA,
              "sample %" PRId64 " of the data set has %" PRId64 "x%" PRId64 "x%" PRId64
              " numbers, but the model takes %" PRId64 "x%" PRId64 "x%" PRId64,
              sample, image->h, image->w, image->c, data->h, data->w, data->c);
    return OCT_OK;
}

static oct_status check_map(const oct_dataset *data, int64_t sample, const oct_image *image,
                            const oct_image *map)
{
    const int64_t pixels = map->h * map->w;
    OCT_CHECK(map->h == image->h && map->w == image->w && map->dtype == OCT_S32, OCT_DATA,
              "the map of sample %" PRId64 " has %" PRId64 "x%" PRId64
              " pixels, but its image %" PRId64 "x%" PRId64,
              sample, map->h, map->w, image->h, image->w);
    for (int64_t i = 0; i < pixels; i++)
        OCT_CHECK(((const int32_t *)map->data)[i] < data->classes, OCT_DATA,
                  "the map of sample %" PRId64 " holds class %d, but there are %" PRId64
                  " classes; raise data.classes, or use a negative number for pixels without one",
                  sample, (int)((const int32_t *)map->data)[i], data->classes);
    return OCT_OK;
}

/* Reads and transforms one sample. */
static oct_status read_sample(const oct_loader *loader, int64_t sample, const oct_draw *draw,
                              scratch *s)
{
    const oct_dataset *data = loader->data;
    oct_image *map = data->goal == OCT_GOAL_MAP ? &s->map : NULL;
    OCT_TRY(data->format->read(data, sample, &s->image, map));
    if (map) OCT_TRY(check_map(data, sample, &s->image, map));
    OCT_TRY(oct_augment_run(&loader->augment, draw, &s->image, map));
    return check_size(data, sample, &s->image);
}

static void fill_one_hot(float *values, int64_t classes, int32_t label)
{
    memset(values, 0, (size_t)classes * sizeof *values);
    values[label] = 1;
}

static oct_status fill_one(const filling *f, int64_t i, scratch *s)
{
    oct_loader *loader = f->loader;
    const oct_dataset *data = loader->data;
    const int64_t position = f->first + i, classes = data->classes, rows = data->rows;
    const int64_t sample = f->training ? loader->order[position] : position;
    const oct_draw draw = {loader->seed, f->draw + (uint64_t)position};
    const move m = f->training ? draw_move(loader, &draw) : (move){0};
    OCT_TRY(read_sample(loader, sample, &draw, s));
    copy_image(f, &s->image, &m, f->images + i * oct_image_numel(&s->image));
    if (data->goal == OCT_GOAL_CLASS && is_mixing(loader))
        fill_one_hot(loader->values + i * classes, classes, data->labels[sample]);
    else if (data->goal == OCT_GOAL_CLASS)
        loader->labels[i] = data->labels[sample];
    if (data->goal == OCT_GOAL_VALUES)
        memcpy(loader->values + i * classes, data->values + sample * classes,
               (size_t)classes * sizeof *loader->values);
    if (data->goal == OCT_GOAL_MAP) copy_map(&s->map, &m, loader->labels + i * rows);
    return OCT_OK;
}

/* The failure of the first sample that cannot be read, whichever thread met it. */
typedef struct failure {
    int64_t at;
    oct_status code;
    char text[1024];
} failure;

static void take_failure(failure *first, int64_t at, oct_status code)
{
#pragma omp critical(oct_loader_failure)
    if (first->code == OCT_OK || at < first->at) {
        first->at = at;
        first->code = code;
        snprintf(first->text, sizeof first->text, "%s", oct_fail_text(0));
    }
    oct_fail_clear();
}

static oct_status fill(filling *f, int64_t n, oct_goals *goals)
{
    oct_loader *loader = f->loader;
    failure first = {0};
    look_up table;
    OCT_TRY(reserve(loader, n));
    if (loader->data->dtype != OCT_F32)
        fill_look_up(&loader->normaliser, loader->data->dtype, &table);
    f->table = &table;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++) {
        const oct_status status = fill_one(f, i, &loader->scratch[omp_get_thread_num()]);
        if (status != OCT_OK) take_failure(&first, i, status);
    }
    *goals = (oct_goals){
        .labels = loader->label_capacity > 0 ? loader->labels : NULL,
        .values = loader->data->goal == OCT_GOAL_INPUT ? f->images : loader->values,
    };
    return first.code == OCT_OK ? OCT_OK : oct_fail(first.code, "%s", first.text);
}

/* Mixes the samples of each leaf, where that is wanted. */
static void mix(const filling *f, const oct_leaves *leaves)
{
    const oct_loader *loader = f->loader;
    const oct_dataset *data = loader->data;
    const int64_t local = oct_leaves_local_samples(leaves), leaf = loader->leaf;
    if (!is_mixing(loader)) return;
#pragma omp parallel for schedule(static)
    for (int64_t at = 0; at < local; at += leaf) {
        const oct_mix_leaf one = {
            .first = {loader->seed, f->draw + (uint64_t)(f->first + at)},
            .samples = local - at < leaf ? local - at : leaf,
            .h = data->h,
            .w = data->w,
            .c = data->c,
            .classes = data->classes,
            .images = f->images + at * data->h * data->w * data->c,
            .values = loader->values + at * data->classes,
            .spare = loader->scratch[omp_get_thread_num()].spare,
        };
        oct_mix(&loader->mixing, &one);
    }
}

oct_status oct_loader_fetch(oct_loader *loader, int64_t epoch, int64_t step_in_epoch,
                            const oct_leaves *leaves, float *images, oct_goals *goals)
{
    int64_t samples = oct_loader_samples(loader, step_in_epoch);
    OCT_CHECK(step_in_epoch >= 0 && step_in_epoch < oct_loader_steps(loader), OCT_DEFECT,
              "step %lld of an epoch of %lld steps", (long long)step_in_epoch,
              (long long)oct_loader_steps(loader));
    OCT_CHECK(leaves->samples == samples && leaves->leaf == loader->leaf, OCT_DEFECT,
              "leaves for %lld samples, %lld a leaf, where the step has %lld, %lld a leaf",
              (long long)leaves->samples, (long long)leaves->leaf, (long long)samples,
              (long long)loader->leaf);
    OCT_TRY(find_order(loader, epoch));
    filling f = {
        .loader = loader,
        .first = step_in_epoch * loader->batch + oct_leaves_first_sample(leaves),
        .training = true,
        .draw = (uint64_t)epoch * (uint64_t)loader->data->count,
        .images = images,
    };
    OCT_TRY(fill(&f, oct_leaves_local_samples(leaves), goals));
    mix(&f, leaves);
    return OCT_OK;
}

oct_status oct_loader_read(oct_loader *loader, int64_t first, int64_t n, float *images,
                           oct_goals *goals)
{
    filling f = {.loader = loader, .first = first, .images = images};
    return fill(&f, n, goals);
}
