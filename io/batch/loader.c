/* Batches are made here: the order of the samples that this rank owns, reading ahead, and what goes into a batch.
 *
 * Position p of an epoch draws from Philox(seed, AUGMENT, epoch * count + p). As the draw belongs to the position in
 * the global order, no rank needs to know what the others do.
 */
#include "io/batch/loader.h"

#include "core/base/mem.h"
#include "core/base/rng.h"
#include "io/augment/augment.h"

#include <inttypes.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

/* data.crop_padding and data.flip: a sample is cropped and mirrored while it is normalised into a batch.
 *
 * The crop has the size of the image and is taken from the image padded by zeros *after* normalisation, that is by the
 * mean. (Padding before normalisation, as by black, would give -mean/std there.) The flip comes after the crop. The
 * transform random_crop pads the image itself with data.mean, rounded to a byte. */
typedef struct sample_crop {
    int64_t down, right; /* of the crop against the image, -padding to padding */
    bool flip;           /* left-right */
} sample_crop;

/* Draws from sub 0 of a sample: word 0 decides on the flip, words 1 and 2 on the vertical and horizontal offset of the
 * crop, whichever of them are on; transforms have the other subs. */
static sample_crop draw_crop(const oct_draw *draw, int padding, bool flip)
{
    uint32_t words[4];
    const uint32_t offsets = 2 * (uint32_t)padding + 1;
    oct_philox(draw->seed, OCT_STREAM_AUGMENT, draw->index, 0, words);
    return (sample_crop){
        .down = (int64_t)oct_below(words[1], offsets) - padding,
        .right = (int64_t)oct_below(words[2], offsets) - padding,
        .flip = flip && oct_below(words[0], 2) == 1,
    };
}

/* The columns of a row that a crop finds in the image: [begin, end), of `w`. */
static int64_t begin_of(const sample_crop *crop)
{
    return crop->right < 0 ? -crop->right : 0;
}

static int64_t end_of(const sample_crop *crop, int64_t w)
{
    return crop->right > 0 ? w - crop->right : w;
}

/* Copies one row of the crop: columns that lie in the image are looked up, the others stay 0. */
static void copy_bytes(const sample_crop *crop, const oct_image *image, int64_t y,
                       const oct_normaliser *n, const float *look_up, float *out)
{
    const uint8_t *bytes = image->data;
    const int64_t w = image->w, channels = image->c, row = y * w * channels;
    for (int64_t x = begin_of(crop); x < end_of(crop, w); x++) {
        const int64_t from = row + (x + crop->right) * channels;
        float *to = out + (crop->flip ? w - 1 - x : x) * channels;
        for (int64_t c = 0; c < channels; c++)
            to[c] = look_up[oct_normaliser_at(n, c) * OCT_BYTE_VALUES + bytes[from + c]];
    }
}

/* The same of floats. */
static void copy_floats(const sample_crop *crop, const oct_image *image, int64_t y,
                        const oct_normaliser *n, float *out)
{
    const int64_t w = image->w, channels = image->c, row = y * w * channels;
    const float *data = image->data;
    for (int64_t x = begin_of(crop); x < end_of(crop, w); x++) {
        const float *from = data + row + (x + crop->right) * channels;
        float *to = out + (crop->flip ? w - 1 - x : x) * channels;
        for (int64_t c = 0; c < channels; c++)
            to[c] = oct_normal_value(from[c], 1.0f, n->mean[oct_normaliser_at(n, c)],
                                     1.0f / n->std[oct_normaliser_at(n, c)]);
    }
}

/* out: height x width x channels. look_up: oct_normaliser_look_up, for images of bytes. */
static void crop_image(const sample_crop *crop, const oct_image *image, const oct_normaliser *n,
                       const float *look_up, float *out)
{
    const int64_t row = image->w * image->c;
    memset(out, 0, (size_t)(image->h * row) * sizeof(float));
    for (int64_t y = 0; y < image->h; y++) {
        const int64_t from = y + crop->down;
        if (from < 0 || from >= image->h) continue;
        if (image->dtype == OCT_F32)
            copy_floats(crop, image, from, n, out + y * row);
        else
            copy_bytes(crop, image, from, n, look_up, out + y * row);
    }
}

