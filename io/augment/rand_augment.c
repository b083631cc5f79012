/* RandAugment: some of fourteen operations at one strength (E. Cubuk et al., 2019), with the ranges that
 * torchvision gives them. */
#include "io/augment/geometry.h"
#include "io/augment/pixel.h"

#include <math.h>

enum { OPS, MAGNITUDE };
enum { MAGNITUDE_MAX = 30 };

/* An operation of the list with its strength: 0 to 1 of its range, of those with two directions -1 to 1. */
typedef struct operation {
    const oct_transform_call *call;
    oct_image *image, *map;
    double strength;
} operation;

static oct_status map_from(const operation *o, const oct_affine *from)
{
    return oct_geometry_affine(o->image, o->map, o->call->spare, from, o->call->mean);
}

static oct_status identity(const operation *o)
{
    (void)o;
    return OCT_OK;
}

static oct_status shear_x(const operation *o)
{
    return map_from(o, &(oct_affine){{1, 0.3 * o->strength, 0, 0, 1, 0}});
}

static oct_status shear_y(const operation *o)
{
    return map_from(o, &(oct_affine){{1, 0, 0, 0.3 * o->strength, 1, 0}});
}

/* The largest step is the paper's: 150 of 331 pixels. Whole pixels, as torchvision rounds them. */
static oct_box moved(const operation *o, double down, double right)
{
    const double most = o->strength * 150.0 / 331.0;
    return (oct_box){(int64_t)(most * down), (int64_t)(most * right), o->image->h, o->image->w};
}

static oct_status translate_x(const operation *o)
{
    const oct_box box = moved(o, 0, (double)o->image->w);
    return oct_geometry_crop(o->image, o->map, o->call->spare, &box, o->call->mean);
}

static oct_status translate_y(const operation *o)
{
    const oct_box box = moved(o, (double)o->image->h, 0);
    return oct_geometry_crop(o->image, o->map, o->call->spare, &box, o->call->mean);
}

static oct_status rotate(const operation *o)
{
    const oct_affine from = oct_affine_rotate(o->image, 30 * o->strength);
    return map_from(o, &from);
}

static float factor_of(const operation *o)
{
    return (float)(1 + 0.9 * o->strength);
}

static oct_status brightness(const operation *o)
{
    oct_pixel_brightness(o->image, factor_of(o));
    return OCT_OK;
}

static oct_status color(const operation *o)
{
    oct_pixel_saturation(o->image, factor_of(o));
    return OCT_OK;
}

static oct_status contrast(const operation *o)
{
    oct_pixel_contrast(o->image, factor_of(o));
    return OCT_OK;
}

static oct_status sharpness(const operation *o)
{
    return oct_pixel_sharpness(o->image, o->call->spare, factor_of(o));
}

static oct_status posterize(const operation *o)
{
    oct_pixel_posterize(o->image, 8 - (int)floor(4 * o->strength + 0.5));
    return OCT_OK;
}

static oct_status solarize(const operation *o)
{
    oct_pixel_solarize(o->image, (int)ceil(255 * (1 - o->strength)));
    return OCT_OK;
}

static oct_status autocontrast(const operation *o)
{
    oct_pixel_autocontrast(o->image);
    return OCT_OK;
}

static oct_status equalize(const operation *o)
{
    oct_pixel_equalize(o->image);
    return OCT_OK;
}

static const struct listed {
    oct_status (*run)(const operation *o);
    bool either_way; /* its strength gets a random sign */
} list[] = {
    {identity, false},     {shear_x, true},   {shear_y, true},    {translate_x, true},
    {translate_y, true},   {rotate, true},    {brightness, true}, {color, true},
    {contrast, true},      {sharpness, true}, {posterize, false}, {solarize, false},
    {autocontrast, false}, {equalize, false},
};

static oct_status run_rand_augment(const oct_transform_call *call, oct_image *image, oct_image *map)
{
    const double strength = call->value[MAGNITUDE].from / MAGNITUDE_MAX;
    for (int i = 0; i < (int)call->value[OPS].from; i++) {
        const struct listed *chosen = &list[oct_dice_below(call->dice, OCT_COUNT(list))];
        const bool negative = oct_dice_chance(call->dice, 0.5) && chosen->either_way;
        const operation o = {call, image, map, negative ? -strength : strength};
        OCT_TRY(chosen->run(&o));
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
