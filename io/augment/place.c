#include "io/augment/place.h"

#include "io/augment/real.h"

#include <math.h>

bool oct_box_draw(oct_dice *dice, const oct_image *image, const oct_param_value *scale,
                  const oct_param_value *ratio, oct_box *box)
{
    enum { TRIES = 10 };
    const double area = (double)image->h * (double)image->w;
    const double low = oct_real_log(ratio->from), high = oct_real_log(ratio->to);
    for (int i = 0; i < TRIES; i++) {
        const double share = oct_dice_real(dice, scale->from, scale->to) * area;
        const double shape = oct_real_exp(oct_dice_real(dice, low, high));
        const int64_t h = (int64_t)floor(sqrt(share / shape) + 0.5);
        const int64_t w = (int64_t)floor(sqrt(share * shape) + 0.5);
        if (h < 1 || w < 1 || h > image->h || w > image->w) continue;
        *box = (oct_box){.h = h, .w = w};
        box->top = oct_dice_below(dice, image->h - h + 1);
        box->left = oct_dice_below(dice, image->w - w + 1);
        return true;
    }
    return false;
}

/* Halves a difference as torchvision does: the remainder goes to the even side; of a negative one,
 * which pads, to the end. */
static int64_t half_of(int64_t difference)
{
    const int64_t half = difference / 2;
    return difference > 0 && difference % 2 == 1 ? half + half % 2 : half;
}

oct_box oct_box_centre(const oct_image *image, int64_t h, int64_t w)
{
    return (oct_box){half_of(image->h - h), half_of(image->w - w), h, w};
}

void oct_size_of(const oct_param_value *value, int64_t *h, int64_t *w)
{
    *h = (int64_t)value->from;
    *w = value->to > 0 ? (int64_t)value->to : *h;
}

void oct_fit_size(const oct_param_value *value, oct_image *shape, char flaw[OCT_AUGMENT_FLAW])
{
    (void)flaw;
    oct_size_of(&value[0], &shape->h, &shape->w);
}