/* A map moves with its image; pixels from outside are OCT_MAP_OUTSIDE. out: height x width. */
static void crop_map(const sample_crop *crop, const oct_image *map, int32_t *out)
{
    const int32_t *data = map->data;
    for (int64_t y = 0; y < map->h; y++)
        for (int64_t x = 0; x < map->w; x++) {
            const int64_t from_y = y + crop->down, from_x = x + crop->right;
            const bool in = from_y >= 0 && from_y < map->h && from_x >= 0 && from_x < map->w;
            out[y * map->w + (crop->flip ? map->w - 1 - x : x)] =
                in ? data[from_y * map->w + from_x] : OCT_MAP_OUTSIDE;
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
        .ranks = 1,
        .prefetch = 2,
        .read_end = data->count,
        .order_epoch = {-1, -1},
    };
    return OCT_OK;
}

void oct_loader_deinit(oct_loader *loader)
{
    oct_reader_destroy(&loader->reader);
    oct_cache_destroy(&loader->cache);
    for (int i = 0; i < loader->threads; i++)
        oct_sample_free(&loader->scratch[i]);
    oct_free(&loader->scratch);
    oct_free(&loader->spare);
    oct_free(&loader->look_up);
    oct_free(&loader->order[0]);
    oct_free(&loader->order[1]);
    oct_free(&loader->labels);
    oct_free(&loader->values);
    *loader = (oct_loader){0};
}

static bool is_mixing(const oct_loader *loader)
{
    return loader->mixing.mixup > 0 || loader->mixing.cutmix > 0;
}

/* What a thread that mixes needs. */
static size_t spare_numel(const oct_loader *loader)
{
    const oct_dataset *data = loader->data;
    return (size_t)(data->h * data->w * data->c + data->classes);
}

/* Room for the scratch of each thread, and in it for samples whose size is known. */
static oct_status reserve_scratch(oct_loader *loader)
{
    const oct_dataset *data = loader->data;
    const int threads = omp_get_max_threads();
    size_t capacity = (size_t)loader->threads;
    if (is_mixing(loader))
        OCT_TRY(oct_grow(&loader->spare, &loader->spare_capacity,
                         (size_t)threads * spare_numel(loader), sizeof *loader->spare));
    if (threads <= loader->threads) return OCT_OK;
    OCT_TRY(oct_grow(&loader->scratch, &capacity, (size_t)threads, sizeof *loader->scratch));
    for (; loader->threads < threads; loader->threads++) {
        oct_image *image = &loader->scratch[loader->threads].image;
        OCT_TRY(oct_image_resize(image, data->dtype, data->read_h, data->read_w, data->read_c));
    }
    return OCT_OK;
}

static oct_reader_options reading(const oct_loader *loader)
{
    return (oct_reader_options){loader->data, &loader->augment, loader->damaged_mode,
                                loader->cache};
}

/* The reader that reads ahead, where that is worth while, with room for fetches of `samples`. */
static oct_status reserve_reader(oct_loader *loader, int64_t samples)
{
    const oct_reader_options options = reading(loader);
    const int64_t room = samples * (1 + loader->prefetch);
    if (loader->prefetch_threads == 0 || loader->prefetch == 0 || loader->reader_room >= room ||
        (!loader->data->format->reads_files && oct_augment_is_empty(&loader->augment)))
        return OCT_OK;
    oct_reader_destroy(&loader->reader);
    loader->reader_room = room;
    return oct_reader_create(&loader->reader, &options, loader->prefetch_threads, room);
}

