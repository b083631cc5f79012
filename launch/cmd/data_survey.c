/* Samples are read in blocks, by all threads, and counted in their order. Sums of integers are exact; those
 * of floats are merged sample by sample, so that they are the same on any number of threads. */
#include "launch/cmd/data.h"

#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "io/file/file.h"
#include "launch/base/meter.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

__extension__ typedef unsigned __int128 u128;

enum { BLOCK = 64 };

/* The values of one channel: of integers exact sums, of floats mean and sum of squared distances from it. */
typedef struct channel_sums {
    int64_t count, sum;
    u128 squares;
    double mean, squared_distance;
} channel_sums;

/* What a thread has found in a sample. */
typedef struct sample_figures {
    oct_status status;
    char *sentence;
    bool finite;
    channel_sums channel[OCT_SURVEY_CHANNELS];
} sample_figures;

/* The reading of a split. */
typedef struct split_pass {
    const oct_dataset *data;
    oct_survey_split *split;
    oct_image *image, *map; /* of each thread */
    sample_figures *block;
    channel_sums all[OCT_SURVEY_CHANNELS];
} split_pass;

/* Adds values and squares of an image to the sums of each channel; channels 1: all channels together. */
static void add_integers(const oct_image *image, int channels, channel_sums *channel)
{
    const int64_t numel = oct_image_numel(image), step = channels > 1 ? channels : 1;
    for (int64_t c = 0; c < step; c++) {
        uint64_t squares = 0;
        for (int64_t i = c; i < numel; i += step) {
            const int64_t value = image->dtype == OCT_U8 ? ((const uint8_t *)image->data)[i]
                                                         : ((const int8_t *)image->data)[i];
            channel[c].sum += value;
            squares += (uint64_t)(value * value);
        }
        channel[c].squares += squares;
        channel[c].count += numel / step;
    }
}

/* Sets count, mean and sum of squared distances from the mean of each channel (channels 1: of all together); false, with
 * nothing set: a value is not finite. */
static bool measure_floats(const oct_image *image, int channels, channel_sums *channel)
{
    const int64_t numel = oct_image_numel(image), step = channels > 1 ? channels : 1;
    const int64_t count = numel / step;
    const float *values = image->data;
    for (int64_t i = 0; i < numel; i++)
        if (!isfinite(values[i])) return false;
    for (int64_t c = 0; c < step; c++) {
        double sum = 0, squared_distance = 0;
        for (int64_t i = c; i < numel; i += step)
            sum += (double)values[i];
        const double mean = sum / (double)count;
        for (int64_t i = c; i < numel; i += step)
            squared_distance += ((double)values[i] - mean) * ((double)values[i] - mean);
        channel[c] =
            (channel_sums){.count = count, .mean = mean, .squared_distance = squared_distance};
    }
    return true;
}

/* Adds the sums of a sample to those of all; mean and squared distances as Chan, Golub and LeVeque merge them. */
static void merge_sums(channel_sums *all, const channel_sums *one)
{
    const double n = (double)all->count, m = (double)one->count, away = one->mean - all->mean;
    all->sum += one->sum;
    all->squares += one->squares;
    all->count += one->count;
    if (one->count == 0) return;
    all->mean += away * m / (n + m);
    all->squared_distance += one->squared_distance + away * away * n * m / (n + m);
}

static oct_status digest_image(const oct_image *image, uint8_t digest[32])
{
    const int64_t shape[4] = {image->dtype, image->h, image->w, image->c};
    oct_sha256_state *state = NULL;
    OCT_TRY(oct_sha256_begin(&state));
    oct_sha256_add(state, shape, sizeof shape);
    oct_sha256_add(state, image->data,
                   (size_t)oct_image_numel(image) * oct_dtype_bytes(image->dtype));
    oct_sha256_end(&state, digest);
    return OCT_OK;
}

/* Counts the pixels of each class of a map, a run of equal pixels at once; classes out of range count as ignored. */
static void count_map(split_pass *p, const oct_image *map)
{
    const int32_t *class = map->data;
    const int64_t pixels = oct_image_numel(map);
    for (int64_t i = 0, run; i < pixels; i += run) {
        for (run = 1; i + run < pixels && class[i + run] == class[i];)
            run++;
        int64_t *count = class[i] >= 0 && class[i] < p->data->classes
                             ? &p->split->of_class[class[i]]
                             : &p->split->ignored;
#pragma omp atomic
        *count += run;
    }
}

static oct_status survey_sample(split_pass *p, int64_t index, sample_figures *f)
{
    const oct_dataset *data = p->data;
    oct_image *image = &p->image[omp_get_thread_num()], *map = &p->map[omp_get_thread_num()];
    oct_surveyed *sample = &p->split->samples[index];
    OCT_TRY(data->format->read(data, index, image, data->goal == OCT_GOAL_MAP ? map : NULL));
    sample->h = (int32_t)image->h;
    sample->w = (int32_t)image->w;
    sample->warned = image->warned;
    f->finite = true;
    if (image->dtype == OCT_F32)
        f->finite = measure_floats(image, p->split->channels, f->channel);
    else
        add_integers(image, p->split->channels, f->channel);
    if (data->goal == OCT_GOAL_MAP) count_map(p, map);
    return digest_image(image, sample->digest);
}

