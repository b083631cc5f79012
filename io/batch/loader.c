/* Batches are made here: the order of the samples that this rank owns, reading ahead, and what goes into a batch.
 *
 * Position p of an epoch draws from Philox(seed, AUGMENT, epoch * count + p). As the draw belongs to the position in
 * the global order, no rank needs to know what the others do.
 */
#include "io/batch/loader.h"

#include "core/base/mem.h"
#include "core/base/rng.h"
#include "io/augment/augment.h"

#include <omp.h>
#include <string.h>

enum { BYTE_VALUES = 256 };

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

/* Crops and normalises; pixels from outside of the image are 0. out: height x width x channels. look_up:
 * fill_look_up, for images of bytes. */
static void normalise_crop(const sample_crop *crop, const oct_image *image, const oct_normaliser *n,
                           const float *look_up, float *out)
{
    const int64_t w = image->w, channels = image->c, row = w * channels;
    const int64_t first = crop->right < 0 ? -crop->right : 0;
    const int64_t end = crop->right > 0 ? w - crop->right : w;
    const int64_t step = crop->flip ? -channels : channels; /* flipped rows are written backwards */
    const bool is_float = image->dtype == OCT_F32;
    const uint8_t *bytes = image->data;
    const float *floats = image->data;
    memset(out, 0, (size_t)(image->h * row) * sizeof(float));
    for (int64_t y = 0; y < image->h; y++) {
        const int64_t from_y = y + crop->down;
        if (from_y < 0 || from_y >= image->h) continue;
        int64_t to = y * row + (crop->flip ? w - 1 - first : first) * channels;
        int64_t from = from_y * row + (first + crop->right) * channels;
        const int64_t from_end = from + (end - first) * channels;
        for (; is_float && from < from_end; from += channels, to += step)
            for (int64_t c = 0; c < channels; c++)
                out[to + c] =
                    oct_normal_value(floats[from + c], 1.0f, n->mean[oct_normaliser_at(n, c)],
                                     1.0f / n->std[oct_normaliser_at(n, c)]);
        for (; !is_float && from < from_end; from += channels, to += step)
            for (int64_t c = 0; c < channels; c++)
                out[to + c] = look_up[oct_normaliser_at(n, c) * BYTE_VALUES + bytes[from + c]];
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
    OCT_FREE_ALL(&loader->scratch, &loader->spare, &loader->look_up, &loader->order[0],
                 &loader->order[1], &loader->labels, &loader->values);
    *loader = (oct_loader){0};
}

static bool is_mixing(const oct_loader *loader)
{
    return loader->mixing.mixup > 0 || loader->mixing.cutmix > 0;
}

/* The floats that a thread needs to mix: a sample and its values. */
static size_t spare_numel(const oct_loader *loader)
{
    const oct_dataset *data = loader->data;
    return (size_t)(data->h * data->w * data->c + data->classes);
}

/* Makes a scratch sample for each thread, with room for an image where its size is known, and room for mixing. */
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

static oct_reader_options reader_options(const oct_loader *loader)
{
    return (oct_reader_options){loader->data, &loader->augment, loader->damaged_mode,
                                loader->cache};
}

/* Starts the reader, or again with more room, where samples are to be read ahead and are decoded or transformed. */
static oct_status reserve_reader(oct_loader *loader, int64_t samples)
{
    const oct_reader_options options = reader_options(loader);
    const int64_t room = samples * (1 + loader->prefetch);
    if (loader->prefetch_threads == 0 || loader->prefetch == 0 || loader->reader_room >= room ||
        (!loader->data->format->reads_files && oct_augment_is_empty(&loader->augment)))
        return OCT_OK;
    oct_reader_destroy(&loader->reader);
    loader->reader_room = room;
    return oct_reader_create(&loader->reader, &options, loader->prefetch_threads, room);
}

/* Fills what every byte of u8 or s8 becomes, by the one formula: BYTE_VALUES for each value of the normaliser. */
static void fill_look_up(const oct_normaliser *n, oct_dtype dtype, float *look_up)
{
    const float unit = oct_normal_unit(dtype);
    for (int c = 0; c < n->count; c++) {
        const float inverse_std = 1.0f / n->std[c];
        for (int v = 0; v < BYTE_VALUES; v++)
            look_up[c * BYTE_VALUES + v] = oct_normal_value(
                dtype == OCT_S8 ? (float)(int8_t)v : (float)v, unit, n->mean[c], inverse_std);
    }
}

/* Takes the memory for fetches of `samples`: look-up table, scratch, cache, reader, and labels or values. */
static oct_status reserve_samples(oct_loader *loader, int64_t samples)
{
    const oct_dataset *data = loader->data;
    const size_t n =
        samples > 0 ? (size_t)samples : 1; /* goals are never NULL where there are some */
    if (data->dtype != OCT_F32) {
        OCT_TRY(oct_grow(&loader->look_up, &loader->look_up_capacity,
                         (size_t)loader->normaliser.count * BYTE_VALUES, sizeof *loader->look_up));
        fill_look_up(&loader->normaliser, data->dtype, loader->look_up);
    }
    OCT_TRY(reserve_scratch(loader));
    if (loader->cache_bytes > 0 && !loader->cache && data->format->reads_files)
        OCT_TRY(oct_cache_create(&loader->cache, data->count, loader->cache_bytes));
    OCT_TRY(reserve_reader(loader, (int64_t)n));
    if (data->goal == OCT_GOAL_VALUES || is_mixing(loader))
        return oct_grow(&loader->values, &loader->value_capacity,
                        n * (size_t)(data->rows * data->classes), sizeof *loader->values);
    if (data->goal == OCT_GOAL_NONE || (data->goal == OCT_GOAL_INPUT && !data->labels))
        return OCT_OK;
    return oct_grow(&loader->labels, &loader->label_capacity, n * (size_t)data->rows,
                    sizeof *loader->labels);
}

static oct_status reserve_order(oct_loader *loader, int slot)
{
    int64_t **order = &loader->order[slot];
    return *order ? OCT_OK : oct_alloc(order, (size_t)loader->data->count, sizeof **order);
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

/* Finds the order of an epoch. Two are kept; a new one replaces the one that is not of epoch `keep`. */
static oct_status find_order(oct_loader *loader, int64_t epoch, int64_t keep, int64_t **order)
{
    int slot = loader->order_epoch[0] == epoch ? 0 : 1;
    if (loader->order_epoch[slot] != epoch) {
        slot = loader->order_epoch[0] == keep;
        OCT_TRY(reserve_order(loader, slot));
        if (loader->shuffle)
            oct_permutation(loader->order[slot], loader->data->count, loader->seed,
                            (uint64_t)epoch);
        for (int64_t i = 0; !loader->shuffle && i < loader->data->count; i++)
            loader->order[slot][i] = i;
        loader->order_epoch[slot] = epoch;
    }
    *order = loader->order[slot];
    return OCT_OK;
}

typedef struct oct_loader_cursor cursor;

/* Samples that are read and put into a batch. */
typedef struct batch_job {
    oct_loader *loader;
    cursor start;   /* at the first of them */
    int64_t *order; /* of the epoch; NULL: that of the data set */
    float *images;
} batch_job;

/* Names the sample at a position of an epoch, or of the data set, and its random numbers. */
static oct_place place_at(const oct_loader *loader, const cursor *c, const int64_t *order,
                          int64_t position)
{
    const uint64_t before = c->training ? (uint64_t)c->epoch * (uint64_t)loader->data->count : 0;
    return (oct_place){c->training ? order[position] : position,
                       {loader->seed, before + (uint64_t)position}};
}

/* Puts zeros into the batch in place of sample i, which cannot be read. */
static void fill_zeros(const batch_job *job, int64_t i)
{
    oct_loader *loader = job->loader;
    const oct_dataset *data = loader->data;
    const int64_t numel = data->h * data->w * data->c;
    memset(job->images + i * numel, 0, (size_t)numel * sizeof *job->images);
    if (data->goal == OCT_GOAL_VALUES || is_mixing(loader))
        memset(loader->values + i * data->classes, 0,
               (size_t)data->classes * sizeof *loader->values);
    else if (data->goal != OCT_GOAL_INPUT && data->goal != OCT_GOAL_NONE)
        memset(loader->labels + i * data->rows, 0, (size_t)data->rows * sizeof *loader->labels);
}

/* Copies a sample of a program's own, with its goals, into the batch as its i-th. */
static void copy_sample(const batch_job *job, int64_t i)
{
    oct_loader *loader = job->loader;
    const oct_dataset *data = loader->data;
    const oct_example x = oct_dataset_inputs(data, job->images, job->start.n, i, 1);
    const int64_t sample = place_at(loader, &job->start, job->order, job->start.first + i).sample;
    const int64_t rows = data->rows, values = rows * data->classes;
    for (int k = 0; k < x.count; k++) {
        const int64_t numel = oct_shape_numel(&x.shape[k]);
        memcpy(job->images + (x.data[k] - job->images), data->array[k] + sample * numel,
               (size_t)numel * sizeof(float));
    }
    if (loader->labels && data->labels)
        memcpy(loader->labels + i * rows, data->labels + sample * rows,
               (size_t)rows * sizeof *loader->labels);
    if (loader->values && data->values)
        memcpy(loader->values + i * values, data->values + sample * values,
               (size_t)values * sizeof *loader->values);
}

/* Puts a sample and its goals into the batch, as its i-th. */
static void fill_sample(const batch_job *job, int64_t i, const oct_sample *s)
{
    oct_loader *loader = job->loader;
    const oct_dataset *data = loader->data;
    const int64_t classes = data->classes;
    const sample_crop crop = job->start.training
                                 ? draw_crop(&s->place.draw, loader->crop_padding, loader->flip)
                                 : (sample_crop){0};
    normalise_crop(&crop, &s->image, &loader->normaliser, loader->look_up,
                   job->images + i * oct_image_numel(&s->image));
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

/* What went wrong with samples of a fetch: the same whichever threads read them. */
typedef struct outcome {
    int64_t first_failed, last_damaged; /* indices; -1: none; damaged ones are replaced */
    int64_t num_damaged;
    oct_status code;
    char failed_text[OCT_READ_TEXT], damaged_text[OCT_READ_TEXT];
} outcome;

/* Goes on to the next sample of this rank: of the fetch, of the next batch, of the next epoch. */
static void advance_cursor(const oct_loader *loader, cursor *c)
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

/* Asks the reader for as many of the next samples as it has room for; the order of `epoch` is kept. */
static oct_status ask_ahead(oct_loader *loader, int64_t epoch)
{
    cursor *c = &loader->cursor;
    while (oct_reader_room(loader->reader) > 0) {
        int64_t *order = NULL;
        if (c->training)
            OCT_TRY(find_order(loader, c->epoch, epoch, &order));
        else if (c->first + c->i >= loader->read_end)
            return OCT_OK;
        const oct_place place = place_at(loader, c, order, c->first + c->i);
        oct_reader_ask(loader->reader, &place);
        advance_cursor(loader, c);
    }
    return OCT_OK;
}

/* Makes sure that the reader reads the n samples of the job first, dropping others that it was asked for. */
static oct_status expect_samples(const batch_job *job, int64_t n)
{
    oct_loader *loader = job->loader;
    for (int64_t i = 0; i < n; i++) {
        const oct_place place = place_at(loader, &job->start, job->order, job->start.first + i);
        if (!oct_reader_expect(loader->reader, i, &place)) break;
    }
    if (oct_reader_asked(loader->reader) == 0) loader->cursor = job->start;
    return ask_ahead(loader, job->start.epoch);
}

/* Reads the i-th sample of the job, or waits for it where it is read ahead, and puts it into the batch. */
static void read_and_fill(const batch_job *job, int64_t i, outcome *o)
{
    oct_loader *loader = job->loader;
    const oct_sample *s;
    if (loader->data->num_inputs > 0) {
        copy_sample(job, i);
        return;
    }
    if (loader->reader) {
        s = oct_reader_wait(loader->reader, i);
    } else {
        const oct_reader_options options = reader_options(loader);
        const oct_place place = place_at(loader, &job->start, job->order, job->start.first + i);
        oct_sample *sample = &loader->scratch[omp_get_thread_num()];
        oct_read_sample(&options, &place, sample);
        s = sample;
    }
    if (s->status == OCT_OK)
        fill_sample(job, i, s);
    else
        fill_zeros(job, i);
    if (s->status == OCT_OK && s->damaged == 0) return;
#pragma omp critical(oct_loader_outcome)
    {
        if (s->status != OCT_OK && (o->first_failed < 0 || i < o->first_failed)) {
            o->first_failed = i;
            o->code = s->status;
            memcpy(o->failed_text, s->text, sizeof o->failed_text);
        }
        if (s->damaged > 0 && i > o->last_damaged) {
            o->last_damaged = i;
            memcpy(o->damaged_text, s->text, sizeof o->damaged_text);
        }
        o->num_damaged += s->damaged;
    }
}

/* Reads the n samples of a job into the batch in parallel; fails as the first that cannot be read. */
static oct_status fill_batch(batch_job *job, int64_t n, oct_goals *goals)
{
    oct_loader *loader = job->loader;
    outcome o = {.first_failed = -1, .last_damaged = -1};
    OCT_TRY(reserve_samples(loader, n));
    if (loader->reader && n > 0) OCT_TRY(expect_samples(job, n));
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++)
        read_and_fill(job, i, &o);
    if (loader->reader && n > 0) {
        oct_reader_release(loader->reader, n);
        OCT_TRY(ask_ahead(loader, job->start.epoch));
    }
    *goals = (oct_goals){
        .labels = loader->label_capacity > 0 ? loader->labels : NULL,
        .values = loader->data->goal == OCT_GOAL_INPUT ? job->images : loader->values,
    };
    loader->damaged += o.num_damaged;
    if (o.last_damaged >= 0)
        memcpy(loader->damaged_text, o.damaged_text, sizeof loader->damaged_text);
    return o.first_failed < 0 ? OCT_OK : oct_fail(o.code, "%s", o.failed_text);
}

/* Mixes the samples of each leaf, where that is wanted. */
static void mix_leaves(const batch_job *job, const oct_leaves *leaves)
{
    const oct_loader *loader = job->loader;
    const oct_dataset *data = loader->data;
    const int64_t local = oct_leaves_local_samples(leaves), leaf = loader->leaf;
    if (!is_mixing(loader)) return;
#pragma omp parallel for schedule(static)
    for (int64_t at = 0; at < local; at += leaf) {
        const oct_mix_leaf mixed = {
            .first = place_at(loader, &job->start, job->order, job->start.first + at).draw,
            .samples = local - at < leaf ? local - at : leaf,
            .h = data->h,
            .w = data->w,
            .c = data->c,
            .classes = data->classes,
            .images = job->images + at * data->h * data->w * data->c,
            .values = loader->values + at * data->classes,
            .spare = loader->spare + (size_t)omp_get_thread_num() * spare_numel(loader),
        };
        oct_mix(&loader->mixing, &mixed);
    }
}

oct_status oct_loader_fetch(oct_loader *loader, int64_t epoch, int64_t step_in_epoch,
                            const oct_leaves *leaves, float *images, oct_goals *goals)
{
    const int64_t samples = oct_loader_samples(loader, step_in_epoch);
    batch_job job = {.loader = loader, .images = images};
    OCT_CHECK(step_in_epoch >= 0 && step_in_epoch < oct_loader_steps(loader), OCT_DEFECT,
              "step %lld of an epoch of %lld steps", (long long)step_in_epoch,
              (long long)oct_loader_steps(loader));
    OCT_CHECK(leaves->samples == samples && leaves->leaf == loader->leaf, OCT_DEFECT,
              "leaves for %lld samples, %lld a leaf, where the step has %lld, %lld a leaf",
              (long long)leaves->samples, (long long)leaves->leaf, (long long)samples,
              (long long)loader->leaf);
    OCT_TRY(find_order(loader, epoch, epoch, &job.order));
    job.start = (cursor){.training = true,
                         .epoch = epoch,
                         .batch = step_in_epoch,
                         .first = step_in_epoch * loader->batch + oct_leaves_first_sample(leaves),
                         .n = oct_leaves_local_samples(leaves)};
    OCT_TRY(fill_batch(&job, job.start.n, goals));
    mix_leaves(&job, leaves);
    return OCT_OK;
}

oct_status oct_loader_read(oct_loader *loader, int64_t first, int64_t n, float *images,
                           oct_goals *goals)
{
    batch_job job = {.loader = loader, .start = {.first = first, .n = n}, .images = images};
    return fill_batch(&job, n, goals);
}
