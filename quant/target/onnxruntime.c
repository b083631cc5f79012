/* ONNX Runtime's CPU provider: what it makes of a QDQ model at its default optimization level, found out by values
 * (tests/golden/make_ort_golden.py). quant/target/README.md has the form that each step must have in a file.
 *
 * A sum of a convolution becomes a code as on x86, with the same bits. What differs: codes are quotients,
 * two addends have one scale (where sums are exact in its float arithmetic on every processor), a product
 * takes its zero_point before it is rounded, and nothing is added to a convolution before it is rounded. Its average
 * pools round sums of floats, so averages are convolutions of constant weights; softmax and linear resizing are
 * floats: they are float fallbacks. */
#include "quant/target/target.h"

static const char *const no_ops[] = {"softmax", NULL};
static const char *const one_scale[] = {"add", "sub", NULL};
static const char *const float_outputs[] = {"linear", NULL};

const oct_target oct_target_onnxruntime = {
    .name = "onnxruntime",
    .help = "ONNX Runtime on CPUs: u8 activations, s8 weights per channel, float multiplier",
    .requantizer = OCT_REQUANT_FLOAT,
    .unsigned_codes = true,
    .zero_points = true,
    .affine = "asymmetric",
    .quotient = true,
    .offset_first = true,
    .pools_convolve = true,
    .no_fusions = oct_adding_fusions,
    .no_ops = no_ops,
    .no_linear_resize = "it resizes linearly in floats, and each version in its own way",
    .no_uneven_average = "it can average as many positions everywhere, not fewer at the edges; set "
                         "count_include_pad",
    .one_scale = one_scale,
    .float_outputs = float_outputs,
    .max_channels = 65536,
    .codes =
        "u8, any zero point, 0 where values are >= 0; weights s8 per output channel; x / scale "
        "of the input, not x times its reciprocal; one scale for both inputs and the output "
        "of a sum",
    .rounding = "float multiplier (s_x * s_w) / s_y, half to even; a product of two tensors gets "
                "its zero point before that; resizing to the nearest only",
    .refused = "averages of fewer positions at the edges (count_include_pad off, ceil) and linear "
               "resizing stay float; codes of 16 bits are an error of prepare; a last convolution "
               "keeps codes",
    .runs = "ONNX Runtime's CPU provider, and the runtime of Octet",
    .proof = "values of ONNX Runtime 1.30 for every form of quant/target/README.md, at its default "
             "optimization level, with AVX-512 VNNI and, emulated, AVX2 and SSE4.1; there with "
             "weights as u8 around 128, since those of s8 saturate without VNNI",
};
