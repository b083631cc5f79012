/* The steps conv, conv_float and affine: convolutions, transposed ones and linear layers, with or without a second
 * addend, that end in codes or in float; and a factor and a bias per channel, which is a batch norm on its own. The shape
 * of the latter is its plane as that of a depthwise 1x1 convolution, whose weight is 1, or 0 in a channel that is its
 * bias alone, or -1 where the factor is negative. */
#include "quant/program/step.h"

#include "core/base/mem.h"
#include "core/base/int_math.h"
#include "core/tensor/conv_shape.h"

#include <math.h>

static const int64_t max_weight_bytes = INT64_C(1) << 31; /* of one step */
static const int64_t wide_limit = INT64_C(1) << 47;

/* Checks groups, the presence of all arrays, their size and that scales are finite. */
static oct_status check_weights(const oct_step *step)
{
    const oct_conv_shape *s = &step->conv.shape;
    OCT_CHECK(s->groups >= 1 && s->in_c % s->groups == 0 && s->out_c % s->groups == 0, OCT_DATA,
              "%d groups do not divide %lld input and %lld output channels", s->groups,
              (long long)s->in_c, (long long)s->out_c);
    OCT_CHECK(step->conv.weight && step->conv.bias && step->conv.multiplier &&
                  step->conv.weight_scale,
              OCT_DATA, "weights, biases, multipliers or weight scales are missing");
    /* Each factor is at most 2^20, so no product overflows. Depthwise kernels are packed with the zeros of their
     * dilation. */
    const int64_t columns =
        oct_conv_is_depthwise(s) ? oct_conv_extent(s->kernel_w, s->dilation_w) : s->kernel_w;
    const int64_t taps = s->kernel_h * columns * (s->in_c / s->groups);
    OCT_CHECK(taps <= max_weight_bytes / s->out_c, OCT_DATA, "its weights take more than 2 GiB");
    for (int64_t c = 0; c < s->out_c; c++) {
        OCT_CHECK(isfinite(step->conv.multiplier[c]), OCT_DATA,
                  "the multiplier of channel %lld is not finite", (long long)c);
        OCT_CHECK(isfinite(step->conv.weight_scale[c]) && step->conv.weight_scale[c] > 0.0f,
                  OCT_DATA, "the weight scale of channel %lld is not a positive finite number",
                  (long long)c);
    }
    return OCT_OK;
}

/* Checks what is done with the sums: multipliers, second addend, bounds. */
static oct_status check_epilogue(const oct_program *program, const oct_step *step)
{
    const oct_rounding_row *rounding = oct_rounding_of(program->requantizer);
    const bool shifts = oct_requantizer_shifts(program->requantizer);
    for (int64_t c = 0; shifts && c < step->conv.shape.out_c; c++) {
        int exponent;
        OCT_CHECK(frexpf(step->conv.multiplier[c], &exponent) == 0.5f, OCT_DATA,
                  "multiplier %lld is not a power of two, but the program requantizes by shifts",
                  (long long)c);
    }
    OCT_CHECK(!rounding->bytes_only || oct_step_input(program, step, 0)->dtype == OCT_U8, OCT_DATA,
              "%s, which is for 8-bit codes", rounding->bytes_only);
    if (step->num_inputs > 1) {
        OCT_CHECK(rounding->adds, OCT_DATA,
                  "it has a second addend, which only a program that requantizes in float can add");
        OCT_TRY(oct_check_same_shape(program, step, 1));
        OCT_CHECK(isfinite(step->conv.addend_multiplier) && step->conv.addend_multiplier > 0.0f,
                  OCT_DATA, "the multiplier of its second addend is not a positive finite number");
    }
    if (oct_step_output(program, step)->dtype != OCT_F32)
        return oct_check_bounds(program, step, step->conv.lo, step->conv.hi);
    OCT_CHECK(step->conv.lo == 0 &&
                  (step->conv.hi == 0 || step->conv.hi == 6 || step->conv.hi == INT32_MAX),
              OCT_DATA, "bounds %d to %d are neither those of relu nor of relu6", step->conv.lo,
              step->conv.hi);
    return OCT_OK;
}

