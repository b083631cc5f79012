/* data.crop_padding and data.flip: a sample is cropped and mirrored while it is normalised into a batch.
 *
 * The crop has the size of the image and is taken from the image padded by zeros *after* normalisation, that is by the
 * mean. (Padding before normalisation, as by black, would give -mean/std there.) The flip comes after the crop. The
 * transform random_crop pads the image itself with data.mean, rounded to a byte.
 */
#pragma once

#include "io/augment/dice.h"
#include "io/batch/normalise.h"

typedef struct oct_crop {
    int64_t down, right; /* of the crop against the image, -padding to padding */
    bool flip;           /* left-right */
} oct_crop;
#define OCT_CROP_NONE ((oct_crop){0})

/* Draws from sub 0 of a sample: word 0 decides on the flip, words 1 and 2 on the vertical and horizontal offset of the
 * crop, whichever of them are on; transforms have the other subs. */
oct_crop oct_crop_draw(const oct_draw *draw, int padding, bool flip);
/* out: height x width x channels. look_up: oct_normaliser_look_up, for images of bytes. */
void oct_crop_image(const oct_crop *crop, const oct_image *image, const oct_normaliser *normaliser,
                    const float *look_up, float *out);
/* A map moves with its image; pixels from outside are OCT_MAP_OUTSIDE. out: height x width. */
void oct_crop_map(const oct_crop *crop, const oct_image *map, int32_t *out);
