/* The CPU itself: unsigned codes of one or two bytes, signed byte weights per output channel, float
 * requantizer with round half to even; every fusion and every op that the kernels have. */
#include "quant/target/target.h"

const oct_target oct_target_x86 = {
    .name = "x86",
    .help =
        "this CPU: u8 or u16 activations, s8 weights per channel, float multiplier, half to even",
    .requantizer = OCT_REQUANT_FLOAT,
    .unsigned_codes = true,
    .wide_codes = true,
    .zero_points = true,
    .max_channels = 65536,
    .codes = "u8 or u16, zero point 0 where values are >= 0, otherwise the middle or any; weights "
             "s8 per output "
             "channel",
    .rounding =
        "float multiplier (s_x * s_w) / s_y, half to even; sums in fixed point of 20 bits, half up",
    .refused = "nothing that has a quantized form",
    .runs = "the runtime of Octet, on x86 and ARM",
    .proof = "certificate in the model file: training evaluation against the int8 model, every "
             "logit; kernels of all "
             "instruction sets against the scalar reference",
};