static oct_status reserve_samples(oct_loader *loader, int64_t samples)
{
    const oct_dataset *data = loader->data;
    const size_t n =
        samples > 0 ? (size_t)samples : 1; /* goals are never NULL where there are some */
    if (data->dtype != OCT_F32) {
        OCT_TRY(oct_grow(&loader->look_up, &loader->look_up_capacity,
                         (size_t)loader->normaliser.count * OCT_BYTE_VALUES,
                         sizeof *loader->look_up));
        oct_normaliser_look_up(&loader->normaliser, data->dtype, loader->look_up);
    }
    OCT_TRY(reserve_scratch(loader));
    if (loader->cache_bytes > 0 && !loader->cache && data->format->reads_files)
        OCT_TRY(oct_cache_create(&loader->cache, data->count, loader->cache_bytes));
    OCT_TRY(reserve_reader(loader, (int64_t)n));
    if (data->goal == OCT_GOAL_VALUES || is_mixing(loader))
        return oct_grow(&loader->values, &loader->value_capacity, n * (size_t)data->classes,
                        sizeof *loader->values);
    if (data->goal == OCT_GOAL_NONE || (data->goal == OCT_GOAL_INPUT && !data->labels))
        return OCT_OK;
    return oct_grow(&loader->labels, &loader->label_capacity, n * (size_t)data->rows,
                    sizeof *loader->labels);
}

static oct_status reserve_order(oct_loader *loader, int at)
{
    if (loader->order[at]) return OCT_OK;
    return oct_alloc(&loader->order[at], (size_t)loader->data->count, sizeof(*loader->order[at]));
}

