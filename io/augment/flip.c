/* Mirrors left-right. */
#include "io/augment/geometry.h"

enum { P };

static oct_status run_flip(const oct_transform_call *call, oct_image *image, oct_image *map)
{
    if (oct_dice_chance(call->dice, call->value[P].from)) oct_geometry_flip(image, map, false);
    return OCT_OK;
}

const oct_transform oct_transform_flip = {
    .name = "flip",
    .help = "mirrors left-right, with probability p",
    .param = {[P] = {"p", OCT_PARAM_REAL, "0.5", 0, 1}},
    .random = true,
    .run = run_flip,
};
