/* Cuts out a part of random size and shape and resizes it, as torchvision's RandomResizedCrop does. */
#include "io/augment/geometry.h"

#include <math.h>

enum { SIZE, SCALE, RATIO };

/* What is taken when no draw fits: the largest part in the middle whose shape is allowed. */
static oct_box largest_box(const oct_image *image, const oct_param_value *ratio)
{
    int64_t h = image->h, w = image->w;
    const double shape = (double)w / (double)h;
    if (shape < ratio->from) h = (int64_t)floor((double)w / ratio->from + 0.5);
    if (shape > ratio->to) w = (int64_t)floor((double)h * ratio->to + 0.5);
    h = h < 1 ? 1 : h > image->h ? image->h : h;
    w = w < 1 ? 1 : w > image->w ? image->w : w;
    return (oct_box){(image->h - h) / 2, (image->w - w) / 2, h, w};
}

static oct_status run_random_resized_crop(const oct_transform_call *call, oct_image *image,
                                          oct_image *map)
{
    int64_t h, w;
    oct_box box;
    oct_size_of(&call->value[SIZE], &h, &w);
    if (!oct_box_draw(call->dice, image, &call->value[SCALE], &call->value[RATIO], &box))
        box = largest_box(image, &call->value[RATIO]);
    OCT_TRY(oct_geometry_crop(image, map, call->spare, &box, call->mean));
    return oct_geometry_resize(image, map, call->spare, h, w);
}

const oct_transform oct_transform_random_resized_crop = {
    .name = "random_resized_crop",
    .help = "cuts out a part with this share of the area and width over height, and resizes it",
    .param = {[SIZE] = {"size", OCT_PARAM_SIZE, NULL, 1, OCT_IMAGE_SIDE_MAX},
              [SCALE] = {"scale", OCT_PARAM_RANGE, "0.08..1", 1e-4, 1},
              [RATIO] = {"ratio", OCT_PARAM_RANGE, "0.75..1.3333", 0.01, 100}},
    .random = true,
    .fit = oct_fit_size,
    .run = run_random_resized_crop,
};
