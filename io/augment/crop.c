/* Cuts out a part of the sample: in the middle, at random, at random with a random size, or the sample moved. */
#include "io/augment/geometry.h"

#include <math.h>

/* The parameters: SIZE first, then those of each transform. */
enum { SIZE, SHARE = 1, PADDING = 1, SCALE = 1, RATIO };

/* Computes the size of a centre crop: the given size, or a share of the largest part of the image in its shape. */
static void size_of_center_crop(const oct_param_value *value, const oct_image *image, int64_t *h,
                                int64_t *w)
{
    const double share = value[SHARE].from;
    oct_size_of(&value[SIZE], h, w);
    if (share == 0) return;
    const double scale = share * fmin((double)image->h / (double)*h, (double)image->w / (double)*w);
    *h = (int64_t)fmax(1, rint(scale * (double)*h));
    *w = (int64_t)fmax(1, rint(scale * (double)*w));
}

/* Computes the size of the cropped samples, where that of the images is known (above 0) or does not matter. */
static void fit_center_crop(const oct_param_value *value, oct_image *shape,
                            char flaw[OCT_AUGMENT_FLAW])
{
    const oct_image before = *shape;
    if (value[SHARE].from == 0)
        oct_fit_size(value, shape, flaw);
    else if (before.h > 0)
        size_of_center_crop(value, &before, &shape->h, &shape->w);
}

/* Halves a difference as torchvision's CenterCrop does: the remainder goes to the even side; of a negative one,
 * which pads, to the end. */
static int64_t half_of(int64_t difference)
{
    const int64_t half = difference / 2;
    return difference > 0 && difference % 2 == 1 ? half + half % 2 : half;
}

static oct_status run_center_crop(const oct_transform_call *call, oct_image *image, oct_image *map)
{
    oct_box box;
    size_of_center_crop(call->value, image, &box.h, &box.w);
    box.top = half_of(image->h - box.h);
    box.left = half_of(image->w - box.w);
    return oct_geometry_crop(image, map, call->spare, &box, call->mean);
}

const oct_transform oct_transform_center_crop = {
    .name = "center_crop",
    .help = "cuts out the middle; data.mean where the image is smaller. share above 0: of the "
            "largest part of the size's shape, which data.size then resizes: 0.875 is ImageNet's "
            "256 to 224",
    .param = {[SIZE] = {"size", OCT_PARAM_SIZE, NULL, 1, OCT_IMAGE_SIDE_MAX},
              [SHARE] = {"share", OCT_PARAM_REAL, "0", 0, 1}},
    .fit = fit_center_crop,
    .run = run_center_crop,
};

/* Draws where a crop begins along a side padded at both ends (negative: in the padding); centred if it is larger. */
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

/* As torchvision's RandomResizedCrop; where no draw fits, the largest part in the middle whose shape is allowed. */
static oct_box largest_box(const oct_image *image, const oct_param_value *ratio)
{
    int64_t h = image->h, w = image->w;
    const double shape = (double)w / (double)h;
    if (shape < ratio->from) h = (int64_t)floor((double)w / ratio->from + 0.5);
    if (shape > ratio->to) w = (int64_t)floor((double)h * ratio->to + 0.5);
    h = h < 1 ? 1 : h > image->h ? image->h : h;
    w = w < 1 ? 1 : w > image->w ? image->w : w;
    return (oct_box){(image->h - h) / 2, (image->w - w) / 2, h, w};
}

static oct_status run_random_resized_crop(const oct_transform_call *call, oct_image *image,
                                          oct_image *map)
{
    int64_t h, w;
    oct_box box;
    oct_size_of(&call->value[SIZE], &h, &w);
    if (!oct_box_draw(call->dice, image, &call->value[SCALE], &call->value[RATIO], &box))
        box = largest_box(image, &call->value[RATIO]);
    OCT_TRY(oct_geometry_crop(image, map, call->spare, &box, call->mean));
    return oct_geometry_resize(image, map, call->spare, h, w);
}

const oct_transform oct_transform_random_resized_crop = {
    .name = "random_resized_crop",
    .help = "cuts out a part with this share of the area and width over height, and resizes it",
    .param = {[SIZE] = {"size", OCT_PARAM_SIZE, NULL, 1, OCT_IMAGE_SIDE_MAX},
              [SCALE] = {"scale", OCT_PARAM_RANGE, "0.08..1", 1e-4, 1},
              [RATIO] = {"ratio", OCT_PARAM_RANGE, "0.75..1.3333", 0.01, 100}},
    .random = true,
    .fit = oct_fit_size,
    .run = run_random_resized_crop,
};

/* Draws by how many pixels to move, up to this share of the side either way. */
static int64_t draw_shift(oct_dice *dice, int64_t side, double share)
{
    const int64_t most = (int64_t)((double)side * share);
    return oct_dice_below(dice, 2 * most + 1) - most;
}

enum { H, W };

static oct_status run_shift(const oct_transform_call *call, oct_image *image, oct_image *map)
{
    oct_box box = {.h = image->h, .w = image->w};
    box.top = draw_shift(call->dice, image->h, call->value[H].from);
    box.left = draw_shift(call->dice, image->w, call->value[W].from);
    return oct_geometry_crop(image, map, call->spare, &box, call->mean);
}

const oct_transform oct_transform_shift = {
    .name = "shift",
    .help = "moves by up to these shares of height and width either way; data.mean comes in",
    .param = {[H] = {"h", OCT_PARAM_REAL, "0", 0, 1}, [W] = {"w", OCT_PARAM_REAL, "0", 0, 1}},
    .random = true,
    .run = run_shift,
};
