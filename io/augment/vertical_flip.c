/* Mirrors upside-down. */
#include "io/augment/geometry.h"

enum { P };

static oct_status run_vertical_flip(const oct_transform_call *call, oct_image *image,
                                    oct_image *map)
{
    if (oct_dice_chance(call->dice, call->value[P].from)) oct_geometry_flip(image, map, true);
    return OCT_OK;
}

const oct_transform oct_transform_vertical_flip = {
    .name = "vertical_flip",
    .help = "mirrors upside-down, with probability p",
    .param = {[P] = {"p", OCT_PARAM_REAL, "0.5", 0, 1}},
    .random = true,
    .run = run_vertical_flip,
};
