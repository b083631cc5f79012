/* How a convolution's scales, batch norm and bias become what the integer kernel wants, channel by
 * channel. The one routine for training, evaluation and convert.
 *
 * y = gain * (s_x * s_w * acc) + shift, where gain = gamma / sigma and shift = beta - mean * gain
 * (1 and the bias without batch norm). Weight quantization is symmetric, so the gain moves into the
 * scale: effective weight scale e = s_w * gain (its sign is gamma's), and
 *     bias = round_half_even(shift / (s_x * e)),   multiplier = (s_x * e) / s_y    in fp32.
 *
 * A channel whose bias does not fit in +-2^30 accumulators (gamma is 0 or next to it) is carried by
 * its bias alone: `dead`; its accumulator counts as 0.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct oct_fold {
    float weight_scale; /* effective; negative with gamma */
    int32_t bias;       /* in accumulators, zero point not included */
    float multiplier;
    bool dead;
} oct_fold;

/* All arguments finite, input_scale and output_scale > 0. output_scale is 1 for a float output. */
oct_fold oct_fold_channel(float input_scale, float weight_scale, double gain, double shift,
                          float output_scale);
