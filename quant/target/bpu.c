/* Horizon's BPU of march Bayes, emulated: symmetric codes of 8 or 16 bits, and a multiplier of 15 bits between two
 * shifts after each sum, by what its front end publishes. What its compiler, which is not public, makes of a model may
 * have other shifts, so nothing here promises the bits of a device. quant/target/README.md has the formulas, and what is
 * assumed where nothing is published. */
#include "quant/target/target.h"

static const char *const no_ops[] = {"softmax", NULL};

const oct_target oct_target_bpu = {
    .name = "bpu",
    .help = "an emulation of Horizon's BPU (Bayes): s8 or s16, multiplier of 15 bits, two shifts",
    .requantizer = OCT_REQUANT_Q15,
    .wide_codes = true,
    .no_fusions = oct_adding_fusions,
    .no_ops = no_ops,
    .no_linear_resize = "how it mixes pixels is not published",
    .no_uneven_average =
        "it divides by all positions of a window, also at the edges; set count_include_pad "
        "and leave ceil off",
    .max_channels = 2048,
    .codes =
        "s8 or s16 around 0 (u8 around 128, u16 around 32768 in Octet's own files); weights s8 "
        "per output channel",
    .rounding =
        "a shift, 16 bits, a multiplier of 15 bits, a shift: halves up; averages and products "
        "so; of two addends the larger scale is shifted, the other one has 15 bits",
    .refused =
        "softmax, linear resizing, and averages of fewer positions at the edges stay float; free "
        "zero points are an error of prepare",
    .runs = "the runtime of Octet, as an emulation of the BPU from public facts: no device has "
            "confirmed it, and its compiler may choose other shifts",
    .proof = "values of the published formulas, computed in whole numbers by a script of its own; "
             "certificate in the model file, as x86",
};
