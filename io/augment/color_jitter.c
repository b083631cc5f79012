/* Changes brightness, contrast, saturation and hue in a random order, as torchvision's ColorJitter does. */
#include "io/augment/augment.h"
#include "io/augment/pixel.h"

#include <stdio.h>

/* A parameter has the number of the change that it limits. */
enum {
    BRIGHTNESS = OCT_PIXEL_BRIGHTNESS,
    CONTRAST = OCT_PIXEL_CONTRAST,
    SATURATION = OCT_PIXEL_SATURATION,
    HUE = OCT_PIXEL_HUE,
    CHANGES
};

static void fit_color_jitter(const oct_param_value *value, oct_image *shape,
                             char flaw[OCT_AUGMENT_FLAW])
{
    if (shape->c != 3 && (value[SATURATION].from > 0 || value[HUE].from > 0))
        snprintf(flaw, OCT_AUGMENT_FLAW,
                 "saturation and hue need samples of 3 channels, but these have %lld; leave them "
                 "at 0",
                 (long long)shape->c);
}

/* As torchvision's ColorJitter: draws the amount of each change, then applies the changes in a random order. */
static oct_status run_color_jitter(const oct_transform_call *call, oct_image *image, oct_image *map)
{
    double amount[CHANGES];
    int order[CHANGES] = {BRIGHTNESS, CONTRAST, SATURATION, HUE};
    (void)map;
    for (int i = 0; i < HUE; i++) { /* a factor from 1 - up (at least 0) to 1 + up */
        const double up = call->value[i].from;
        amount[i] = oct_dice_real(call->dice, up < 1 ? 1 - up : 0, 1 + up);
    }
    amount[HUE] = oct_dice_real(call->dice, -call->value[HUE].from, call->value[HUE].from);
    for (int i = CHANGES - 1; i > 0; i--) {
        const int64_t j = oct_dice_below(call->dice, i + 1);
        const int kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
    for (int i = 0; i < CHANGES; i++)
        if (call->value[order[i]].from > 0)
            OCT_TRY(oct_pixel_change(image, order[i], amount[order[i]], call->spare));
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
    .fit = fit_color_jitter,
    .run = run_color_jitter,
};