oct_status oct_loader_reserve(oct_loader *loader, int64_t samples)
{
    OCT_TRY(reserve_order(loader, 0));
    return reserve_samples(loader, samples);
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

/* Finds which of the two orders is that of an epoch, made in place of the one that `keep` does not need. */
static oct_status find_order(oct_loader *loader, int64_t epoch, int64_t keep, int *at)
{
    for (*at = 0; *at < 2; ++*at)
        if (loader->order_epoch[*at] == epoch) return OCT_OK;
    *at = loader->order_epoch[0] == keep;
    OCT_TRY(reserve_order(loader, *at));
    int64_t *order = loader->order[*at];
    if (loader->shuffle) {
        oct_permutation(order, loader->data->count, loader->seed, (uint64_t)epoch);
    } else {
        for (int64_t i = 0; i < loader->data->count; i++)
            order[i] = i;
    }
    loader->order_epoch[*at] = epoch;
    return OCT_OK;
}

typedef struct oct_loader_cursor cursor;

/* Some samples on their way into a batch. */
typedef struct filling {
    oct_loader *loader;
    cursor at; /* the first of them */
    const int64_t *order;
    float *images;
} filling;

/* The place of a position: in the order of an epoch, or of the data set. */
static oct_place place_of(const oct_loader *loader, const cursor *c, const int64_t *order,
                          int64_t position)
{
    const uint64_t before = c->training ? (uint64_t)c->epoch * (uint64_t)loader->data->count : 0;
    return (oct_place){c->training ? order[position] : position,
                       {loader->seed, before + (uint64_t)position}};
}

static void fill_zeros(const filling *f, int64_t i)
{
    oct_loader *loader = f->loader;
    const oct_dataset *data = loader->data;
    const int64_t numel = data->h * data->w * data->c;
    memset(f->images + i * numel, 0, (size_t)numel * sizeof *f->images);
    if (data->goal == OCT_GOAL_VALUES || is_mixing(loader))
        memset(loader->values + i * data->classes, 0,
               (size_t)data->classes * sizeof *loader->values);
    else if (data->goal != OCT_GOAL_INPUT && data->goal != OCT_GOAL_NONE)
        memset(loader->labels + i * data->rows, 0, (size_t)data->rows * sizeof *loader->labels);
}

static void fill_one(const filling *f, int64_t i, const oct_sample *s)
{
    oct_loader *loader = f->loader;
    const oct_dataset *data = loader->data;
    const int64_t classes = data->classes;
    const sample_crop crop = f->at.training
                                 ? draw_crop(&s->place.draw, loader->crop_padding, loader->flip)
                                 : (sample_crop){0};
    crop_image(&crop, &s->image, &loader->normaliser, loader->look_up,
               f->images + i * oct_image_numel(&s->image));
    if (data->goal == OCT_GOAL_CLASS && is_mixing(loader)) {
        float *values = loader->values + i * classes;
        memset(values, 0, (size_t)classes * sizeof *values);
        values[data->labels[s->number]] = 1;
    } else if (data->labels)
        loader->labels[i] = data->labels[s->number];
    if (data->goal == OCT_GOAL_VALUES)
        memcpy(loader->values + i * classes, data->values + s->number * classes,
               (size_t)classes * sizeof *loader->values);
    if (data->goal == OCT_GOAL_MAP) crop_map(&crop, &s->map, loader->labels + i * data->rows);
}

/* What there is to say of the samples of a fetch, whichever thread met it. */
typedef struct outcome {
    int64_t failed, damaged; /* the first that failed, and the last that was damaged; -1: none */
    int64_t passed_over;
    oct_status code;
    char failed_text[OCT_READ_TEXT], damaged_text[OCT_READ_TEXT];
} outcome;

static void add_outcome(outcome *o, int64_t i, const oct_sample *s)
{
#pragma omp critical(oct_loader_outcome)
    {
        if (s->status != OCT_OK && (o->failed < 0 || i < o->failed)) {
            o->failed = i;
            o->code = s->status;
            memcpy(o->failed_text, s->text, sizeof o->failed_text);
        }
        if (s->damaged > 0 && i > o->damaged) {
            o->damaged = i;
            memcpy(o->damaged_text, s->text, sizeof o->damaged_text);
        }
        o->passed_over += s->damaged;
    }
}

/* The samples that come after this fetch, as far as it can be known: the next batch, or the next epoch. */
static void move_on(const oct_loader *loader, cursor *c)
{
    if (++c->i < c->n || !c->training) return;
    do {
        c->batch++;
        if (c->batch >= oct_loader_steps(loader)) {
            c->batch = 0;
            c->epoch++;
        }
        const oct_leaves leaves = oct_leaves_split(oct_loader_samples(loader, c->batch),
                                                   loader->leaf, loader->rank, loader->ranks);
        c->first = c->batch * loader->batch + oct_leaves_first_sample(&leaves);
        c->n = oct_leaves_local_samples(&leaves);
    } while (c->n == 0);
    c->i = 0;
}

static oct_status ask_ahead(oct_loader *loader, int64_t epoch)
{
    cursor *c = &loader->cursor;
    while (oct_reader_room(loader->reader) > 0) {
        int at = 0;
        if (c->training)
            OCT_TRY(find_order(loader, c->epoch, epoch, &at));
        else if (c->first + c->i >= loader->read_end)
            return OCT_OK;
        const oct_place place = place_of(loader, c, loader->order[at], c->first + c->i);
        oct_reader_ask(loader->reader, &place);
        move_on(loader, c);
    }
    return OCT_OK;
}

/* Makes sure that the samples in front of the reader's queue are those of the filling. */
static oct_status match_queue(const filling *f, int64_t n)
{
    oct_loader *loader = f->loader;
    int64_t same = 0;
    for (; same < n; same++) {
        const oct_place place = place_of(loader, &f->at, f->order, f->at.first + same);
        if (!oct_reader_has(loader->reader, same, &place)) break;
    }
    if (same < n && oct_reader_asked(loader->reader) > same) oct_reader_forget(loader->reader);
    if (oct_reader_asked(loader->reader) == 0) loader->cursor = f->at;
    return ask_ahead(loader, f->at.epoch);
}

static void take_one(const filling *f, int64_t i, outcome *o)
{
    oct_loader *loader = f->loader;
    const oct_sample *s;
    if (loader->reader) {
        s = oct_reader_wait(loader->reader, i);
    } else {
        const oct_reader_options options = reading(loader);
        const oct_place place = place_of(loader, &f->at, f->order, f->at.first + i);
        oct_sample *own = &loader->scratch[omp_get_thread_num()];
        oct_read_sample(&options, &place, own);
        s = own;
    }
    if (s->status == OCT_OK)
        fill_one(f, i, s);
    else
        fill_zeros(f, i);
    if (s->status != OCT_OK || s->damaged > 0) add_outcome(o, i, s);
}

static oct_status fill_batch(filling *f, int64_t n, oct_goals *goals)
{
    oct_loader *loader = f->loader;
    outcome o = {.failed = -1, .damaged = -1};
    OCT_TRY(reserve_samples(loader, n));
    if (loader->reader && n > 0) OCT_TRY(match_queue(f, n));
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++)
        take_one(f, i, &o);
    if (loader->reader && n > 0) {
        oct_reader_release(loader->reader, n);
        OCT_TRY(ask_ahead(loader, f->at.epoch));
    }
    *goals = (oct_goals){
        .labels = loader->label_capacity > 0 ? loader->labels : NULL,
        .values = loader->data->goal == OCT_GOAL_INPUT ? f->images : loader->values,
    };
    loader->damaged += o.passed_over;
    if (o.damaged >= 0) memcpy(loader->damaged_text, o.damaged_text, sizeof loader->damaged_text);
    return o.failed < 0 ? OCT_OK : oct_fail(o.code, "%s", o.failed_text);
}

