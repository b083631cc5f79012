/* Folding of one channel; see the header. */
#include "quant/module/fold.h"

#include <math.h>

oct_fold oct_fold_channel(float input_scale, float weight_scale, double gain, double shift,
                          float output_scale)
{
    const double limit = 1 << 30;
    oct_fold fold = {.weight_scale = (float)((double)weight_scale * gain)};
    float acc_scale = input_scale * fold.weight_scale;
    double bias = shift / (double)acc_scale; /* inf or NaN when the scale is 0 */
    if (fabs(bias) <= limit) {
        fold.bias = (int32_t)nearbyint(bias);
    } else {
        /* Any representation of the bias will do; 20 bits of it lose nothing in 8-bit codes. */
        const double steps = 1 << 20;
        fold.dead = true;
        fold.weight_scale = (float)(fabs(shift) / steps / (double)input_scale);
        fold.bias = shift > 0 ? (int32_t)steps : -(int32_t)steps;
        if (!(fold.weight_scale > 0)) { /* nothing to carry, but a scale is positive */
            fold.weight_scale = weight_scale;
            fold.bias = 0;
        }
        acc_scale = input_scale * fold.weight_scale;
    }
    fold.multiplier = acc_scale / output_scale;
    return fold;
}