/* Counts what was found in a sample; only damaged data is no reason to stop. */
static oct_status count_sample(split_pass *p, int64_t index, sample_figures *f)
{
    oct_survey_split *split = p->split;
    oct_surveyed *sample = &split->samples[index];
    sample->index = index;
    if (f->status == OCT_OK) {
        split->not_finite += !f->finite;
        if (sample->warned && split->warned++ == 0) split->first_warned = index;
        for (int c = 0; c < split->channels; c++)
            merge_sums(&p->all[c], &f->channel[c]);
        if (split->of_class && p->data->labels) split->of_class[p->data->labels[index]]++;
        return OCT_OK;
    }
    if (f->status != OCT_DATA) {
        const oct_status status =
            oct_fail(f->status, "%s", f->sentence ? f->sentence : "out of memory");
        oct_free(&f->sentence);
        return status;
    }
    sample->damaged = true;
    if (split->damaged < OCT_SURVEY_NAMED)
        split->sentence[split->damaged] = f->sentence;
    else
        oct_free(&f->sentence);
    split->damaged++;
    return OCT_OK;
}

static int by_size(const void *a, const void *b)
{
    const oct_survey_size *one = a, *other = b;
    if (one->h != other->h) return one->h < other->h ? -1 : 1;
    if (one->w != other->w) return one->w < other->w ? -1 : 1;
    return one->first < other->first ? -1 : 1;
}

static int by_count(const void *a, const void *b)
{
    const oct_survey_size *one = a, *other = b;
    if (one->count != other->count) return one->count > other->count ? -1 : 1;
    return by_size(a, b);
}

static oct_status count_sizes(oct_survey_split *split)
{
    const int64_t count = split->data->count;
    int64_t n = 0, kept = 0;
    OCT_TRY(oct_alloc(&split->sizes, (size_t)count, sizeof *split->sizes));
    oct_survey_size *sizes = split->sizes;
    for (int64_t i = 0; i < count; i++)
        if (!split->samples[i].damaged)
            sizes[n++] = (oct_survey_size){split->samples[i].h, split->samples[i].w, 1, i};
    qsort(sizes, (size_t)n, sizeof *sizes, by_size);
    for (int64_t i = 0; i < n; i++)
        if (kept > 0 && sizes[kept - 1].h == sizes[i].h && sizes[kept - 1].w == sizes[i].w)
            sizes[kept - 1].count++;
        else
            sizes[kept++] = sizes[i];
    qsort(sizes, (size_t)kept, sizeof *sizes, by_count);
    split->num_sizes = kept;
    return OCT_OK;
}

/* Finds mean and standard deviation of each channel in the unit of data.mean, as the normalisation has it. */
static void finish_channels(split_pass *p)
{
    const oct_dtype dtype = p->data->dtype;
    const double unit = dtype == OCT_U8 ? 255 : dtype == OCT_S8 ? 128 : 1;
    for (int c = 0; c < p->split->channels; c++) {
        const channel_sums *s = &p->all[c];
        if (s->count == 0) continue;
        const double n = (double)s->count;
        if (dtype == OCT_F32) {
            p->split->mean[c] = s->mean;
            p->split->std[c] = sqrt(s->squared_distance / n);
            continue;
        }
        /* n * squares - sum^2 is exact, and only then rounded */
        const uint64_t whole = (uint64_t)(s->sum < 0 ? -s->sum : s->sum);
        const u128 square = (u128)whole * whole;
        p->split->mean[c] = (double)s->sum / n / unit;
        p->split->std[c] =
            sqrt((double)(s->squares * (u128)(uint64_t)s->count - square)) / n / unit;
    }
}

/* Reads each block by all threads, then counts its samples in order. before: samples that are done already. */
static oct_status survey_samples(split_pass *p, int64_t before, oct_meter *meter)
{
    const int64_t count = p->data->count;
    for (int64_t first = 0; first < count; first += BLOCK) {
        const int64_t n = oct_min_i64(BLOCK, count - first);
        oct_status status = OCT_OK;
#pragma omp parallel for schedule(dynamic)
        for (int64_t i = 0; i < n; i++) {
            sample_figures *f = &p->block[i];
            *f = (sample_figures){.status = OCT_OK};
            f->status = survey_sample(p, first + i, f);
            if (f->status == OCT_OK) continue;
            /* The sentence is copied, because each thread has its own record of failures. */
            if (oct_strdup(&f->sentence, oct_error_message(0)) != OCT_OK) f->status = OCT_RESOURCE;
            oct_fail_clear();
        }
        for (int64_t i = 0; i < n; i++) {
            if (status == OCT_OK)
                status = count_sample(p, first + i, &p->block[i]);
            else
                oct_free(&p->block[i].sentence);
        }
        OCT_TRY(status);
        oct_meter_show(meter, before + first + n);
    }
    return OCT_OK;
}