/* Mixes the samples of each leaf, where that is wanted. */
static void mix_leaves(const filling *f, const oct_leaves *leaves)
{
    const oct_loader *loader = f->loader;
    const oct_dataset *data = loader->data;
    const int64_t local = oct_leaves_local_samples(leaves), leaf = loader->leaf;
    if (!is_mixing(loader)) return;
#pragma omp parallel for schedule(static)
    for (int64_t at = 0; at < local; at += leaf) {
        const oct_mix_leaf one = {
            .first = place_of(loader, &f->at, f->order, f->at.first + at).draw,
            .samples = local - at < leaf ? local - at : leaf,
            .h = data->h,
            .w = data->w,
            .c = data->c,
            .classes = data->classes,
            .images = f->images + at * data->h * data->w * data->c,
            .values = loader->values + at * data->classes,
            .spare = loader->spare + (size_t)omp_get_thread_num() * spare_numel(loader),
        };
        oct_mix(&loader->mixing, &one);
    }
}

oct_status oct_loader_fetch(oct_loader *loader, int64_t epoch, int64_t step_in_epoch,
                            const oct_leaves *leaves, float *images, oct_goals *goals)
{
    int64_t samples = oct_loader_samples(loader, step_in_epoch);
    int at = 0;
    OCT_CHECK(step_in_epoch >= 0 && step_in_epoch < oct_loader_steps(loader), OCT_DEFECT,
              "step %lld of an epoch of %lld steps", (long long)step_in_epoch,
              (long long)oct_loader_steps(loader));
    OCT_CHECK(leaves->samples == samples && leaves->leaf == loader->leaf, OCT_DEFECT,
              "leaves for %lld samples, %lld a leaf, where the step has %lld, %lld a leaf",
              (long long)leaves->samples, (long long)leaves->leaf, (long long)samples,
              (long long)loader->leaf);
    OCT_TRY(find_order(loader, epoch, epoch, &at));
    filling f = {.loader = loader, .order = loader->order[at], .images = images};
    f.at = (cursor){.training = true,
                    .epoch = epoch,
                    .batch = step_in_epoch,
                    .first = step_in_epoch * loader->batch + oct_leaves_first_sample(leaves),
                    .n = oct_leaves_local_samples(leaves)};
    OCT_TRY(fill_batch(&f, f.at.n, goals));
    mix_leaves(&f, leaves);
    return OCT_OK;
}

oct_status oct_loader_read(oct_loader *loader, int64_t first, int64_t n, float *images,
                           oct_goals *goals)
{
    filling f = {.loader = loader, .at = {.first = first}, .images = images};
    return fill_batch(&f, n, goals);
}
