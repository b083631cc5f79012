/* Turns around the centre. */
#include "io/augment/geometry.h"

enum { DEGREES };

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
