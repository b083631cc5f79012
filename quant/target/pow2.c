/* An accelerator without multipliers after its accumulators: all scales are powers of two and
 * requantizing is a rounding shift; codes are symmetric around their middle; no adder reads another
 * tensor while a convolution writes its own. */
#include "quant/target/target.h"

const oct_target oct_target_pow2 = {
    .name = "pow2",
    .help = "symmetric signed codes, scales of powers of two, shift requantizer, no fused add",
    .requantizer = OCT_REQUANT_SHIFT,
    .no_fusions = oct_adding_fusions,
    .max_channels = 2048,
    .codes = "u8 around 128; weights s8 per output channel; every scale is a power of two",
    .rounding = "arithmetic shift, half up",
    .refused =
        "a batch norm that follows no convolution stays float; codes of 16 bits and free zero "
        "points are errors of prepare",
    .runs = "the runtime of Octet, as a model of hardware that only shifts",
    .proof = "certificate in the model file, as x86; no such hardware was at hand",
};
