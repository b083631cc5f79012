#include "io/augment/geometry.h"

#include "core/base/int_math.h"
#include "core/base/mem.h"

#include <math.h>
#include <string.h>

static void swap_images(oct_image *a, oct_image *b)
{
    const oct_image kept = *a;
    *a = *b;
    *b = kept;
}

static size_t pixel_bytes(const oct_image *image)
{
    return (size_t)image->c * oct_dtype_bytes(image->dtype);
}

static void *pixel_at(const oct_image *image, int64_t y, int64_t x)
{
    return (char *)image->data + (size_t)(y * image->w + x) * pixel_bytes(image);
}

double oct_image_unit(oct_dtype dtype)
{
    return dtype == OCT_U8 ? 255 : dtype == OCT_S8 ? 128 : 1;
}

/* Rounds to the nearest code, halves up, within [least, most]. */
static double round_to_code(double value, double least, double most)
{
    const double code = floor(value + 0.5);
    return code < least ? least : code > most ? most : code;
}

void oct_image_set(oct_image *image, int64_t index, double value)
{
    if (image->dtype == OCT_U8)
        ((uint8_t *)image->data)[index] = (uint8_t)round_to_code(value, 0, UINT8_MAX);
    else if (image->dtype == OCT_S8)
        ((int8_t *)image->data)[index] = (int8_t)round_to_code(value, INT8_MIN, INT8_MAX);
    else
        ((float *)image->data)[index] = (float)value;
}

void oct_geometry_paint(oct_image *image, const oct_box *box, const oct_reals *mean)
{
    if (box->h == 0 || box->w == 0) return;
    const size_t pixel = pixel_bytes(image), row = (size_t)box->w * pixel;
    char *first = pixel_at(image, box->top, box->left);
    /* The first pixel is the value that the model will see as 0; of a map, the class that is ignored. */
    const int64_t index = (box->top * image->w + box->left) * image->c;
    for (int64_t c = 0; c < image->c; c++) {
        const int64_t at = oct_min_i64(c, oct_max_i64(mean->count - 1, 0));
        if (image->dtype == OCT_S32)
            ((int32_t *)image->data)[index + c] = OCT_MAP_OUTSIDE;
        else
            oct_image_set(image, index + c, mean->value[at] * oct_image_unit(image->dtype));
    }
    for (size_t filled = pixel; filled < row; filled += pixel)
        memcpy(first + filled, first, pixel);
    for (int64_t y = 1; y < box->h; y++)
        memcpy(pixel_at(image, box->top + y, box->left), first, row);
}

/* Copies the part of the box that the image has; the rest is painted with data.mean. */
static oct_status crop_image(oct_image *image, oct_image *spare, const oct_box *box,
                             const oct_reals *mean)
{
    const int64_t top = oct_max_i64(box->top, 0), left = oct_max_i64(box->left, 0);
    const int64_t bottom = oct_min_i64(box->top + box->h, image->h);
    const int64_t right = oct_min_i64(box->left + box->w, image->w);
    const bool whole = bottom - top == box->h && right - left == box->w;
    OCT_TRY(oct_image_resize(spare, image->dtype, box->h, box->w, image->c));
    if (!whole) oct_geometry_paint(spare, &(oct_box){0, 0, box->h, box->w}, mean);
    for (int64_t y = top; y < bottom && left < right; y++)
        memcpy(pixel_at(spare, y - box->top, left - box->left), pixel_at(image, y, left),
               (size_t)(right - left) * pixel_bytes(image));
    swap_images(image, spare);
    return OCT_OK;
}

oct_status oct_geometry_crop(oct_image *image, oct_image *map, oct_image *spare, const oct_box *box,
                             const oct_reals *mean)
{
    if (map) OCT_TRY(crop_image(map, spare, box, mean));
    return crop_image(image, spare, box, mean);
}

static void swap_pixels(char *a, char *b, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        const char kept = a[i];
        a[i] = b[i];
        b[i] = kept;
    }
}

static void flip_image(oct_image *image, bool upside_down)
{
    const size_t pixel = pixel_bytes(image);
    for (int64_t y = 0; upside_down && y < image->h / 2; y++)
        swap_pixels(pixel_at(image, y, 0), pixel_at(image, image->h - 1 - y, 0),
                    (size_t)image->w * pixel);
    for (int64_t y = 0; !upside_down && y < image->h; y++)
        for (int64_t x = 0; x < image->w / 2; x++)
            swap_pixels(pixel_at(image, y, x), pixel_at(image, y, image->w - 1 - x), pixel);
}

