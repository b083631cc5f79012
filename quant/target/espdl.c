/* ESP-DL on the ESP32-S3 and on the ESP32-P4, by the published C reference of its operators (dl/base, dl/tool) and by
 * the rules of ESP-PPQ, which makes its files. quant/target/README.md has the formulas, and what of the chips they do
 * not say: ESP-DL does not run here.
 *
 * All scales are powers of two and zero points 0, so sums become codes by shifts; the chips differ in how these round,
 * in the bits of a sum and in whether each channel of weights has a scale. Inputs and output of a sum have one scale,
 * so it only saturates. */
#include "quant/target/target.h"

static const char *const no_ops[] = {"softmax", "prelu", NULL};
static const char *const one_scale[] = {"add", "sub", NULL};
static const char *const float_outputs[] = {NULL};
static const char *const layers[] = {"conv2d", "conv_transpose2d", "linear", NULL};

/* What both chips have. */
#define ESPDL                                                                                      \
    .no_fusions = oct_adding_fusions, .no_ops = no_ops, .one_scale = one_scale,                    \
    .float_outputs = float_outputs, .max_channels = 65536,                                         \
    .no_linear_resize = "it resizes linearly in floats",                                           \
    .no_uneven_average = "it divides by all positions of a window, also at the edges; set "        \
                         "count_include_pad and leave ceil off",                                   \
    .refused = "a batch norm that follows no convolution, linear resizing, softmax, PReLU by "     \
               "channels, and averages of fewer positions at the edges stay float; codes of 16 "   \
               "bits and free zero points are errors of prepare; the last layer keeps codes",      \
    .proof = "values of the published formulas, computed in whole numbers by a script of its "     \
             "own; certificate in the model file, as x86; no such chip was at hand"

const oct_target oct_target_espdl_s3 = {
    ESPDL,
    .name = "espdl-s3",
    .help = "ESP-DL on the ESP32-S3: s8, scales of powers of two, one a layer, shifts half up",
    .requantizer = OCT_REQUANT_SHIFT_20,
    .pools_half_up = true,
    .per_tensor = layers,
    .codes =
        "s8 around 0 (u8 around 128 in Octet's own files); weights s8, one scale a layer; every "
        "scale is a power of two; one for both inputs and the output of a sum",
    .rounding = "sums cut to 20 bits, biases too; arithmetic shift, half up; averages half up",
    .runs =
        "the runtime of Octet, as a model of ESP-DL's C reference: that the chip also saturates "
        "within a sum of more than 20 bits is not emulated",
};

const oct_target oct_target_espdl_p4 = {
    ESPDL,
    .name = "espdl-p4",
    .help = "ESP-DL on the ESP32-P4: s8, scales of powers of two, by channel, shifts half to even",
    .requantizer = OCT_REQUANT_SHIFT_EVEN,
    .codes =
        "s8 around 0 (u8 around 128 in Octet's own files); weights s8 per output channel; every "
        "scale is a power of two; one for both inputs and the output of a sum",
    .rounding = "arithmetic shift, half to even; averages half to even",
    .runs = "the runtime of Octet, as a model of ESP-DL's C reference",
};
