/* Batches are made here: order, crop, flip and normalisation of the samples that this rank owns.
 *
 * Position p of an epoch draws from Philox(seed, AUGMENT, epoch * count + p): word 0 decides on the
 * flip, words 1 and 2 on the vertical and horizontal offset of the crop. A word means the same
 * whichever of them are on. As the draw belongs to the position in the global order, no rank needs
 * to know what the others do.
 *
 * A crop is taken from the image padded by zeros *after* normalisation, that is by the mean. (Padding
 * before normalisation, as by black, would give -mean/std there.) The flip comes after the crop.
 */
#include "io/loader.h"

#include "core/base/mem.h"
#include "core/base/rng.h"

#include <string.h>

enum { MAX_CHANNELS = OCT_COUNT(((oct_loader *)0)->mean), BYTE_VALUES = 256 };

static inline float normalised(uint8_t byte, float mean, float inverse_std)
{
    return ((float)byte * (1.0f / 255.0f) - mean) * inverse_std;
}

void oct_normalise(const uint8_t *bytes, int64_t pixels, int64_t channels, const float *mean,
                   const float *std, float *out)
{
    for (int64_t c = 0; c < channels; c++) {
        float inverse_std = 1.0f / std[c];
        for (int64_t i = 0; i < pixels; i++)
            out[i * channels + c] = normalised(bytes[i * channels + c], mean[c], inverse_std);
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
        .std = {1, 1, 1, 1},
        .order_epoch = -1,
    };
    OCT_CHECK(data->c >= 1 && data->c <= MAX_CHANNELS, OCT_DATA,
              "images of %lld channels; 1 to %d can be loaded", (long long)data->c, MAX_CHANNELS);
    return oct_alloc(&loader->order, (size_t)data->count, sizeof(*loader->order));
}

void oct_loader_deinit(oct_loader *loader)
{
    oct_free(&loader->order);
    *loader = (oct_loader){0};
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

static void find_order(oct_loader *loader, int64_t epoch)
{
    if (loader->order_epoch == epoch) return;
    if (loader->shuffle) {
        oct_permutation(loader->order, loader->data->count, loader->seed, (uint64_t)epoch);
    } else {
        for (int64_t i = 0; i < loader->data->count; i++)
            loader->order[i] = i;
    }
    loader->order_epoch = epoch;
}

/* A table of what every byte becomes, by the one formula, so that the bits are those of oct_normalise. */
typedef struct look_up {
    float value[MAX_CHANNELS][BYTE_VALUES];
} look_up;

static void fill_look_up(const oct_loader *loader, look_up *table)
{
    for (int64_t c = 0; c < loader->data->c; c++) {
        float inverse_std = 1.0f / loader->std[c];
        for (int v = 0; v < BYTE_VALUES; v++)
            table->value[c][v] = normalised((uint8_t)v, loader->mean[c], inverse_std);
    }
}

typedef struct augment {
    int64_t down, right; /* of the crop against the image, -crop_padding to crop_padding */
    bool flip;
} augment;

static augment draw(const oct_loader *loader, int64_t epoch, int64_t position)
{
    uint32_t words[4];
    uint64_t index = (uint64_t)epoch * (uint64_t)loader->data->count + (uint64_t)position;
    uint32_t offsets = 2 * (uint32_t)loader->crop_padding + 1;
    oct_philox(loader->seed, OCT_STREAM_AUGMENT, index, 0, words);
    return (augment){
        .down = (int64_t)oct_below(words[1], offsets) - loader->crop_padding,
        .right = (int64_t)oct_below(words[2], offsets) - loader->crop_padding,
        .flip = loader->flip && oct_below(words[0], 2) == 1,
    };
}

/* Copies one row of the crop: columns that lie in the image are looked up, the others stay 0. */
static void copy_row(const look_up *table, const uint8_t *row, int64_t w, int64_t channels,
                     const augment *a, float *out)
{
    int64_t begin = a->right < 0 ? -a->right : 0;
    int64_t end = a->right > 0 ? w - a->right : w;
    for (int64_t x = begin; x < end; x++) {
        const uint8_t *from = row + (x + a->right) * channels;
        float *to = out + (a->flip ? w - 1 - x : x) * channels;
        for (int64_t c = 0; c < channels; c++)
            to[c] = table->value[c][from[c]];
    }
}

static void copy_image(const oct_dataset *data, const look_up *table, int64_t sample,
                       const augment *a, float *out)
{
    int64_t row = data->w * data->c;
    const uint8_t *image = data->images + sample * data->h * row;
    memset(out, 0, (size_t)(data->h * row) * sizeof(float));
    for (int64_t y = 0; y < data->h; y++) {
        int64_t from = y + a->down;
        if (from >= 0 && from < data->h)
            copy_row(table, image + from * row, data->w, data->c, a, out + y * row);
    }
}

oct_status oct_loader_fetch(oct_loader *loader, int64_t epoch, int64_t step_in_epoch,
                            const oct_leaves *leaves, float *images, int32_t *labels)
{
    const oct_dataset *data = loader->data;
    int64_t samples = oct_loader_samples(loader, step_in_epoch);
    OCT_CHECK(step_in_epoch >= 0 && step_in_epoch < oct_loader_steps(loader), OCT_DEFECT,
              "step %lld of an epoch of %lld steps", (long long)step_in_epoch,
              (long long)oct_loader_steps(loader));
    OCT_CHECK(leaves->samples == samples && leaves->leaf == loader->leaf, OCT_DEFECT,
              "leaves for %lld samples, %lld a leaf, where the step has %lld, %lld a leaf",
              (long long)leaves->samples, (long long)leaves->leaf, (long long)samples,
              (long long)loader->leaf);
    look_up table;
    fill_look_up(loader, &table);
    find_order(loader, epoch);
    int64_t first = step_in_epoch * loader->batch + oct_leaves_first_sample(leaves);
    int64_t local = oct_leaves_local_samples(leaves);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < local; i++) {
        int64_t sample = loader->order[first + i];
        augment a = draw(loader, epoch, first + i);
        copy_image(data, &table, sample, &a, images + i * data->h * data->w * data->c);
        labels[i] = data->labels[sample];
    }
    return OCT_OK;
}
