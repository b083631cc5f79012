#include "io/image/image.h"

#include "core/base/mem.h"

oct_status oct_image_resize(oct_image *image, oct_dtype dtype, int64_t h, int64_t w, int64_t c)
{
    const size_t bytes = (size_t)h * (size_t)w * (size_t)c * oct_dtype_bytes(dtype);
    OCT_TRY(oct_grow(&image->data, &image->capacity, bytes, 1));
    image->dtype = dtype;
    image->h = h;
    image->w = w;
    image->c = c;
    image->warned = false;
    return OCT_OK;
}

void oct_image_free(oct_image *image)
{
    oct_free(&image->data);
    *image = (oct_image){0};
}

double oct_image_get(const oct_image *image, int64_t index)
{
    if (image->dtype == OCT_U8) return ((const uint8_t *)image->data)[index];
    if (image->dtype == OCT_S8) return ((const int8_t *)image->data)[index];
    return (double)((const float *)image->data)[index];
}
