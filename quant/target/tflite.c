/* TFLite with its XNNPACK delegate: what the kernels of both compute of an int8 model, found out by values
 * (tests/golden/make_tflite_golden.py). quant/target/README.md has the form that each step must have in a file.
 *
 * A sum of a convolution becomes a code as on x86, with the same bits; a signed code there is ours less 128. What
 * differs: sums have multipliers of 21 bits from ratios in float, products a factor in float, averages are those
 * of the codes themselves, and a convolution adds nothing before it rounds, and returns no floats. */
#include "quant/target/target.h"

static const char *const no_ops[] = {"softmax", NULL};
static const char *const float_outputs[] = {NULL};

/* Its pool pads so that the output has as many positions as strides begin in the plane, and counts no padding. That is
 * a symmetric padding of a stride of 1 and an odd kernel; of other strides it depends on the size of the plane. */
static bool pads_unlike_tflite(const oct_pool_geometry *g)
{
    return g->stride_h != 1 || g->stride_w != 1 || g->pad_top != g->pad_bottom ||
           g->pad_left != g->pad_right || 2 * g->pad_top + 1 != g->kernel_h ||
           2 * g->pad_left + 1 != g->kernel_w;
}

const char *oct_tflite_refuses_average(const oct_pool_geometry *g)
{
    if (g->ceil) return "its windows end within the padding; leave ceil off";
    if (pads_unlike_tflite(g))
        return "it averages fewer positions at the edges for a stride of 1 and an odd kernel with "
               "half of it as padding alone; set count_include_pad";
    return NULL;
}

const oct_target oct_target_tflite = {
    .name = "tflite",
    .help = "TFLite with XNNPACK: s8 activations, s8 weights per channel, float multiplier",
    .requantizer = OCT_REQUANT_FLOAT,
    .unsigned_codes = true,
    .zero_points = true,
    .affine = "asymmetric",
    .float_ratios = true,
    .pools_codes = true,
    .no_fusions = oct_adding_fusions,
    .no_ops = no_ops,
    .refuses_uneven_average = oct_tflite_refuses_average,
    .float_outputs = float_outputs,
    .max_channels = 65536,
    .codes = "s8, any zero point, -128 where values are >= 0 (u8 from 0 in Octet's own files: 128 "
             "more); "
             "weights s8 per output channel",
    .rounding =
        "float multiplier (s_x * s_w) / s_y, half to even; sums in fixed point of 21 bits, half "
        "up; averages of codes, halves away from 0",
    .refused =
        "averages of fewer positions at the edges of strided windows (count_include_pad off) and "
        "ceil stay float; codes of 16 bits are an error of prepare; the last layer keeps codes",
    .runs = "TFLite's interpreter with the XNNPACK delegate, and the runtime of Octet",
    .proof =
        "values of TFLite 2.9 with XNNPACK for every form of quant/target/README.md, with AVX-512",
};
