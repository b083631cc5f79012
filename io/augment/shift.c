/* Moves the sample along its height and width, such as a sound in time. */
#include "io/augment/geometry.h"

enum { H, W };

/* Draws a whole number of pixels, up to this share of the side either way. */
static int64_t steps(oct_dice *dice, int64_t side, double share)
{
    const int64_t most = (int64_t)((double)side * share);
    return oct_dice_below(dice, 2 * most + 1) - most;
}

static oct_status run_shift(const oct_transform_call *call, oct_image *image, oct_image *map)
{
    oct_box box = {.h = image->h, .w = image->w};
    box.top = steps(call->dice, image->h, call->value[H].from);
    box.left = steps(call->dice, image->w, call->value[W].from);
    return oct_geometry_crop(image, map, call->spare, &box, call->mean);
}

const oct_transform oct_transform_shift = {
    .name = "shift",
    .help = "moves by up to these shares of height and width either way; data.mean comes in",
    .param = {[H] = {"h", OCT_PARAM_REAL, "0", 0, 1}, [W] = {"w", OCT_PARAM_REAL, "0", 0, 1}},
    .random = true,
    .run = run_shift,
};
