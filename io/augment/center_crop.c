/* Cuts out the middle: a size, or a share of the image in that size's shape, which data.size then brings to it. */
#include "io/augment/geometry.h"

#include <math.h>

enum { SIZE, SHARE };

static void size_of_crop(const oct_param_value *value, const oct_image *image, int64_t *h,
                         int64_t *w)
{
    const double share = value[SHARE].from;
    oct_size_of(&value[SIZE], h, w);
    if (share == 0) return;
    const double scale = share * fmin((double)image->h / (double)*h, (double)image->w / (double)*w);
    *h = (int64_t)fmax(1, rint(scale * (double)*h));
    *w = (int64_t)fmax(1, rint(scale * (double)*w));
}

static void fit(const oct_param_value *value, oct_image *shape, char flaw[OCT_AUGMENT_FLAW])
{
    if (value[SHARE].from == 0) {
        oct_fit_size(value, shape, flaw);
        return;
    }
    const oct_image before = *shape;
    if (before.h > 0) size_of_crop(value, &before, &shape->h, &shape->w);
}

static oct_status run_center_crop(const oct_transform_call *call, oct_image *image, oct_image *map)
{
    int64_t h, w;
    size_of_crop(call->value, image, &h, &w);
    const oct_box box = oct_box_centre(image, h, w);
    return oct_geometry_crop(image, map, call->spare, &box, call->mean);
}

const oct_transform oct_transform_center_crop = {
    .name = "center_crop",
    .help = "cuts out the middle; data.mean where the image is smaller. share above 0: of the "
            "largest part of the size's shape, which data.size then resizes: 0.875 is ImageNet's "
            "256 to 224",
    .param = {[SIZE] = {"size", OCT_PARAM_SIZE, NULL, 1, OCT_IMAGE_SIDE_MAX},
              [SHARE] = {"share", OCT_PARAM_REAL, "0", 0, 1}},
    .fit = fit,
    .run = run_center_crop,
};
