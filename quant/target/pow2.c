/* An accelerator without multipliers behind its accumulators: all scales are powers of two and
 * requantizing is a rounding shift; codes are symmetric around their middle; no adder reads another
 * tensor while a convolution writes its own. */
#include "quant/target/target.h"

static const char *const no_fusions[] = {"conv_bn_add_relu", "conv_bn_add_relu6", "conv_bn_add",
                                         "conv_add_relu",    "conv_add_relu6",    "conv_add",
                                         "linear_add_relu",  "linear_add",        NULL};

const oct_target oct_target_pow2 = {
    .name = "pow2",
    .help = "symmetric signed codes, scales of powers of two, shift requantizer, no fused add",
    .requantizer = OCT_REQUANT_SHIFT,
    .no_fusions = no_fusions,
    .max_channels = 2048,
};
