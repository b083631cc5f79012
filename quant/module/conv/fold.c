/* Folding of one channel; see the header. */
#include "quant/module/conv/fold.h"

#include "quant/rounding/qparams.h"

#include <math.h>

float oct_folded_absmax(float weight_scale, double gain)
{
    return (float)(127.0 * (double)weight_scale * gain);
}

float oct_folded_scale(float weight_scale, double gain)
{
    return oct_folded_absmax(weight_scale, gain) / 127.0f;
}

/* Any representation of the bias will do whose scale has the bias's own precision: a power of two
 * times that scale. */
static oct_fold fold_dead(const oct_fold_rules *rules, float weight_scale, float shift)
{
    const double steps = 1 << 20;
    oct_fold fold = {.dead = true};
    fold.weight_scale = (float)(fabs((double)shift) / steps / (double)rules->input_scale);
    if (fold.weight_scale > 0 && rules->pow2) {
        fold.weight_scale = oct_pow2_ceil(fold.weight_scale);
        const float acc_scale = rules->input_scale * fold.weight_scale;
        fold.bias = (int64_t)nearbyint((double)shift / (double)acc_scale);
    } else if (fold.weight_scale > 0) {
        fold.bias = shift > 0 ? (int64_t)steps : -(int64_t)steps;
    } else { /* nothing to carry, but a scale is positive */
        fold.weight_scale = weight_scale;
    }
    fold.multiplier = rules->input_scale * fold.weight_scale / rules->output_scale;
    return fold;
}

oct_fold oct_fold_of(const oct_fold_rules *rules, const oct_fold_channel *channel)
{
    const double limit = rules->wide       ? 0x1p46
                         : rules->sum_bits ? ldexp(1, rules->sum_bits - 1) - 1
                                           : 0x1p30;
    const float shift = (float)channel->shift;
    oct_fold fold = {.weight_scale = oct_folded_scale(channel->weight_scale, channel->gain)};
    const float acc_scale = rules->input_scale * fold.weight_scale;
    double bias = (double)shift / (double)acc_scale; /* inf or NaN when the scale is 0 */
    if (rules->one_scale)
        bias = bias > limit ? limit : bias >= -limit ? bias : shift < 0 ? -limit : 0;
    else if (channel->silent || !(fabs(bias) <= limit))
        return fold_dead(rules, channel->weight_scale, shift);
    fold.bias = (int64_t)nearbyint(bias);
    fold.multiplier = acc_scale / rules->output_scale;
    return fold;
}
