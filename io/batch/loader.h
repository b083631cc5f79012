/* Batches are a pure function of the step: order by (seed, epoch), augmentation by (seed, epoch,
 * global sample position). Nothing that a bit depends on is remembered between calls, so a resume needs
 * only the step. */
#pragma once

#include "core/base/leaves.h"
#include "core/metric/metric.h"
#include "io/augment/augment.h"
#include "io/batch/normalise.h"
#include "io/batch/reader.h"

typedef struct oct_loader {
    const oct_dataset *data; /* borrowed */
    uint64_t seed;
    int64_t batch, leaf;
    bool shuffle;
    bool drop_last; /* otherwise a short last batch */
    int crop_padding; /* pixels of zeros around the normalised sample, which a crop of its size is taken from */
    bool flip; /* left-right with probability 1/2 */
    oct_normaliser normaliser;
    oct_augment augment; /* of training, or of evaluation */
    oct_mixing mixing;   /* of training samples; their goals become values */
    oct_damaged_mode damaged_mode;
    /* How samples are read ahead; no bit depends on it. Data in memory that nothing transforms are not. */
    int prefetch_threads; /* 0: none */
    int64_t prefetch;     /* fetches ahead, at most */
    int64_t cache_bytes;  /* of decoded samples that are kept */
    int rank, ranks;      /* whose samples come in a fetch, for those ahead */
    int64_t read_end;     /* before which reads end */
    /* And these are the loader's own. */
    int64_t *order[2];      /* of the epoch at hand, and of the next */
    int64_t order_epoch[2]; /* -1: none */
    oct_sample *scratch;    /* of each thread */
    float *spare;           /* of each thread: a sample that is mixed, and its values */
    size_t spare_capacity;
    float *look_up; /* what every byte becomes, for each value of the normaliser */
    size_t look_up_capacity;
    int threads;
    oct_reader *reader;
    oct_cache *cache;
    int64_t reader_room;
    struct oct_loader_cursor {
        bool training;
        int64_t epoch, batch, first, n, i;
    } cursor;        /* what is asked for next */
    int32_t *labels; /* of the samples that were fetched last */
    float *values;
    size_t label_capacity, value_capacity;
    int64_t damaged;                  /* samples passed over so far */
    char damaged_text[OCT_READ_TEXT]; /* the last of them */
} oct_loader;

/* Makes a loader with plain defaults. */
oct_status oct_loader_init(oct_loader *loader, const oct_dataset *data);
void oct_loader_deinit(oct_loader *loader);
/* Takes the memory that fetches of at most `samples` need, so that they take no more. */
oct_status oct_loader_reserve(oct_loader *loader, int64_t samples);
int64_t oct_loader_steps(const oct_loader *loader); /* per epoch */
/* Returns how many samples that global batch has. */
int64_t oct_loader_samples(const oct_loader *loader, int64_t step_in_epoch);

/* Fills this rank's samples of the step: images (local, h, w, c) normalised floats. goals: what their
 * outputs should be, borrowed until the next fetch or read. When a sample cannot be read, the failure of
 * the first of them, with its name; images and goals hold zeros in its place. */
oct_status oct_loader_fetch(oct_loader *loader, int64_t epoch, int64_t step_in_epoch,
                            const oct_leaves *leaves, float *images, oct_goals *goals);
/* Fills samples [first, first + n) of the data set in its own order, without crop and flip. */
oct_status oct_loader_read(oct_loader *loader, int64_t first, int64_t n, float *images,
                           oct_goals *goals);
