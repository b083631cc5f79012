/* An image as a data set gives it: height x width x channels, NHWC, bytes or floats. Everything that
 * is shaped like (h, w, c) is one: a row of k features is 1 x 1 x k, a spectrogram h x w x 1. */
#pragma once

#include "core/tensor/tensor.h"

typedef struct oct_image {
    oct_dtype dtype; /* OCT_U8, OCT_S8 or OCT_F32 */
    int64_t h, w, c;
    void *data;
    bool warned;     /* the decoder of its file has warned */
    size_t capacity; /* bytes of data, which is kept and grown from one image to the next */
} oct_image;

static inline int64_t oct_image_numel(const oct_image *image)
{
    return image->h * image->w * image->c;
}

/* Gives the image this type and size, with room for them; what it held is undefined then. Sizes are
 * trusted: who reads them from a file has checked them (OCT_IMAGE_SIDE_MAX, OCT_IMAGE_BYTES_MAX). */
oct_status oct_image_resize(oct_image *image, oct_dtype dtype, int64_t h, int64_t w, int64_t c);
void oct_image_free(oct_image *image);
/* Reads a value as it is stored. */
double oct_image_get(const oct_image *image, int64_t index);

/* Larger ones are refused, whatever a file says. */
enum { OCT_IMAGE_SIDE_MAX = 65500 };
#define OCT_IMAGE_BYTES_MAX ((int64_t)1 << 30)