void oct_geometry_flip(oct_image *image, oct_image *map, bool down)
{
    flip_image(image, down);
    if (map) flip_image(map, down);
}

bool oct_box_draw(oct_dice *dice, const oct_image *image, const oct_param_value *scale,
                  const oct_param_value *ratio, oct_box *box)
{
    enum { TRIES = 10 };
    const double area = (double)image->h * (double)image->w;
    const double low = oct_real_log(ratio->from), high = oct_real_log(ratio->to);
    for (int i = 0; i < TRIES; i++) {
        const double share = oct_dice_real(dice, scale->from, scale->to) * area;
        const double shape = oct_real_exp(oct_dice_real(dice, low, high));
        const int64_t h = (int64_t)floor(sqrt(share / shape) + 0.5);
        const int64_t w = (int64_t)floor(sqrt(share * shape) + 0.5);
        if (h < 1 || w < 1 || h > image->h || w > image->w) continue;
        *box = (oct_box){.h = h, .w = w};
        box->top = oct_dice_below(dice, image->h - h + 1);
        box->left = oct_dice_below(dice, image->w - w + 1);
        return true;
    }
    return false;
}

void oct_size_of(const oct_param_value *value, int64_t *h, int64_t *w)
{
    *h = (int64_t)value->from;
    *w = value->to > 0 ? (int64_t)value->to : *h;
}

void oct_fit_size(const oct_param_value *value, oct_image *shape, char flaw[OCT_AUGMENT_FLAW])
{
    (void)flaw;
    oct_size_of(&value[0], &shape->h, &shape->w);
}

/* An affine map goes from each pixel of the result to where it comes from. */

oct_affine oct_affine_rotate(const oct_image *image, double degrees)
{
    double sine, cosine;
    const double x = (double)image->w / 2, y = (double)image->h / 2;
    oct_real_sin_cos(degrees * (3.141592653589793 / 180), &sine, &cosine);
    return (oct_affine){
        {cosine, -sine, x - cosine * x + sine * y, sine, cosine, y - sine * x - cosine * y}};
}

/* The four pixels around a place and the place between them. */
typedef struct corners {
    const void *pixel[4]; /* upper left, upper right, lower left, lower right */
    double right, down;   /* 0 to 1 */
} corners;

static inline double read_value(oct_dtype dtype, const void *pixel, int64_t c)
{
    if (dtype == OCT_U8) return ((const uint8_t *)pixel)[c];
    if (dtype == OCT_S8) return ((const int8_t *)pixel)[c];
    return (double)((const float *)pixel)[c];
}

/* Writes the bilinear mean of the four pixels around a place, channel by channel; codes are rounded. */
static void interpolate(const corners *k, oct_dtype dtype, int64_t channels, void *to)
{
    for (int64_t c = 0; c < channels; c++) {
        double v[4];
        for (int i = 0; i < 4; i++)
            v[i] = read_value(dtype, k->pixel[i], c);
        const double upper = v[0] + (v[1] - v[0]) * k->right,
                     lower = v[2] + (v[3] - v[2]) * k->right;
        const double value = upper + (lower - upper) * k->down;
        if (dtype == OCT_F32)
            ((float *)to)[c] = (float)value;
        else if (dtype == OCT_U8)
            ((uint8_t *)to)[c] = (uint8_t)(value + 0.5);
        else
            ((int8_t *)to)[c] = (int8_t)floor(value + 0.5);
    }
}

/* Each pixel shows the place that `from` maps its centre to: of maps the nearest pixel, of images a mean of four. */
static oct_status apply_affine(oct_image *image, oct_image *spare, const oct_affine *from,
                               const oct_reals *mean)
{
    const double *m = from->m;
    OCT_TRY(oct_image_resize(spare, image->dtype, image->h, image->w, image->c));
    oct_geometry_paint(spare, &(oct_box){0, 0, image->h, image->w}, mean);
    for (int64_t y = 0; y < image->h; y++)
        for (int64_t x = 0; x < image->w; x++) {
            const double right = (double)x + 0.5, down = (double)y + 0.5;
            const double u = m[0] * right + m[1] * down + m[2];
            const double v = m[3] * right + m[4] * down + m[5];
            if (!(u >= 0 && u < (double)image->w && v >= 0 && v < (double)image->h)) continue;
            void *to = pixel_at(spare, y, x);
            if (image->dtype == OCT_S32) {
                memcpy(to, pixel_at(image, (int64_t)v, (int64_t)u), pixel_bytes(image));
                continue;
            }
            const double left = floor(u - 0.5), top = floor(v - 0.5);
            const int64_t x0 = oct_max_i64((int64_t)left, 0);
            const int64_t x1 = oct_min_i64((int64_t)left + 1, image->w - 1);
            const int64_t y0 = oct_max_i64((int64_t)top, 0);
            const int64_t y1 = oct_min_i64((int64_t)top + 1, image->h - 1);
            const corners k = {{pixel_at(image, y0, x0), pixel_at(image, y0, x1),
                                pixel_at(image, y1, x0), pixel_at(image, y1, x1)},
                               u - 0.5 - left,
                               v - 0.5 - top};
            interpolate(&k, image->dtype, image->c, to);
        }
    swap_images(image, spare);
    return OCT_OK;
}

