/* TensorFlow Lite's reference kernels, which are those of TensorFlow Lite for Microcontrollers (TFLM) and, bit for bit,
 * of CMSIS-NN: every sum becomes a code by a whole multiplier of 31 bits and a shift, and both round
 * (quant/rounding/rounding.h). quant/target/README.md has the formulas. Files are those of the target tflite; what
 * runs them rounds otherwise. */
#include "quant/target/target.h"

static const char *const no_ops[] = {"softmax", NULL};
static const char *const float_outputs[] = {NULL};

static const char *const fixed_functions[] = {"sigmoid", "tanh", NULL};

const oct_target oct_target_tflm = {
    .name = "tflm",
    .help = "TFLM, CMSIS-NN, TFLite's reference kernels: s8, multipliers of 31 bits, two roundings",
    .requantizer = OCT_REQUANT_DOUBLE,
    .unsigned_codes = true,
    .zero_points = true,
    .affine = "asymmetric",
    .quotient = true,
    .pools_codes = true,
    .no_fusions = oct_adding_fusions,
    .no_ops = no_ops,
    .no_linear_resize =
        "it resizes linearly with weights of 1/1024 a side, and only to the nearest here",
    .refuses_uneven_average = oct_tflite_refuses_average,
    .float_outputs = float_outputs,
    .fixed_functions = fixed_functions,
    .max_channels = 65536,
    .codes = "s8, any zero point, -128 where values are >= 0 (u8 from 0 in Octet's own files: 128 "
             "more); weights s8 per output channel; x / scale of the input",
    .rounding =
        "31-bit multiplier and shift of the double s_x * s_w / s_y: the high half of twice the "
        "product half up, then the shift half away from 0; sums in three such products after a "
        "shift of 20; averages of codes, halves away from 0; sigmoid and tanh in fixed point, "
        "scales 1/256 "
        "and 1/128; resizing to the nearest only",
    .refused =
        "averages of fewer positions at the edges of strided windows (count_include_pad off), "
        "ceil and linear resizing stay float; codes of 16 bits are an error of prepare; the last "
        "layer keeps codes",
    .runs = "TFLM with its reference kernels or CMSIS-NN's (without CMSIS_NN_USE_SINGLE_ROUNDING), "
            "and the runtime of Octet",
    .proof = "gemmlowp's own fixed point, code for code (tests/gemmlowp); values of TFLite 2.9's "
             "own kernels; the C form on x86 and on an emulated Cortex-M",
};