/* Whether the sums of channel c stay below the limit with these codes. */
static bool sums_stay_within(const oct_step *step, int64_t c, int64_t bias, oct_qparams q,
                             int64_t limit)
{
    return bias >= -limit && bias <= limit &&
           oct_qconv_bound(&step->conv.shape, step->conv.weight, c, bias, q.qmin, q.qmax) < limit;
}

/* Checks a convolution, whose sums must stay within 32 bits, of 16-bit codes within 48. */
static oct_status check_conv(const oct_program *program, const oct_step *step)
{
    const oct_conv_shape *s = &step->conv.shape;
    const oct_value *in = oct_step_input(program, step, 0);
    const bool wide = in->dtype == OCT_U16;
    const oct_qparams byte = {.qmax = 255};
    OCT_TRY(oct_check_window(s, false, OCT_WINDOW_MAX));
    OCT_TRY(oct_check_step_shape(program, step, s));
    OCT_TRY(check_weights(step));
    const int64_t limit = INT64_C(1) << 31;
    for (int64_t c = 0; c < s->out_c; c++) {
        const int64_t bias = step->conv.bias[c];
        OCT_CHECK(wide || sums_stay_within(step, c, bias, in->q, limit), OCT_DATA,
                  "the sums of channel %lld can leave 32 bits", (long long)c);
        OCT_CHECK(!wide || (sums_stay_within(step, c, 0, byte, limit) &&
                            sums_stay_within(step, c, bias, in->q, wide_limit)),
                  OCT_DATA, "the sums of channel %lld can leave 48 bits", (long long)c);
    }
    return check_epilogue(program, step);
}

/* Checks a factor and a bias per channel, whose sums are a code times 1, 0 or -1 and a bias. */
static oct_status check_affine(const oct_program *program, const oct_step *step)
{
    const oct_conv_shape *s = &step->conv.shape;
    const bool wide = oct_step_input(program, step, 0)->dtype == OCT_U16;
    const int64_t limit = INT64_C(1) << (wide ? 46 : 30);
    OCT_TRY(oct_check_window(s, false, 0));
    OCT_TRY(oct_check_step_shape(program, step, s));
    OCT_TRY(check_weights(step));
    OCT_CHECK(s->groups == s->in_c && s->groups == s->out_c && s->kernel_h == 1 &&
                  s->kernel_w == 1 && s->stride_h == 1 && s->stride_w == 1,
              OCT_DATA, "it is not a depthwise 1x1 convolution of stride 1");
    for (int64_t c = 0; c < s->out_c; c++) {
        OCT_CHECK(step->conv.weight[c] >= -1 && step->conv.weight[c] <= 1, OCT_DATA,
                  "weight %lld is not -1, 0 or 1", (long long)c);
        OCT_CHECK(step->conv.bias[c] >= -limit && step->conv.bias[c] <= limit, OCT_DATA,
                  "bias %lld is not within %d bits", (long long)c, wide ? 46 : 30);
    }
    return check_epilogue(program, step);
}

/* What `pack` writes; tables, weights and biases follow it in the same block. */
typedef struct constants {
    oct_qconv_plan plan;
    void *weight;
    int32_t *bias;    /* what 8-bit layers add */
    oct_fixed *fixed; /* multipliers as whole numbers */
} constants;

static bool is_dilated(const oct_step *step)
{
    return step->conv.input_step_h > 1 || step->conv.input_step_w > 1;
}

/* Plans the kernel's work on this step, dilated inputs sample by sample. */
static void make_plan(const oct_program *program, const oct_step *step, const oct_kernel *kernel,
                      int64_t samples, oct_qconv_plan *plan)
{
    const oct_qparams in = oct_step_input(program, step, 0)->q;
    if (step->kind == OCT_STEP_AFFINE)
        oct_qconv_plan_affine(plan, kernel, &step->conv.shape, in);
    else
        oct_qconv_plan_init(plan, kernel, &step->conv.shape, in, is_dilated(step) ? 1 : samples);
}

/* Offsets in what `pack` writes. */
static int64_t tables_offset(void)
{
    return oct_round_up((int64_t)sizeof(constants), OCT_CACHE_LINE);
}

static int64_t weight_offset(const oct_qconv_plan *plan)
{
    return tables_offset() + oct_round_up(plan->table_bytes, OCT_CACHE_LINE);
}

