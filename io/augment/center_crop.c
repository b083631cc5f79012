/* Cuts out the middle. */
#include "io/augment/place.h"

enum { SIZE };

static oct_status run(const oct_transform_call *call, oct_image *image, oct_image *map)
{
    int64_t h, w;
    oct_size_of(&call->value[SIZE], &h, &w);
    const oct_box box = oct_box_centre(image, h, w);
    return oct_geometry_crop(image, map, call->spare, &box, call->mean);
}

const oct_transform oct_transform_center_crop = {
    .name = "center_crop",
    .help = "cuts out the middle; data.mean where the image is smaller",
    .param = {[SIZE] = {"size", OCT_PARAM_SIZE, NULL, 1, OCT_IMAGE_SIDE_MAX}},
    .fit = oct_fit_size,
    .run = run,
};
