/* Changes brightness, contrast, saturation and hue in a random order, as torchvision's ColorJitter does. */
#include "io/augment/augment.h"
#include "io/augment/pixel.h"

#include <stdio.h>

enum { BRIGHTNESS, CONTRAST, SATURATION, HUE, CHANGES };

static void fit(const oct_param_value *value, oct_image *shape, char flaw[OCT_AUGMENT_FLAW])
{
    if (shape->c != 3 && (value[SATURATION].from > 0 || value[HUE].from > 0))
        snprintf(flaw, OCT_AUGMENT_FLAW,
                 "saturation and hue need samples of 3 channels, but these have %lld; leave them "
                 "at 0",
                 (long long)shape->c);
}

static oct_status run_color_jitter(const oct_transform_call *call, oct_image *image, oct_image *map)
{
    float factor[CHANGES] = {0};
    int order[CHANGES] = {BRIGHTNESS, CONTRAST, SATURATION, HUE};
    (void)map;
    for (int i = 0; i < HUE; i++) { /* from 1 - up (at least 0) to 1 + up */
        const double up = call->value[i].from;
        factor[i] = (float)oct_dice_real(call->dice, up < 1 ? 1 - up : 0, 1 + up);
    }
    const double most = call->value[HUE].from, turn = oct_dice_real(call->dice, -most, most);
    for (int i = CHANGES - 1; i > 0; i--) {
        const int64_t j = oct_dice_below(call->dice, i + 1);
        const int kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
    for (int i = 0; i < CHANGES; i++) {
        const int what = order[i];
        if (call->value[what].from <= 0) continue;
        if (what == BRIGHTNESS) oct_pixel_brightness(image, factor[what]);
        if (what == CONTRAST) oct_pixel_contrast(image, factor[what]);
        if (what == SATURATION) oct_pixel_saturation(image, factor[what]);
        if (what == HUE) oct_pixel_hue(image, turn);
    }
    return OCT_OK;
}

const oct_transform oct_transform_color_jitter = {
    .name = "color_jitter",
    .help = "multiplies each by up to 1 +- its value, in random order; turns the hue by up to so "
            "much of the circle",
    .param = {[BRIGHTNESS] = {"brightness", OCT_PARAM_REAL, "0", 0, 10},
              [CONTRAST] = {"contrast", OCT_PARAM_REAL, "0", 0, 10},
              [SATURATION] = {"saturation", OCT_PARAM_REAL, "0", 0, 10},
              [HUE] = {"hue", OCT_PARAM_REAL, "0", 0, 0.5}},
    .random = true,
    .bytes = true,
    .fit = fit,
    .run = run_color_jitter,
};
