/* Rows and pixels of images, for the sources of geometry.h. */
#pragma once

#include "io/augment/geometry.h"

static inline void oct_image_swap(oct_image *a, oct_image *b)
{
    const oct_image kept = *a;
    *a = *b;
    *b = kept;
}

static inline size_t oct_pixel_bytes(const oct_image *image)
{
    return (size_t)image->c * oct_dtype_bytes(image->dtype);
}

static inline void *oct_pixel_at(const oct_image *image, int64_t y, int64_t x)
{
    return (char *)image->data + (size_t)(y * image->w + x) * oct_pixel_bytes(image);
}