oct_status oct_geometry_affine(oct_image *image, oct_image *map, oct_image *spare,
                               const oct_affine *from, const oct_reals *mean)
{
    if (map) OCT_TRY(apply_affine(map, spare, from, mean));
    return apply_affine(image, spare, from, mean);
}

/* Resizing resamples along one axis at a time, the width first, as PIL's Resample.c does. */

/* OCT_S8 with its sign bit changed is OCT_U8 with an offset, which interpolation keeps. */
static void flip_sign_bits(oct_image *image)
{
    uint8_t *bytes = image->data;
    for (int64_t i = 0; i < oct_image_numel(image); i++)
        bytes[i] ^= 0x80;
}

enum { WEIGHT_BITS = 22 }; /* with bytes of 8 bits and two more for the sum, 32 bits are enough */

/* For each pixel of the result, the pixels along the axis that it is the weighted sum of. */
typedef struct taps {
    int64_t stride;                        /* weights of result i begin at i * stride */
    int32_t *first, *count, *fixed_weight; /* the latter in 2^-WEIGHT_BITS */
    double *weight;
} taps;

static void free_taps(taps *t)
{
    OCT_FREE_ALL(&t->first, &t->count, &t->fixed_weight, &t->weight);
}

/* Makes the taps that resample a side of `from` pixels to `to` by the triangle filter, which is as wide as a result pixel
 * where that is the larger one (antialiasing). The caller frees t, also after a failure. */
static oct_status make_taps(taps *t, int64_t from, int64_t to)
{
    const double scale = (double)from / (double)to, radius = scale < 1 ? 1 : scale;
    *t = (taps){.stride = (int64_t)ceil(radius) * 2 + 1};
    OCT_TRY(oct_alloc(&t->first, (size_t)to, sizeof *t->first));
    OCT_TRY(oct_alloc(&t->count, (size_t)to, sizeof *t->count));
    OCT_TRY(oct_alloc(&t->fixed_weight, (size_t)(to * t->stride), sizeof *t->fixed_weight));
    OCT_TRY(oct_alloc(&t->weight, (size_t)(to * t->stride), sizeof *t->weight));
    for (int64_t i = 0; i < to; i++) {
        const double centre = ((double)i + 0.5) * scale;
        const int64_t begin = oct_max_i64((int64_t)(centre - radius + 0.5), 0);
        const int64_t end = oct_min_i64((int64_t)(centre + radius + 0.5), from);
        double *weight = t->weight + i * t->stride, sum = 0;
        for (int64_t x = begin; x < end; x++) {
            const double distance = fabs(((double)x - centre + 0.5) * (1 / radius));
            weight[x - begin] = distance < 1 ? 1 - distance : 0;
            sum += weight[x - begin];
        }
        t->first[i] = (int32_t)begin;
        t->count[i] = (int32_t)(end - begin);
        for (int64_t x = 0; x < end - begin; x++) {
            weight[x] /= sum;
            t->fixed_weight[i * t->stride + x] = (int32_t)(weight[x] * (1 << WEIGHT_BITS) + 0.5);
        }
    }
    return OCT_OK;
}

/* Drops the fraction of a fixed-point sum that began with a half. */
static inline uint8_t round_sum(int32_t sum)
{
    const int32_t value = sum >> WEIGHT_BITS;
    return value < 0 ? 0 : value > 255 ? 255 : (uint8_t)value;
}

