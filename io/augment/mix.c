/* A sample needs the other one as it was before. So a circle is gone round: each sample takes from the next
 * one, which changes only afterwards, and the last one from a copy of the first. */
#include "io/augment/augment.h"

#include <math.h>
#include <string.h>

/* What a sample draws: the share of its own label, and for CutMix the box that the other one fills. */
typedef struct mixture {
    float share;
    int64_t top, left, bottom, right;
} mixture;

static int64_t clamp_to_side(int64_t value, int64_t side)
{
    return value < 0 ? 0 : value > side ? side : value;
}

/* Draws whether a sample is blended or gets a box, and which: as torchvision's CutMix does; the share is then that of
 * the pixels that stay. */
static mixture draw_mixture(const oct_mixing *mixing, const oct_mix_leaf *leaf, int64_t sample,
                            bool *box)
{
    oct_dice dice = oct_dice_of(&(oct_draw){leaf->first.seed, leaf->first.index + (uint64_t)sample},
                                OCT_DICE_MIX);
    const bool first = oct_dice_chance(&dice, 0.5);
    *box = mixing->cutmix > 0 && (first || mixing->mixup <= 0);
    const double share = oct_dice_beta(&dice, *box ? mixing->cutmix : mixing->mixup);
    if (!*box) return (mixture){.share = (float)share};
    const double half = 0.5 * sqrt(1 - share);
    const int64_t h = (int64_t)(half * (double)leaf->h), w = (int64_t)(half * (double)leaf->w);
    const int64_t y = oct_dice_below(&dice, leaf->h), x = oct_dice_below(&dice, leaf->w);
    mixture r = {1, clamp_to_side(y - h, leaf->h), clamp_to_side(x - w, leaf->w),
                 clamp_to_side(y + h, leaf->h), clamp_to_side(x + w, leaf->w)};
    const int64_t pixels = (r.bottom - r.top) * (r.right - r.left);
    r.share = (float)(1 - (double)pixels / (double)(leaf->h * leaf->w));
    return r;
}

static void blend(float *to, const float *other, int64_t n, float share)
{
    const float rest = 1 - share;
    for (int64_t i = 0; i < n; i++)
        to[i] = share * to[i] + rest * other[i];
}

/* Mixes a sample in place with the image and values of another one: in a box of it (CutMix) or everywhere (mixup). */
static void mix_one(const oct_mixing *mixing, const oct_mix_leaf *leaf, int64_t sample,
                    const float *image, const float *values)
{
    const int64_t numel = leaf->h * leaf->w * leaf->c;
    bool box;
    float *to = leaf->images + sample * numel;
    const mixture r = draw_mixture(mixing, leaf, sample, &box);
    if (box) {
        const int64_t row = leaf->w * leaf->c, begin = r.left * leaf->c;
        const size_t bytes = (size_t)((r.right - r.left) * leaf->c) * sizeof(float);
        for (int64_t y = r.top; y < r.bottom; y++)
            memcpy(to + y * row + begin, image + y * row + begin, bytes);
    } else
        blend(to, image, numel, r.share);
    blend(leaf->values + sample * leaf->classes, values, leaf->classes, r.share);
}

/* Sample i takes from sample (i + further) mod n, along cycles: `start` begins one, whose last sample takes from a
 * copy of the first. */
void oct_mix(const oct_mixing *mixing, const oct_mix_leaf *leaf)
{
    const int64_t n = leaf->samples, numel = leaf->h * leaf->w * leaf->c;
    float *spare_values = leaf->spare + numel;
    if (n < 2 || (mixing->mixup <= 0 && mixing->cutmix <= 0)) return;
    oct_dice dice = oct_dice_of(&leaf->first, OCT_DICE_LEAF);
    const int64_t further = 1 + oct_dice_below(&dice, n - 1);
    for (int64_t mixed = 0, start = 0; mixed < n; start++) {
        memcpy(leaf->spare, leaf->images + start * numel, (size_t)numel * sizeof(float));
        memcpy(spare_values, leaf->values + start * leaf->classes,
               (size_t)leaf->classes * sizeof(float));
        int64_t at = start;
        for (int64_t next; (next = (at + further) % n) != start; at = next, mixed++)
            mix_one(mixing, leaf, at, leaf->images + next * numel,
                    leaf->values + next * leaf->classes);
        mix_one(mixing, leaf, at, leaf->spare, spare_values);
        mixed++;
    }
}
