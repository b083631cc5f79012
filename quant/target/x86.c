/* The CPU itself: unsigned byte activations, signed byte weights per output channel, float requantizer
 * with round half to even; every fusion that the kernels have. */
#include "quant/target/target.h"

const oct_target oct_target_x86 = {
    .name = "x86",
    .help = "this CPU: u8 activations, s8 weights per channel, float multiplier, half to even",
    .fused_add_relu = true,
    .fused_relu6 = true,
    .max_channels = 65536,
};
