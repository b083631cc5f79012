/* What changes the values of pixels and moves none, on bytes, in place; each gives the bytes of PIL's
 * ImageEnhance or ImageOps function for grey and RGB images, and means the same for other numbers of
 * channels. */
#pragma once

#include "io/image/image.h"

/* Blends with black, with the mean brightness, with the grey image, with the smoothed image: 0 gives that,
 * 1 the image itself, more the opposite. */
void oct_pixel_brightness(oct_image *image, float factor);
void oct_pixel_contrast(oct_image *image, float factor);
void oct_pixel_saturation(oct_image *image, float factor); /* of 3 channels; others stay */
oct_status oct_pixel_sharpness(oct_image *image, oct_image *spare, float factor) OCT_NODISCARD;

/* Turns the colour by this share of the circle, -0.5 to 0.5, in bytes of hue, saturation and value as PIL
 * converts them; of 3 channels, others stay. */
void oct_pixel_hue(oct_image *image, double turn);
void oct_pixel_posterize(oct_image *image, int bits);     /* keeps the upper 1 to 8 bits */
void oct_pixel_solarize(oct_image *image, int threshold); /* inverts codes from 0 to 256 on */
void oct_pixel_autocontrast(oct_image *image);            /* per channel: least 0, largest 255 */
void oct_pixel_equalize(oct_image *image);                /* per channel: even histogram */
