/* What changes the values of pixels and moves none, on bytes, in place; each gives the bytes of PIL's
 * ImageEnhance or ImageOps function for grey and RGB images, and means the same for other numbers of
 * channels. */
#pragma once

#include "io/image/image.h"

/* The changes, and what their amount is. The first three and sharpness blend with black, with the mean brightness,
 * with the grey image, with the smoothed image: a factor of 0 gives that, 1 the image itself, more the opposite. */
typedef enum oct_pixel_kind {
    OCT_PIXEL_BRIGHTNESS,
    OCT_PIXEL_CONTRAST,
    OCT_PIXEL_SATURATION, /* of 3 channels; others stay */
    OCT_PIXEL_HUE,        /* share of the colour circle, -0.5 to 0.5; of 3 channels, others stay */
    OCT_PIXEL_SHARPNESS,
    OCT_PIXEL_POSTERIZE,    /* the upper bits that are kept, 1 to 8 */
    OCT_PIXEL_SOLARIZE,     /* the first code that is inverted, 0 to 256 */
    OCT_PIXEL_AUTOCONTRAST, /* none; per channel: least 0, largest 255 */
    OCT_PIXEL_EQUALIZE,     /* none; per channel: even histogram */
} oct_pixel_kind;

/* Changes the bytes of an image in place by an amount as its kind says above; spare: room for a second image. */
oct_status oct_pixel_change(oct_image *image, oct_pixel_kind kind, double amount, oct_image *spare);
