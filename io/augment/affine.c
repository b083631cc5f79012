/* An affine map goes from each pixel of the result to where it comes from. */
#include "io/augment/geometry_impl.h"

#include "core/base/int_math.h"
#include "io/augment/real.h"

#include <math.h>
#include <string.h>

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

static corners corners_of(const oct_image *image, double x, double y)
{
    const double left = floor(x - 0.5), top = floor(y - 0.5);
    const int64_t x0 = oct_max_i64((int64_t)left, 0);
    const int64_t x1 = oct_min_i64((int64_t)left + 1, image->w - 1);
    const int64_t y0 = oct_max_i64((int64_t)top, 0);
    const int64_t y1 = oct_min_i64((int64_t)top + 1, image->h - 1);
    return (corners){{oct_pixel_at(image, y0, x0), oct_pixel_at(image, y0, x1),
                      oct_pixel_at(image, y1, x0), oct_pixel_at(image, y1, x1)},
                     x - 0.5 - left,
                     y - 0.5 - top};
}

static inline double between(const corners *k, const double v[4])
{
    const double upper = v[0] + (v[1] - v[0]) * k->right, lower = v[2] + (v[3] - v[2]) * k->right;
    return upper + (lower - upper) * k->down;
}

static inline double value_at(oct_dtype dtype, const void *pixel, int64_t c)
{
    if (dtype == OCT_U8) return ((const uint8_t *)pixel)[c];
    if (dtype == OCT_S8) return ((const int8_t *)pixel)[c];
    return (double)((const float *)pixel)[c];
}

static void interpolate(const corners *k, oct_dtype dtype, int64_t channels, void *to)
{
    for (int64_t c = 0; c < channels; c++) {
        double v[4];
        for (int i = 0; i < 4; i++)
            v[i] = value_at(dtype, k->pixel[i], c);
        const double value = between(k, v);
        if (dtype == OCT_F32)
            ((float *)to)[c] = (float)value;
        else if (dtype == OCT_U8)
            ((uint8_t *)to)[c] = (uint8_t)(value + 0.5);
        else
            ((int8_t *)to)[c] = (int8_t)floor(value + 0.5);
    }
}

/* Maps take the nearest pixel, images the four around. */
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
            void *to = oct_pixel_at(spare, y, x);
            if (image->dtype == OCT_S32) {
                memcpy(to, oct_pixel_at(image, (int64_t)v, (int64_t)u), oct_pixel_bytes(image));
                continue;
            }
            const corners k = corners_of(image, u, v);
            interpolate(&k, image->dtype, image->c, to);
        }
    oct_image_swap(image, spare);
    return OCT_OK;
}

oct_status oct_geometry_affine(oct_image *image, oct_image *map, oct_image *spare,
                               const oct_affine *from, const oct_reals *mean)
{
    if (map) OCT_TRY(apply_affine(map, spare, from, mean));
    return apply_affine(image, spare, from, mean);
}