static int64_t packed_bytes(const oct_program *program, const oct_step *step,
                            const oct_kernel *kernel, int64_t samples)
{
    oct_qconv_plan plan;
    make_plan(program, step, kernel, samples, &plan);
    return weight_offset(&plan) + plan.packed_bytes +
           step->conv.shape.out_c * (int64_t)(sizeof(int32_t) + sizeof(oct_fixed));
}

/* Packs constants into one piece of memory: the struct, tables of the plan, weights, biases, fixed multipliers. */
static void pack_conv(const oct_program *program, const oct_step *step, const oct_kernel *kernel,
                      int64_t samples, void *packed)
{
    constants *k = packed;
    char *at = packed;
    const oct_value *in = oct_step_input(program, step, 0), *out = oct_step_output(program, step);
    const float out_scale = out->dtype == OCT_F32 ? 1.0f : out->q.scale;
    make_plan(program, step, kernel, samples, &k->plan);
    oct_qconv_plan_tables(&k->plan, at + tables_offset());
    k->weight = at + weight_offset(&k->plan);
    k->bias = (int32_t *)(void *)((char *)k->weight + k->plan.packed_bytes);
    oct_qconv_pack(&k->plan, step->conv.weight, k->weight);
    k->fixed = (oct_fixed *)(void *)(k->bias + step->conv.shape.out_c);
    for (int64_t c = 0; c < step->conv.shape.out_c; c++) {
        k->bias[c] = in->dtype == OCT_U8 ? (int32_t)step->conv.bias[c] : 0;
        k->fixed[c] =
            oct_fixed_of_layer(program->requantizer, in->q.scale, step->conv.weight_scale[c],
                               out_scale, step->conv.multiplier[c]);
    }
}

/* How the sums of a run become its outputs. */
static oct_epilogue epilogue_of(const oct_step_run *r, const constants *k)
{
    const oct_step *step = r->step;
    const oct_value *in = oct_step_input(r->program, step, 0);
    const oct_value *out = oct_step_output(r->program, step);
    const oct_dtype addend =
        step->num_inputs > 1 ? oct_step_input(r->program, step, 1)->dtype : OCT_U8;
    oct_epilogue f = {.requantizer = r->program->requantizer,
                      .wide = oct_epilogue_is_wide(in->dtype, addend, out->dtype),
                      .acc = in->dtype == OCT_U16 ? OCT_S64 : OCT_S32,
                      .out = out->dtype,
                      .q = {.bias = k->bias,
                            .multiplier = step->conv.multiplier,
                            .lo = step->conv.lo,
                            .hi = step->conv.hi,
                            .zero_point = out->q.zero_point,
                            .six = INFINITY},
                      .bias = step->conv.bias,
                      .fixed = k->fixed};
    if (out->dtype == OCT_F32) {
        f.q.relu = step->conv.hi != 0;
        if (step->conv.hi == 6) f.q.six = 6.0f;
    }
    if (step->num_inputs > 1) {
        f.addend = oct_step_codes(r, 1);
        f.addend_multiplier = step->conv.addend_multiplier;
    }
    return f;
}

/* The bytes of scratch for one sample of the input dilated, in front of the rest; 0: it is not. */
static int64_t dilated_bytes(const oct_program *program, const oct_step *step)
{
    if (!is_dilated(step)) return 0;
    return oct_round_up(oct_conv_in_numel(&step->conv.shape) *
                            (int64_t)oct_dtype_bytes(oct_step_input(program, step, 0)->dtype),
                        OCT_CACHE_LINE);
}

static int64_t scratch_bytes(const oct_program *program, const oct_step *step,
                             const oct_kernel *kernel, int64_t samples)
{
    oct_qconv_plan plan;
    make_plan(program, step, kernel, samples, &plan);
    return dilated_bytes(program, step) + plan.scratch_bytes;
}

