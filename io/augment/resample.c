/* Resizing resamples along one axis at a time, the width first, as PIL's Resample.c does. */
#include "io/augment/geometry_impl.h"

#include "core/base/int_math.h"
#include "core/base/mem.h"

#include <math.h>
#include <string.h>

/* OCT_S8 with its sign bit changed is OCT_U8 with an offset, which interpolation keeps. */
static void change_sign_bits(oct_image *image)
{
    uint8_t *bytes = image->data;
    for (int64_t i = 0; i < oct_image_numel(image); i++)
        bytes[i] ^= 0x80;
}

enum { WEIGHT_BITS = 22 }; /* with bytes of 8 bits and two more for the sum, 32 bits are enough */

/* The pixels along an axis that a result is made of, and their weights. */
typedef struct taps {
    int64_t most; /* of a result; weights of result i begin at i * most */
    int32_t *first, *count, *fixed;
    double *weight;
} taps;

static void taps_free(taps *t)
{
    oct_free(&t->first);
    oct_free(&t->count);
    oct_free(&t->fixed);
    oct_free(&t->weight);
}

static oct_status taps_make(taps *t, int64_t from, int64_t to)
{
    const double scale = (double)from / (double)to, wide = scale < 1 ? 1 : scale;
    *t = (taps){.most = (int64_t)ceil(wide) * 2 + 1};
    oct_status status = oct_alloc(&t->first, (size_t)to, sizeof *t->first);
    if (status == OCT_OK) status = oct_alloc(&t->count, (size_t)to, sizeof *t->count);
    if (status == OCT_OK) status = oct_alloc(&t->fixed, (size_t)(to * t->most), sizeof *t->fixed);
    if (status == OCT_OK) status = oct_alloc(&t->weight, (size_t)(to * t->most), sizeof(double));
    if (status != OCT_OK) {
        taps_free(t);
        return status;
    }
    for (int64_t i = 0; i < to; i++) {
        const double centre = ((double)i + 0.5) * scale;
        const int64_t begin = oct_max_i64((int64_t)(centre - wide + 0.5), 0);
        const int64_t end = oct_min_i64((int64_t)(centre + wide + 0.5), from);
        double *weight = t->weight + i * t->most, sum = 0;
        for (int64_t x = begin; x < end; x++) {
            const double away = fabs(((double)x - centre + 0.5) * (1 / wide));
            weight[x - begin] = away < 1 ? 1 - away : 0;
            sum += weight[x - begin];
        }
        t->first[i] = (int32_t)begin;
        t->count[i] = (int32_t)(end - begin);
        for (int64_t x = 0; x < end - begin; x++) {
            weight[x] /= sum;
            t->fixed[i * t->most + x] = (int32_t)(weight[x] * (1 << WEIGHT_BITS) + 0.5);
        }
    }
    return OCT_OK;
}

static inline uint8_t to_byte(int32_t sum)
{
    const int32_t value = sum >> WEIGHT_BITS;
    return value < 0 ? 0 : value > 255 ? 255 : (uint8_t)value;
}

/* One row of bytes, along the width. */
static inline void widen_bytes(const taps *t, const uint8_t *from, int64_t w, int64_t channels,
                               uint8_t *to)
{
    for (int64_t x = 0; x < w; x++) {
        const int32_t *weight = t->fixed + x * t->most;
        const uint8_t *pixel = from + t->first[x] * channels;
        for (int64_t c = 0; c < channels; c++) {
            int32_t sum = 1 << (WEIGHT_BITS - 1);
            for (int32_t k = 0; k < t->count[x]; k++)
                sum += pixel[k * channels + c] * weight[k];
            to[x * channels + c] = to_byte(sum);
        }
    }
}

static void widen_floats(const taps *t, const float *from, int64_t w, int64_t channels, float *to)
{
    for (int64_t x = 0; x < w; x++) {
        const double *weight = t->weight + x * t->most;
        const float *pixel = from + t->first[x] * channels;
        for (int64_t c = 0; c < channels; c++) {
            double sum = 0;
            for (int32_t k = 0; k < t->count[x]; k++)
                sum += (double)pixel[k * channels + c] * weight[k];
            to[x * channels + c] = (float)sum;
        }
    }
}

