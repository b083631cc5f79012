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

/* Draws from 1 - most (at least 0) to 1 + most. */
static float draw_factor(oct_dice *dice, double most)
{
    return (float)oct_dice_real(dice, most < 1 ? 1 - most : 0, 1 + most);
}

static void change(oct_image *image, int what, float factor, double turn)
{
    if (what == BRIGHTNESS) oct_pixel_brightness(image, factor);
    if (what == CONTRAST) oct_pixel_contrast(image, factor);
    if (what == SATURATION) oct_pixel_saturation(image, factor);
    if (what == HUE) oct_pixel_hue(image, turn);
}

static oct_status run_color_jitter(const oct_transform_call *call, oct_image *image, oct_image *map)
{
    float factor[CHANGES] = {0};
    int order[CHANGES] = {BRIGHTNESS, CONTRAST, SATURATION, HUE};
    (void)map;
    for (int i = 0; i < HUE; i++)
        factor[i] = draw_factor(call->dice, call->value[i].from);
    const double most = call->value[HUE].from, turn = oct_dice_real(call->dice, -most, most);
    for (int i = CHANGES - 1; i > 0; i--) {
        const int64_t j = oct_dice_below(call->dice, i + 1);
        const int kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
    for (int i = 0; i < CHANGES; i++)
        if (call->value[order[i]].from > 0) change(image, order[i], factor[order[i]], turn);
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
