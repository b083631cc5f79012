/* A factor and a bias per channel: a batch norm on its own. `conv` is its plane as a depthwise 1x1
 * convolution, whose weight is 1, or 0 in a channel that is its bias alone, or -1 where the factor is
 * negative. */
#include "quant/program/step_conv_impl.h"

static oct_status check_affine(const oct_program *program, const oct_step *step)
{
    const oct_conv_shape *s = &step->conv.shape;
    const bool wide = oct_step_input(program, step, 0)->dtype == OCT_U16;
    const int64_t limit = INT64_C(1) << (wide ? 46 : 30);
    OCT_TRY(oct_check_window(s, false, 0));
    OCT_TRY(oct_check_plane(program, step, s));
    OCT_TRY(oct_check_weights(step));
    OCT_CHECK(s->groups == s->in_c && s->groups == s->out_c && s->kernel_h == 1 &&
                  s->kernel_w == 1 && s->stride_h == 1 && s->stride_w == 1,
              OCT_DATA, "it is not a depthwise 1x1 convolution of stride 1");
    for (int64_t c = 0; c < s->out_c; c++) {
        OCT_CHECK(step->conv.weight[c] >= -1 && step->conv.weight[c] <= 1, OCT_DATA,
                  "weight %lld is not -1, 0 or 1", (long long)c);
        OCT_CHECK(step->conv.bias[c] >= -limit && step->conv.bias[c] <= limit, OCT_DATA,
                  "bias %lld is not within %d bits", (long long)c, wide ? 46 : 30);
    }
    return oct_epilogue_check(program, step);
}

static const oct_step_field fields[] = {OCT_CONV_FIELDS};

const oct_step_type oct_step_affine = {.name = "affine",
                                       .inputs = {1, 1},
                                       .weights = true,
                                       OCT_STEP_FIELDS(fields),
                                       OCT_STEP_ARRAYS(oct_conv_arrays),
                                       .check = check_affine,
                                       .packed_bytes = oct_conv_packed_bytes,
                                       .pack = oct_conv_pack,
                                       .scratch_bytes = oct_conv_scratch_bytes,
                                       .run = oct_conv_run};
