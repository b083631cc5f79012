#include "io/batch/crop.h"

#include "core/base/rng.h"
#include "io/augment/augment.h"

#include <string.h>

oct_crop oct_crop_draw(const oct_draw *draw, int padding, bool flip)
{
    uint32_t words[4];
    const uint32_t offsets = 2 * (uint32_t)padding + 1;
    oct_philox(draw->seed, OCT_STREAM_AUGMENT, draw->index, 0, words);
    return (oct_crop){
        .down = (int64_t)oct_below(words[1], offsets) - padding,
        .right = (int64_t)oct_below(words[2], offsets) - padding,
        .flip = flip && oct_below(words[0], 2) == 1,
    };
}

/* The columns of a row that a crop finds in the image: [begin, end), of `w`. */
static int64_t begin_of(const oct_crop *crop)
{
    return crop->right < 0 ? -crop->right : 0;
}

static int64_t end_of(const oct_crop *crop, int64_t w)
{
    return crop->right > 0 ? w - crop->right : w;
}

/* Copies one row of the crop: columns that lie in the image are looked up, the others stay 0. */
static void copy_bytes(const oct_crop *crop, const oct_image *image, int64_t y,
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
static void copy_floats(const oct_crop *crop, const oct_image *image, int64_t y,
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

void oct_crop_image(const oct_crop *crop, const oct_image *image, const oct_normaliser *n,
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

void oct_crop_map(const oct_crop *crop, const oct_image *map, int32_t *out)
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
