/* Changes the values of any sample, such as a sound: by noise, or by one factor, its loudness. */
#include "io/augment/geometry.h"

enum { STD, FACTOR = 0 };

/* Gaussian: two words of the dice for each two values. */
static oct_status run_noise(const oct_transform_call *call, oct_image *image, oct_image *map)
{
    const double std = call->value[STD].from * oct_image_unit(image->dtype);
    (void)map;
    for (int64_t i = 0; i < oct_image_numel(image) && std > 0; i++)
        oct_image_set(image, i, oct_image_get(image, i) + std * oct_dice_normal(call->dice));
    return OCT_OK;
}

const oct_transform oct_transform_noise = {
    .name = "noise",
    .help = "adds Gaussian noise of this standard deviation, in the unit of data.mean",
    .param = {[STD] = {"std", OCT_PARAM_REAL, NULL, 0, 1e6}},
    .random = true,
    .run = run_noise,
};

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