/* Resamples a row to w pixels, each a weighted sum in fixed point; sums begin at one half, so the shift rounds. */
static inline void resample_row_bytes(const taps *t, const uint8_t *from, int64_t w,
                                      int64_t channels, uint8_t *to)
{
    for (int64_t x = 0; x < w; x++) {
        const int32_t *weight = t->fixed_weight + x * t->stride;
        const uint8_t *pixel = from + t->first[x] * channels;
        for (int64_t c = 0; c < channels; c++) {
            int32_t sum = 1 << (WEIGHT_BITS - 1);
            for (int32_t k = 0; k < t->count[x]; k++)
                sum += pixel[k * channels + c] * weight[k];
            to[x * channels + c] = round_sum(sum);
        }
    }
}

static void resample_row_floats(const taps *t, const float *from, int64_t w, int64_t channels,
                                float *to)
{
    for (int64_t x = 0; x < w; x++) {
        const double *weight = t->weight + x * t->stride;
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
    OCT_OWNED(free_taps) taps t = {0};
    OCT_TRY(oct_image_resize(spare, image->dtype, image->h, w, channels));
    OCT_TRY(make_taps(&t, image->w, w));
    for (int64_t y = 0; y < image->h; y++) {
        void *to = pixel_at(spare, y, 0);
        const void *from = pixel_at(image, y, 0);
        if (image->dtype == OCT_F32)
            resample_row_floats(&t, from, w, channels, to);
        else if (channels == 3) /* a constant, for which the compiler unrolls */
            resample_row_bytes(&t, from, w, 3, to);
        else if (channels == 1)
            resample_row_bytes(&t, from, w, 1, to);
        else
            resample_row_bytes(&t, from, w, channels, to);
    }
    swap_images(image, spare);
    return OCT_OK;
}

/* Makes row i of an image of another height: the weighted sum of rows of `row` bytes; sums: room for a row. */
static void sum_byte_rows(const taps *t, int64_t i, const uint8_t *from, int64_t row, int32_t *sums,
                          uint8_t *to)
{
    for (int64_t x = 0; x < row; x++)
        sums[x] = 1 << (WEIGHT_BITS - 1);
    for (int32_t k = 0; k < t->count[i]; k++) {
        const int32_t weight = t->fixed_weight[i * t->stride + k];
        const uint8_t *pixels = from + (t->first[i] + k) * row;
        for (int64_t x = 0; x < row; x++)
            sums[x] += pixels[x] * weight;
    }
    for (int64_t x = 0; x < row; x++)
        to[x] = round_sum(sums[x]);
}

static void sum_float_rows(const taps *t, int64_t i, const float *from, int64_t row, double *sums,
                           float *to)
{
    memset(sums, 0, (size_t)row * sizeof *sums);
    for (int32_t k = 0; k < t->count[i]; k++) {
        const double weight = t->weight[i * t->stride + k];
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
    OCT_OWNED(oct_free) double *sums = NULL;
    OCT_OWNED(free_taps) taps t = {0};
    OCT_TRY(oct_image_resize(spare, image->dtype, h, image->w, image->c));
    OCT_TRY(oct_alloc(&sums, (size_t)row, sizeof *sums));
    OCT_TRY(make_taps(&t, image->h, h));
    for (int64_t y = 0; y < h; y++) {
        void *to = pixel_at(spare, y, 0);
        if (image->dtype == OCT_F32)
            sum_float_rows(&t, y, image->data, row, sums, to);
        else
            sum_byte_rows(&t, y, image->data, row, (int32_t *)sums, to);
    }
    swap_images(image, spare);
    return OCT_OK;
}

oct_status oct_geometry_resize(oct_image *image, oct_image *map, oct_image *spare, int64_t h,
                               int64_t w)
{
    oct_status status = OCT_OK;
    if (map && (map->h != h || map->w != w)) {
        OCT_TRY(oct_image_resize(spare, map->dtype, h, w, map->c));
        for (int64_t y = 0; y < h; y++)
            for (int64_t x = 0; x < w; x++)
                memcpy(
                    pixel_at(spare, y, x),
                    pixel_at(map, (2 * y + 1) * map->h / (2 * h), (2 * x + 1) * map->w / (2 * w)),
                    pixel_bytes(map));
        swap_images(map, spare);
    }
    if (image->dtype == OCT_S8) flip_sign_bits(image); /* resized as 0 to 255 */
    if (image->w != w) status = change_width(image, spare, w);
    if (status == OCT_OK && image->h != h) status = change_height(image, spare, h);
    if (status == OCT_OK && image->dtype == OCT_S8) flip_sign_bits(image);
    return status;
}