static oct_status change_width(oct_image *image, oct_image *spare, int64_t w)
{
    const int64_t channels = image->c;
    taps t;
    OCT_TRY(oct_image_resize(spare, image->dtype, image->h, w, channels));
    OCT_TRY(taps_make(&t, image->w, w));
    for (int64_t y = 0; y < image->h; y++) {
        void *to = oct_pixel_at(spare, y, 0);
        const void *from = oct_pixel_at(image, y, 0);
        if (image->dtype == OCT_F32)
            widen_floats(&t, from, w, channels, to);
        else if (channels == 3)
            widen_bytes(&t, from, w, 3, to);
        else if (channels == 1)
            widen_bytes(&t, from, w, 1, to);
        else
            widen_bytes(&t, from, w, channels, to);
    }
    taps_free(&t);
    oct_image_swap(image, spare);
    return OCT_OK;
}

/* Row i of the result, along the height; `sums` is a row of 32-bit integers. */
static void mix_byte_rows(const taps *t, int64_t i, const uint8_t *from, int64_t row, int32_t *sums,
                          uint8_t *to)
{
    for (int64_t x = 0; x < row; x++)
        sums[x] = 1 << (WEIGHT_BITS - 1);
    for (int32_t k = 0; k < t->count[i]; k++) {
        const int32_t weight = t->fixed[i * t->most + k];
        const uint8_t *pixels = from + (t->first[i] + k) * row;
        for (int64_t x = 0; x < row; x++)
            sums[x] += pixels[x] * weight;
    }
    for (int64_t x = 0; x < row; x++)
        to[x] = to_byte(sums[x]);
}

static void mix_float_rows(const taps *t, int64_t i, const float *from, int64_t row, double *sums,
                           float *to)
{
    memset(sums, 0, (size_t)row * sizeof *sums);
    for (int32_t k = 0; k < t->count[i]; k++) {
        const double weight = t->weight[i * t->most + k];
        const float *pixels = from + (t->first[i] + k) * row;
        for (int64_t x = 0; x < row; x++)
            sums[x] += (double)pixels[x] * weight;
    }
    for (int64_t x = 0; x < row; x++)
        to[x] = (float)sums[x];
}

static oct_status change_height(oct_image *image, oct_image *spare, int64_t h)
{
    const int64_t row = image->w * image->c;
    double *sums = NULL;
    taps t;
    OCT_TRY(oct_image_resize(spare, image->dtype, h, image->w, image->c));
    OCT_TRY(oct_alloc(&sums, (size_t)row, sizeof *sums));
    const oct_status status = taps_make(&t, image->h, h);
    for (int64_t y = 0; status == OCT_OK && y < h; y++) {
        void *to = oct_pixel_at(spare, y, 0);
        if (image->dtype == OCT_F32)
            mix_float_rows(&t, y, image->data, row, sums, to);
        else
            mix_byte_rows(&t, y, image->data, row, (int32_t *)sums, to);
    }
    oct_free(&sums);
    if (status != OCT_OK) return status;
    taps_free(&t);
    oct_image_swap(image, spare);
    return OCT_OK;
}

static oct_status resize_nearest(oct_image *map, oct_image *spare, int64_t h, int64_t w)
{
    OCT_TRY(oct_image_resize(spare, map->dtype, h, w, map->c));
    for (int64_t y = 0; y < h; y++)
        for (int64_t x = 0; x < w; x++)
            memcpy(
                oct_pixel_at(spare, y, x),
                oct_pixel_at(map, (2 * y + 1) * map->h / (2 * h), (2 * x + 1) * map->w / (2 * w)),
                oct_pixel_bytes(map));
    oct_image_swap(map, spare);
    return OCT_OK;
}

oct_status oct_geometry_resize(oct_image *image, oct_image *map, oct_image *spare, int64_t h,
                               int64_t w)
{
    oct_status status = OCT_OK;
    if (map && (map->h != h || map->w != w)) OCT_TRY(resize_nearest(map, spare, h, w));
    if (image->dtype == OCT_S8) change_sign_bits(image);
    if (image->w != w) status = change_width(image, spare, w);
    if (status == OCT_OK && image->h != h) status = change_height(image, spare, h);
    if (status == OCT_OK && image->dtype == OCT_S8) change_sign_bits(image);
    return status;
}
