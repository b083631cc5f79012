/* How a layer's scales, batch norm and bias become what the integer kernels want, channel by channel.
 * The one routine for training, evaluation and convert.
 *
 * y = gain * (s_x * s_w * acc) + shift, where gain = gamma / sigma and shift = beta - mean * gain
 * (1 and the bias without batch norm). Weight quantization is symmetric, so the gain moves into the
 * scale: the effective weight scale e is that of weights multiplied by the gain, whose largest would be
 * fl(127 * s_w * gain) (its sign is gamma's), and
 *     bias = round_half_even(fl(shift) / (s_x * e)),   multiplier = (s_x * e) / s_y    in fp32.
 * Both e and the bias are those of a layer that has the gain in its weights and fl(shift) as its bias;
 * so a batch norm can be folded into its layer for good without changing a bit (oct_qat_conv_fold).
 *
 * A channel whose weight codes are all 0, or whose bias does not fit in +-2^30 accumulators, of 16-bit
 * inputs +-2^46, of targets that cut sums to n bits +-(2^(n-1) - 1) (gamma is 0 or next to it), is carried by its bias alone: `dead`; its accumulator
 * counts as 0. With one_scale no channel can have a scale of its own, so the bias ends at that limit.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* What is the same for all channels of a call; scales finite and > 0. */
typedef struct oct_fold_rules {
    float input_scale, output_scale; /* output_scale is 1 for a float output */
    bool wide;                       /* the input has 16 bits */
    bool pow2;                       /* all scales are powers of two */
    int sum_bits;                    /* of biases, as of sums; 0: they end elsewhere */
    bool one_scale;                  /* all channels have that of the weights */
} oct_fold_rules;

/* A channel; finite. With pow2 its gain is 1. */
typedef struct oct_fold_channel {
    float weight_scale;
    double gain, shift;
    bool silent; /* its weight codes are all 0 */
} oct_fold_channel;

typedef struct oct_fold {
    float weight_scale; /* effective; negative with gamma */
    int64_t bias;       /* in accumulators, zero point not included */
    float multiplier;
    bool dead;
} oct_fold;

/* Return the largest weight of a channel after its gain is moved into it, and the scale that it then has. */
float oct_folded_absmax(float weight_scale, double gain);
float oct_folded_scale(float weight_scale, double gain);

oct_fold oct_fold_of(const oct_fold_rules *rules, const oct_fold_channel *channel);
