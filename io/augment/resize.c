/* Resizes to a height and width or, where one number is given, the shorter side to it. */
#include "io/augment/geometry.h"

#include <stdio.h>

enum { SIZE };

/* The size of the result, as torchvision's Resize computes it: one number is the shorter side. */
static void size_of_result(const oct_param_value *value, const oct_image *image, int64_t *h,
                           int64_t *w)
{
    oct_size_of(&value[SIZE], h, w);
    if (value[SIZE].to > 0) return;
    if (image->h < image->w)
        *w = *h * image->w / image->h;
    else
        *h = *w * image->h / image->w;
}

static bool is_too_large(int64_t h, int64_t w, const oct_image *image)
{
    return h > OCT_IMAGE_SIDE_MAX || w > OCT_IMAGE_SIDE_MAX ||
           h * w > OCT_IMAGE_BYTES_MAX / image->c / (int64_t)oct_dtype_bytes(image->dtype);
}

/* Computes the size of the resized samples; it stays unknown (0) for images of several shapes and one number. */
static void fit_resize(const oct_param_value *value, oct_image *shape, char flaw[OCT_AUGMENT_FLAW])
{
    int64_t h, w;
    if (value[SIZE].to <= 0 && shape->h == 0) return; /* the shapes still differ */
    if (shape->h == 0) {
        oct_fit_size(value, shape, flaw);
        return;
    }
    size_of_result(value, shape, &h, &w);
    if (is_too_large(h, w, shape))
        snprintf(flaw, OCT_AUGMENT_FLAW,
                 "samples of %lldx%lld would become %lldx%lld; write height and width, such as "
                 "resize 224x224",
                 (long long)shape->h, (long long)shape->w, (long long)h, (long long)w);
    shape->h = h;
    shape->w = w;
}

static oct_status run_resize(const oct_transform_call *call, oct_image *image, oct_image *map)
{
    int64_t h, w;
    size_of_result(call->value, image, &h, &w);
    OCT_CHECK(!is_too_large(h, w, image), OCT_DATA,
              "an image of %lldx%lld would become %lldx%lld; leave it out, or write height and "
              "width, such as resize 224x224",
              (long long)image->h, (long long)image->w, (long long)h, (long long)w);
    return oct_geometry_resize(image, map, call->spare, h, w);
}

const oct_transform oct_transform_resize = {
    .name = "resize",
    .help = "one number: the shorter side becomes that long; HxW: exactly that; bilinear, "
            "antialiased",
    .param = {[SIZE] = {"size", OCT_PARAM_SIZE, NULL, 1, OCT_IMAGE_SIDE_MAX}},
    .fit = fit_resize,
    .run = run_resize,
};
