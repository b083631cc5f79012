/* Cuts out a part of fixed size at random. */
#include "io/augment/geometry.h"

enum { SIZE, PADDING };

/* Where the part begins along one side; centred when the padded image is smaller. */
static int64_t draw_begin(oct_dice *dice, int64_t side, int64_t size, int64_t padding)
{
    const int64_t choices = side + 2 * padding - size + 1;
    const uint32_t word = oct_dice_word(dice);
    if (choices < 1) return (side - size) / 2;
    return (int64_t)(((uint64_t)word * (uint64_t)choices) >> 32) - padding;
}

static oct_status run_random_crop(const oct_transform_call *call, oct_image *image, oct_image *map)
{
    oct_box box;
    const int64_t padding = (int64_t)call->value[PADDING].from;
    oct_size_of(&call->value[SIZE], &box.h, &box.w);
    box.top = draw_begin(call->dice, image->h, box.h, padding);
    box.left = draw_begin(call->dice, image->w, box.w, padding);
    return oct_geometry_crop(image, map, call->spare, &box, call->mean);
}

const oct_transform oct_transform_random_crop = {
    .name = "random_crop",
    .help = "cuts out a part at random, from the image padded with data.mean on all sides",
    .param = {[SIZE] = {"size", OCT_PARAM_SIZE, NULL, 1, OCT_IMAGE_SIDE_MAX},
              [PADDING] = {"padding", OCT_PARAM_COUNT, "0", 0, 4096}},
    .random = true,
    .fit = oct_fit_size,
    .run = run_random_crop,
};