/* Runs a transposed convolution sample by sample, each dilated first. */
static void run_dilated(const oct_step_run *r, const constants *k, const oct_epilogue *f)
{
    const oct_step *step = r->step;
    const oct_value *in = oct_step_input(r->program, step, 0);
    const oct_dilation d = oct_dilation_of(oct_value_shape(in, 4), step->conv.input_step_h,
                                           step->conv.input_step_w, in->dtype, in->q.zero_point);
    const int64_t out = oct_conv_out_numel(&step->conv.shape);
    const int64_t in_bytes = oct_value_numel(in) * (int64_t)oct_dtype_bytes(in->dtype);
    uint8_t *scratch = (uint8_t *)r->scratch + dilated_bytes(r->program, step);
    for (int64_t n = 0; n < r->samples; n++) {
        const oct_epilogue part = oct_epilogue_at(f, n * out);
        oct_dilate_image(&d, (const char *)r->input[0] + n * in_bytes, r->scratch);
        oct_qconv_forward(
            &k->plan,
            &(oct_qconv_pass){.samples = 1,
                              .x = r->scratch,
                              .packed = k->weight,
                              .y = (char *)r->output + n * out * (int64_t)oct_dtype_bytes(f->out)},
            &part, scratch);
    }
}

static void run_conv(const oct_step_run *r)
{
    const constants *k = r->packed;
    const oct_epilogue f = epilogue_of(r, k);
    if (is_dilated(r->step))
        run_dilated(r, k, &f);
    else
        oct_qconv_forward(
            &k->plan,
            &(oct_qconv_pass){
                .samples = r->samples, .x = r->input[0], .packed = k->weight, .y = r->output},
            &f, r->scratch);
}

/* The shape of the weights. Nothing overflows: each factor is at most OCT_DIM_MAX and the first product at most max_weight_bytes. */
static oct_status weight_shape(const oct_step *step, oct_shape *shape)
{
    const oct_conv_shape *s = &step->conv.shape;
    const bool sizes = oct_is_size(s->out_c) && oct_is_size(s->kernel_h) &&
                       oct_is_size(s->kernel_w) && oct_is_size(s->in_c) && s->groups >= 1 &&
                       s->in_c % s->groups == 0;
    if (sizes) *shape = OCT_SHAPE(s->out_c, s->kernel_h, s->kernel_w, s->in_c / s->groups);
    const int64_t numel = sizes ? oct_shape_numel(shape) : 0;
    OCT_CHECK(numel > 0 && numel <= max_weight_bytes, OCT_DATA,
              "its sizes are not those of a convolution");
    return OCT_OK;
}

static oct_status channel_shape(const oct_step *step, oct_shape *shape)
{
    *shape = OCT_SHAPE(step->conv.shape.out_c);
    return OCT_OK;
}

#define OCT_CONV_ARRAY(in_file, type, member, of, counted)                                         \
    {                                                                                              \
        .group = "weights", .name = in_file, .dtype = type, .parameters = counted,                 \
        .offset = offsetof(oct_step, member), .shape = of                                          \
    }
const oct_step_array oct_conv_arrays[OCT_CONV_ARRAYS] = {
    OCT_CONV_ARRAY("codes", OCT_S8, conv.weight, weight_shape, true),
    OCT_CONV_ARRAY("bias", OCT_S64, conv.bias, channel_shape, true),
    OCT_CONV_ARRAY("multiplier", OCT_F32, conv.multiplier, channel_shape, false),
    OCT_CONV_ARRAY("scale", OCT_F32, conv.weight_scale, channel_shape, false),
};

static const oct_field fields[] = {
    OCT_WINDOW_FIELDS(conv),
    OCT_FIELD_SIZE(conv, input_step_h),
    OCT_FIELD_SIZE(conv, input_step_w),
    OCT_BOUND_FIELDS(conv),
    OCT_FIELD_FLOAT(conv, addend_multiplier),
};

#define OCT_CONV_STEP(text, most_inputs, check_step)                                               \
    .name = (text), .inputs = {1, (most_inputs)}, .weights = true, OCT_STEP_FIELDS(fields),        \
    OCT_STEP_ARRAYS(oct_conv_arrays), .check = (check_step), .packed_bytes = packed_bytes,         \
    .pack = pack_conv, .scratch_bytes = scratch_bytes, .run = run_conv

const oct_step_type oct_step_conv = {OCT_CONV_STEP("conv", 2, check_conv)};
const oct_step_type oct_step_conv_float = {OCT_CONV_STEP("conv_float", 2, check_conv),
                                           .float_out = true};
const oct_step_type oct_step_affine = {OCT_CONV_STEP("affine", 1, check_affine)};
