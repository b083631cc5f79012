/* What moves pixels: resampling, cutting out, mirroring, affine maps. Each works on an image of any type and
 * number of channels and on its map (may be NULL), which takes the nearest pixel. The result is
 * written to `spare` and swapped in. */
#pragma once

#include "io/augment/augment.h"

typedef struct oct_box {
    int64_t top, left, h, w;
} oct_box;

/* Resizes as PIL's resize does with its bilinear (triangle) filter: antialiased where it makes smaller. Bytes
 * are computed in integers with weights of 22 bits, PIL's bits; floats in double. */
oct_status oct_geometry_resize(oct_image *image, oct_image *map, oct_image *spare, int64_t h,
                               int64_t w);
/* Cuts out a box, which may reach beyond the image: data.mean is there, or OCT_MAP_OUTSIDE. */
oct_status oct_geometry_crop(oct_image *image, oct_image *map, oct_image *spare, const oct_box *box,
                             const oct_reals *mean);
/* Mirrors left-right or, down, upside-down, in place. */
void oct_geometry_flip(oct_image *image, oct_image *map, bool down);

/* Where the result's pixel (x, y) comes from, in pixels with centres at a half:
 * (m[0] x + m[1] y + m[2], m[3] x + m[4] y + m[5]). */
typedef struct oct_affine {
    double m[6];
} oct_affine;
/* Interpolates bilinearly between the four pixels, rounded to the nearest code of bytes. */
oct_status oct_geometry_affine(oct_image *image, oct_image *map, oct_image *spare,
                               const oct_affine *from, const oct_reals *mean);
/* Returns the rotation around the centre by `degrees`, counter-clockwise. */
oct_affine oct_affine_rotate(const oct_image *image, double degrees);

/* Paints a box inside the image with data.mean. */
void oct_geometry_paint(oct_image *image, const oct_box *box, const oct_reals *mean);

/* How many steps of the codes are 1 of data.mean: 255 for bytes, 128 for OCT_S8, 1 for floats. */
double oct_image_unit(oct_dtype dtype);
/* Writes a value as it is stored, rounded and kept within the codes. */
void oct_image_set(oct_image *image, int64_t index, double value);

/* Draws a box of an image as torchvision's RandomResizedCrop does: the share of the area from `scale`, width
 * over height log-uniformly from `ratio`; false when none of ten fits. */
bool oct_box_draw(oct_dice *dice, const oct_image *image, const oct_param_value *scale,
                  const oct_param_value *ratio, oct_box *box);
/* Gives height and width of a SIZE, where one number means a square. */
void oct_size_of(const oct_param_value *value, int64_t *h, int64_t *w);
/* Sets the size of samples that become as large as the first parameter says (oct_transform.fit). */
void oct_fit_size(const oct_param_value *value, oct_image *shape, char flaw[OCT_AUGMENT_FLAW]);
