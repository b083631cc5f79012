/* Multiplies all values of a sample by one random factor, such as the loudness of a sound. */
#include "io/augment/geometry.h"

enum { FACTOR };

static oct_status run_gain(const oct_transform_call *call, oct_image *image, oct_image *map)
{
    const oct_param_value *range = &call->value[FACTOR];
    const double factor = oct_dice_real(call->dice, range->from, range->to);
    (void)map;
    for (int64_t i = 0; i < oct_image_numel(image); i++)
        oct_image_set(image, i, oct_image_get(image, i) * factor);
    return OCT_OK;
}

const oct_transform oct_transform_gain = {
    .name = "gain",
    .help = "multiplies all values of a sample by one factor from this range",
    .param = {[FACTOR] = {"factor", OCT_PARAM_RANGE, NULL, 0, 1000}},
    .random = true,
    .run = run_gain,
};
