/* Pixels are cut out, mirrored and painted whole, whatever they hold. */
#include "io/augment/geometry_impl.h"

#include "core/base/int_math.h"
#include "io/augment/augment.h"

#include <math.h>
#include <string.h>

double oct_image_unit(oct_dtype dtype)
{
    return dtype == OCT_U8 ? 255 : dtype == OCT_S8 ? 128 : 1;
}

double oct_image_get(const oct_image *image, int64_t index)
{
    if (image->dtype == OCT_U8) return ((const uint8_t *)image->data)[index];
    if (image->dtype == OCT_S8) return ((const int8_t *)image->data)[index];
    return (double)((const float *)image->data)[index];
}

/* Rounds to the nearest code, halves up. */
static double code_of(double value, double least, double most)
{
    const double code = floor(value + 0.5);
    return code < least ? least : code > most ? most : code;
}

void oct_image_set(oct_image *image, int64_t index, double value)
{
    if (image->dtype == OCT_U8)
        ((uint8_t *)image->data)[index] = (uint8_t)code_of(value, 0, UINT8_MAX);
    else if (image->dtype == OCT_S8)
        ((int8_t *)image->data)[index] = (int8_t)code_of(value, INT8_MIN, INT8_MAX);
    else
        ((float *)image->data)[index] = (float)value;
}

/* Writes the value that the model will see as 0; of a map, the class that is ignored. */
static void paint_pixel(oct_image *image, int64_t index, const oct_reals *mean)
{
    for (int64_t c = 0; c < image->c; c++) {
        const int64_t at = oct_min_i64(c, oct_max_i64(mean->count - 1, 0));
        if (image->dtype == OCT_S32)
            ((int32_t *)image->data)[index + c] = OCT_MAP_OUTSIDE;
        else
            oct_image_set(image, index + c, mean->value[at] * oct_image_unit(image->dtype));
    }
}

void oct_geometry_paint(oct_image *image, const oct_box *box, const oct_reals *mean)
{
    if (box->h == 0 || box->w == 0) return;
    const size_t pixel = oct_pixel_bytes(image), row = (size_t)box->w * pixel;
    char *first = oct_pixel_at(image, box->top, box->left);
    paint_pixel(image, (box->top * image->w + box->left) * image->c, mean);
    for (size_t filled = pixel; filled < row; filled += pixel)
        memcpy(first + filled, first, pixel);
    for (int64_t y = 1; y < box->h; y++)
        memcpy(oct_pixel_at(image, box->top + y, box->left), first, row);
}

/* Copies the part of the box that the image has; the rest is painted. */
static oct_status crop(oct_image *image, oct_image *spare, const oct_box *box,
                       const oct_reals *mean)
{
    const int64_t top = oct_max_i64(box->top, 0), left = oct_max_i64(box->left, 0);
    const int64_t bottom = oct_min_i64(box->top + box->h, image->h);
    const int64_t right = oct_min_i64(box->left + box->w, image->w);
    const bool whole = bottom - top == box->h && right - left == box->w;
    OCT_TRY(oct_image_resize(spare, image->dtype, box->h, box->w, image->c));
    if (!whole) oct_geometry_paint(spare, &(oct_box){0, 0, box->h, box->w}, mean);
    for (int64_t y = top; y < bottom && left < right; y++)
        memcpy(oct_pixel_at(spare, y - box->top, left - box->left), oct_pixel_at(image, y, left),
               (size_t)(right - left) * oct_pixel_bytes(image));
    oct_image_swap(image, spare);
    return OCT_OK;
}

oct_status oct_geometry_crop(oct_image *image, oct_image *map, oct_image *spare, const oct_box *box,
                             const oct_reals *mean)
{
    if (map) OCT_TRY(crop(map, spare, box, mean));
    return crop(image, spare, box, mean);
}

static void swap_pixels(char *a, char *b, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        const char kept = a[i];
        a[i] = b[i];
        b[i] = kept;
    }
}

static void flip(oct_image *image, bool down)
{
    const size_t pixel = oct_pixel_bytes(image);
    for (int64_t y = 0; down && y < image->h / 2; y++)
        swap_pixels(oct_pixel_at(image, y, 0), oct_pixel_at(image, image->h - 1 - y, 0),
                    (size_t)image->w * pixel);
    for (int64_t y = 0; !down && y < image->h; y++)
        for (int64_t x = 0; x < image->w / 2; x++)
            swap_pixels(oct_pixel_at(image, y, x), oct_pixel_at(image, y, image->w - 1 - x), pixel);
}

void oct_geometry_flip(oct_image *image, oct_image *map, bool down)
{
    flip(image, down);
    if (map) flip(map, down);
}
