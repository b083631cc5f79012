/* Mirrors a sample, or rotates it around its centre. */
#include "io/augment/geometry.h"

enum { P, DEGREES = 0 };

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

static oct_status run_rotate(const oct_transform_call *call, oct_image *image, oct_image *map)
{
    const double most = call->value[DEGREES].from;
    const oct_affine from = oct_affine_rotate(image, oct_dice_real(call->dice, -most, most));
    return oct_geometry_affine(image, map, call->spare, &from, call->mean);
}

const oct_transform oct_transform_rotate = {
    .name = "rotate",
    .help = "rotates by up to `degrees` either way; bilinear, data.mean outside",
    .param = {[DEGREES] = {"degrees", OCT_PARAM_REAL, NULL, 0, 180}},
    .random = true,
    .run = run_rotate,
};