static oct_status survey_split(oct_survey *survey, const oct_dataset data[2], int which,
                               oct_meter *meter)
{
    const int threads = omp_get_max_threads();
    oct_survey_split *split = &survey->split[which];
    split_pass p = {.data = &data[which], .split = split};
    oct_status status = OCT_OK;
    split->data = p.data;
    split->channels = p.data->c <= OCT_SURVEY_CHANNELS ? (int)p.data->c : 1;
    OCT_TRY(oct_alloc(&split->samples, (size_t)p.data->count, sizeof *split->samples));
    for (int64_t i = 0; i < p.data->count; i++)
        split->samples[i].split = (uint8_t)which;
    if (p.data->goal == OCT_GOAL_CLASS || p.data->goal == OCT_GOAL_MAP)
        OCT_TRY(oct_alloc(&split->of_class, (size_t)p.data->classes, sizeof *split->of_class));
    OCT_TRY_OUT(oct_alloc(&p.image, (size_t)threads, sizeof *p.image));
    OCT_TRY_OUT(oct_alloc(&p.map, (size_t)threads, sizeof *p.map));
    OCT_TRY_OUT(oct_alloc(&p.block, BLOCK, sizeof *p.block));
    OCT_TRY_OUT(survey_samples(&p, which == OCT_TEST ? data[OCT_TRAIN].count : 0, meter));
    finish_channels(&p);
    status = count_sizes(split);
out:
    for (int i = 0; i < threads; i++) {
        if (p.image) oct_image_free(&p.image[i]);
        if (p.map) oct_image_free(&p.map[i]);
    }
    OCT_FREE_ALL(&p.image, &p.map, &p.block);
    return status;
}

/* What follows finds equal samples. */

static int by_digest(const void *a, const void *b)
{
    const oct_surveyed *const *one = a, *const *other = b;
    const int order = memcmp((*one)->digest, (*other)->digest, sizeof(*one)->digest);
    if (order != 0) return order;
    if ((*one)->split != (*other)->split) return (*one)->split < (*other)->split ? -1 : 1;
    return (*one)->index < (*other)->index ? -1 : 1;
}

static bool labels_differ(const oct_survey *s, const oct_surveyed *a, const oct_surveyed *b)
{
    const int32_t *one = s->split[a->split].data->labels, *other = s->split[b->split].data->labels;
    return one && other && one[a->index] != other[b->index];
}

/* Counts a group of equal samples, sorted by split and index, as repeated, shared by both splits or contradictory. */
static void count_duplicates(oct_survey *s, oct_surveyed *const *group, int64_t n)
{
    const oct_surveyed *first = group[0];
    for (int64_t i = 1; i < n; i++) {
        const oct_surveyed *copy = group[i];
        s->contradictions += labels_differ(s, first, copy);
        s->repeated[copy->split] += copy->split == group[i - 1]->split;
        s->shared += copy->split != first->split;
        int same_kind = 0; /* some of each are named: in training, in test, across */
        for (int k = 0; k < s->num_pairs; k++)
            same_kind +=
                s->pair[k].one->split == first->split && s->pair[k].other->split == copy->split;
        if (same_kind < OCT_SURVEY_NAMED)
            s->pair[s->num_pairs++] = (oct_survey_pair){first, copy, labels_differ(s, first, copy)};
    }
}

static oct_status find_duplicates(oct_survey *s)
{
    OCT_OWNED(oct_free) oct_surveyed **order = NULL;
    int64_t n = 0;
    OCT_TRY(oct_alloc(&order, (size_t)(s->split[0].data->count + s->split[1].data->count),
                      sizeof(void *)));
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < s->split[k].data->count; i++)
            if (!s->split[k].samples[i].damaged) order[n++] = &s->split[k].samples[i];
    qsort(order, (size_t)n, sizeof(void *), by_digest);
    for (int64_t i = 0, run; i < n; i += run) {
        for (run = 1; i + run < n && memcmp(order[i]->digest, order[i + run]->digest, 32) == 0;)
            run++;
        if (run > 1) count_duplicates(s, order + i, run);
    }
    return OCT_OK;
}

oct_status oct_survey_make(oct_survey *survey, const oct_dataset data[2])
{
    oct_meter meter;
    *survey = (oct_survey){0};
    oct_meter_begin(&meter, "read", "samples", data[OCT_TRAIN].count + data[OCT_TEST].count);
    oct_status status = survey_split(survey, data, OCT_TRAIN, &meter);
    if (status == OCT_OK) status = survey_split(survey, data, OCT_TEST, &meter);
    oct_meter_end(&meter);
    if (status == OCT_OK) status = find_duplicates(survey);
    if (status != OCT_OK) oct_survey_free(survey);
    return status;
}

void oct_survey_free(oct_survey *survey)
{
    for (int k = 0; k < 2; k++) {
        oct_survey_split *split = &survey->split[k];
        OCT_FREE_ALL(&split->samples, &split->of_class, &split->sizes);
        for (int i = 0; i < OCT_SURVEY_NAMED; i++)
            oct_free(&split->sentence[i]);
    }
    *survey = (oct_survey){0};
}
