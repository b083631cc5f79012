/* Random erasing: paints a box over (Z. Zhong et al., 2017), as torchvision's RandomErasing does. */
#include "io/augment/geometry.h"

enum { P, SCALE, RATIO };

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
