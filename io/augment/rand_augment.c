/* RandAugment: some of fourteen operations at one strength (E. Cubuk et al., 2019), with the ranges that
 * torchvision gives them. */
#include "io/augment/geometry.h"
#include "io/augment/pixel.h"

#include <math.h>

enum { OPS, MAGNITUDE };
enum { MAGNITUDE_MAX = 30 };

enum operation {
    IDENTITY,
    SHEAR_X,
    SHEAR_Y,
    TRANSLATE_X,
    TRANSLATE_Y,
    ROTATE,
    BRIGHTNESS,
    SATURATION,
    CONTRAST,
    SHARPNESS,
    LAST_SIGNED = SHARPNESS, /* up to here the strength gets a random sign */
    POSTERIZE,
    SOLARIZE,
    AUTOCONTRAST,
    EQUALIZE,
    OPERATIONS
};

static oct_status map_from(const oct_transform_call *call, oct_image *image, oct_image *map,
                           oct_affine from)
{
    return oct_geometry_affine(image, map, call->spare, &from, call->mean);
}

/* strength: 0 to 1 of the operation's range, of those with two directions -1 to 1. */
static oct_status run_operation(const oct_transform_call *call, enum operation operation,
                                double strength, oct_image *image, oct_image *map)
{
    /* The largest step is the paper's: 150 of 331 pixels. Whole pixels, as torchvision rounds them. */
    const double step = strength * 150.0 / 331.0, factor = 1 + 0.9 * strength;
    oct_box box = {0, 0, image->h, image->w};
    switch (operation) {
    case SHEAR_X:
        return map_from(call, image, map, (oct_affine){{1, 0.3 * strength, 0, 0, 1, 0}});
    case SHEAR_Y:
        return map_from(call, image, map, (oct_affine){{1, 0, 0, 0.3 * strength, 1, 0}});
    case TRANSLATE_X:
        box.left = (int64_t)(step * (double)image->w);
        return oct_geometry_crop(image, map, call->spare, &box, call->mean);
    case TRANSLATE_Y:
        box.top = (int64_t)(step * (double)image->h);
        return oct_geometry_crop(image, map, call->spare, &box, call->mean);
    case ROTATE:
        return map_from(call, image, map, oct_affine_rotate(image, 30 * strength));
    case BRIGHTNESS:
        return oct_pixel_change(image, OCT_PIXEL_BRIGHTNESS, factor, call->spare);
    case SATURATION:
        return oct_pixel_change(image, OCT_PIXEL_SATURATION, factor, call->spare);
    case CONTRAST:
        return oct_pixel_change(image, OCT_PIXEL_CONTRAST, factor, call->spare);
    case SHARPNESS:
        return oct_pixel_change(image, OCT_PIXEL_SHARPNESS, factor, call->spare);
    case POSTERIZE:
        return oct_pixel_change(image, OCT_PIXEL_POSTERIZE, 8 - floor(4 * strength + 0.5),
                                call->spare);
    case SOLARIZE:
        return oct_pixel_change(image, OCT_PIXEL_SOLARIZE, ceil(255 * (1 - strength)), call->spare);
    case AUTOCONTRAST:
        return oct_pixel_change(image, OCT_PIXEL_AUTOCONTRAST, 0, call->spare);
    case EQUALIZE:
        return oct_pixel_change(image, OCT_PIXEL_EQUALIZE, 0, call->spare);
    case IDENTITY:
    case OPERATIONS:
        break;
    }
    return OCT_OK;
}

static oct_status run_rand_augment(const oct_transform_call *call, oct_image *image, oct_image *map)
{
    const double strength = call->value[MAGNITUDE].from / MAGNITUDE_MAX;
    for (int i = 0; i < (int)call->value[OPS].from; i++) {
        const enum operation chosen = (enum operation)oct_dice_below(call->dice, OPERATIONS);
        const bool is_signed = chosen != IDENTITY && chosen <= LAST_SIGNED;
        const bool negative = oct_dice_chance(call->dice, 0.5) && is_signed;
        OCT_TRY(run_operation(call, chosen, negative ? -strength : strength, image, map));
    }
    return OCT_OK;
}

const oct_transform oct_transform_rand_augment = {
    .name = "rand_augment",
    .help = "`ops` of 14 operations at random: rotate, shear, translate, posterize, solarize, "
            "colour, sharpness, ...",
    .param = {[OPS] = {"ops", OCT_PARAM_COUNT, "2", 1, 14},
              [MAGNITUDE] = {"magnitude", OCT_PARAM_COUNT, "9", 0, MAGNITUDE_MAX}},
    .random = true,
    .bytes = true,
    .run = run_rand_augment,
};
