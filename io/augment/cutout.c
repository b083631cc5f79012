/* Cutout: paints squares over (T. DeVries and G. Taylor, 2017). A square's centre is any pixel, so part of it
 * may be outside. */
#include "core/base/int_math.h"
#include "io/augment/geometry.h"

enum { SIZE, COUNT };

static oct_status run_cutout(const oct_transform_call *call, oct_image *image, oct_image *map)
{
    (void)map;
    for (int i = 0; i < (int)call->value[COUNT].from; i++) {
        const int64_t size = (int64_t)call->value[SIZE].from;
        const int64_t top = oct_dice_below(call->dice, image->h) - size / 2;
        const int64_t left = oct_dice_below(call->dice, image->w) - size / 2;
        oct_box box = {oct_max_i64(top, 0), oct_max_i64(left, 0), 0, 0};
        box.h = oct_min_i64(top + size, image->h) - box.top;
        box.w = oct_min_i64(left + size, image->w) - box.left;
        if (box.h > 0 && box.w > 0) oct_geometry_paint(image, &box, call->mean);
    }
    return OCT_OK;
}

const oct_transform oct_transform_cutout = {
    .name = "cutout",
    .help =
        "paints squares of `size` pixels a side with data.mean; each is centred on a random pixel",
    .param = {[SIZE] = {"size", OCT_PARAM_COUNT, NULL, 1, OCT_IMAGE_SIDE_MAX},
              [COUNT] = {"count", OCT_PARAM_COUNT, "1", 1, 64}},
    .random = true,
    .run = run_cutout,
};
