/* Paints over parts of a sample with data.mean; its map stays. */
#include "core/base/int_math.h"
#include "io/augment/geometry.h"

enum { P, SCALE, RATIO };

/* Random erasing (Z. Zhong et al., 2017), as torchvision's RandomErasing does it. */
static oct_status run_erase(const oct_transform_call *call, oct_image *image, oct_image *map)
{
    oct_box box;
    (void)map;
    const bool wanted = oct_dice_chance(call->dice, call->value[P].from);
    if (wanted && oct_box_draw(call->dice, image, &call->value[SCALE], &call->value[RATIO], &box))
        oct_geometry_paint(image, &box, call->mean);
    return OCT_OK;
}

const oct_transform oct_transform_erase = {
    .name = "erase",
    .help = "paints a box with data.mean, with probability p; share of the area and width over "
            "height are drawn",
    .param = {[P] = {"p", OCT_PARAM_REAL, "0.5", 0, 1},
              [SCALE] = {"scale", OCT_PARAM_RANGE, "0.02..0.33", 1e-4, 1},
              [RATIO] = {"ratio", OCT_PARAM_RANGE, "0.3..3.3", 0.01, 100}},
    .random = true,
    .run = run_erase,
};

enum { SIZE, COUNT };

/* Cutout (T. DeVries and G. Taylor, 2017). A square's centre is any pixel, so part of it may be outside. */
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
