/* Layers with weights, and sums and products of two tensors, as C. */
#include "io/export/c_form.h"

#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "core/tensor/broadcast.h"
#include "io/export/program_parts.h"

#include <stdio.h>

/* The rounding of a layer's sums. */
static const oct_rounding_row *rounding_of_layer(const oct_to_c *w, const oct_to_c_call *c)
{
    return c->y->dtype == OCT_F32 ? &oct_rounding_float : oct_rounding_of(w->program->requantizer);
}

/* Writes the biases of sums over code - zero point. They fit into the accumulators: each is what the layer sums up to
 * where all values are 0. */
static void write_biases(oct_to_c *w, const oct_to_c_call *c)
{
    const int64_t channels = c->step->conv.shape.out_c;
    const bool is_wide = c->x->dtype == OCT_U16;
    OCT_OWNED(oct_free) int64_t *wide = NULL;
    if (w->status == OCT_OK) w->status = oct_alloc(&wide, (size_t)channels, sizeof *wide);
    if (w->status != OCT_OK) return;
    int32_t *narrow = (int32_t *)(void *)wide;
    for (int64_t o = 0; o < channels; o++) {
        const int64_t bias = oct_export_bias(c->step, c->x->q, o);
        if (is_wide)
            wide[o] = bias;
        else
            narrow[o] = (int32_t)bias;
    }
    oct_to_c_constants(
        w, &(oct_to_c_array){"bias", c->number, is_wide ? OCT_S64 : OCT_S32, channels, wide});
}

/* Writes the whole multipliers and shifts that stand for ratios of scales. */
static void write_fixed(oct_to_c *w, const oct_rounding_row *rounding, int64_t number,
                        int64_t count, const oct_fixed *fixed)
{
    OCT_OWNED(oct_free) int32_t *multiplier = NULL;
    OCT_OWNED(oct_free) int8_t *shift = NULL;
    if (w->status == OCT_OK) w->status = oct_alloc(&multiplier, (size_t)count, sizeof *multiplier);
    if (w->status == OCT_OK) w->status = oct_alloc(&shift, (size_t)count, sizeof *shift);
    for (int64_t c = 0; w->status == OCT_OK && c < count; c++) {
        multiplier[c] = fixed[c].multiplier;
        shift[c] = (int8_t)fixed[c].shift;
    }
    if (w->status == OCT_OK && rounding->c_multiplier)
        oct_to_c_constants(w, &(oct_to_c_array){"multiplier", number, OCT_S32, count, multiplier});
    if (w->status == OCT_OK)
        oct_to_c_constants(w, &(oct_to_c_array){"shift", number, OCT_S8, count, shift});
}

/* Writes what sums are multiplied by: floats, or whole numbers and shifts. */
static void write_multipliers(oct_to_c *w, const oct_to_c_call *c)
{
    const oct_conv_step *s = &c->step->conv;
    const int64_t channels = s->shape.out_c;
    OCT_OWNED(oct_free) oct_fixed *fixed = NULL;
    if (!rounding_of_layer(w, c)->constants_of) {
        oct_to_c_constants(
            w, &(oct_to_c_array){"multiplier", c->number, OCT_F32, channels, s->multiplier});
        return;
    }
    if (w->status == OCT_OK) w->status = oct_alloc(&fixed, (size_t)channels, sizeof *fixed);
    if (w->status != OCT_OK) return;
    for (int64_t o = 0; o < channels; o++)
        fixed[o] = oct_fixed_of_layer(w->program->requantizer, c->x->q.scale, s->weight_scale[o],
                                      c->y->q.scale, s->multiplier[o]);
    write_fixed(w, rounding_of_layer(w, c), c->number, channels, fixed);
}

/* Writes the struct conv_layer of a layer: sizes, windows, zero points and bounds. */
static void write_layer(oct_to_c *w, const oct_to_c_call *c)
{
    const oct_step *step = c->step;
    const oct_conv_shape *s = &step->conv.shape;
    const int step_h = (int)oct_max_i64(step->conv.input_step_h, 1),
              step_w = (int)oct_max_i64(step->conv.input_step_w, 1);
    oct_to_c_count_layer(w, 24, 0);
    oct_to_c_add(
        w, &w->constants,
        "CONSTANT_PLACE static const conv_layer layer_%lld = {\n"
        "    .in_h = %lld, .in_w = %lld, .in_c = %lld, .out_h = %lld, .out_w = %lld, "
        ".out_c = %lld,\n"
        "    .kernel_h = %d, .kernel_w = %d, .stride_h = %d, .stride_w = %d, .pad_top = %d, "
        ".pad_left = %d,\n",
        (long long)c->number, (long long)s->in_h, (long long)s->in_w, (long long)s->in_c,
        (long long)s->out_h, (long long)s->out_w, (long long)s->out_c, s->kernel_h, s->kernel_w,
        s->stride_h, s->stride_w, s->pad_top, s->pad_left);
    oct_to_c_add(
        w, &w->constants,
        "    .dilation_h = %d, .dilation_w = %d, .groups = %d, .step_h = %d, .step_w = %d, "
        ".line = %lld,\n"
        "    .zero_x = %d, .zero_y = %d, .lo = %d, .hi = %d, .zero_second = %d, "
        ".second_multiplier = %aF,\n};\n",
        s->dilation_h, s->dilation_w, s->groups, step_h, step_w,
        (long long)((s->in_w - 1) / step_w + 1), c->x->q.zero_point,
        c->y->dtype == OCT_F32 ? 0 : c->y->q.zero_point, step->conv.lo, step->conv.hi,
        c->second ? c->second->q.zero_point : 0,
        c->second ? (double)step->conv.addend_multiplier : 0.0);
}

/* Finds the function that rounds a sum to the output, and what it takes: constants and the second addend. */
static oct_to_c_rounding find_rounding(const oct_to_c *w, const oct_to_c_call *c)
{
    const oct_rounding_row *rounding = rounding_of_layer(w, c);
    oct_to_c_rounding r = oct_to_c_rounds(w, c->y, "multiplier[c]", "shift[c]", "multiplier[c]");
    if (rounding->constants_of) {
        snprintf(r.function, sizeof r.function, "requantize_%s", rounding->name);
        return r;
    }
    snprintf(r.function, sizeof r.function, "%s%s",
             c->y->dtype == OCT_F32 ? "unquantized" : "requantize", c->second ? "_sum" : "");
    snprintf(r.constants, sizeof r.constants, "multiplier[c]%s",
             c->second ? ", second[i] - l->zero_second, l->second_multiplier" : "");
    return r;
}

/* The parameters of the layer's kernel between the biases and the input. */
static const char *kernel_parameters(const oct_to_c_call *c, const oct_rounding_row *rounding,
                                     char text[OCT_TO_C_TEXT])
{
    if (rounding->constants_of)
        return rounding->c_multiplier ? "const int32_t *multiplier, const int8_t *shift"
                                      : "const int8_t *shift";
    if (!c->second) return "const float *multiplier";
    snprintf(text, OCT_TO_C_TEXT, "const float *multiplier, const %s *second",
             oct_to_c_type(c->second->dtype));
    return text;
}

/* Names the kernel for the shape: the general one for dilation, groups and transposed convolutions. */
static const char *find_kernel(const oct_step *step)
{
    const oct_conv_shape *s = &step->conv.shape;
    if (step->kind == OCT_STEP_AFFINE) return "affine";
    if (s->dilation_h > 1 || s->dilation_w > 1 || step->conv.input_step_h > 1 ||
        step->conv.input_step_w > 1)
        return "conv_general";
    if (s->groups == 1) return "conv";
    return oct_conv_is_depthwise(s) ? "depthwise" : "conv_general";
}

/* Writes a layer with weights: its constants, its kernel and its call. */
static void write_conv(oct_to_c *w, oct_to_c_call *c)
{
    const oct_conv_step *s = &c->step->conv;
    const oct_rounding_row *rounding = rounding_of_layer(w, c);
    const oct_to_c_rounding r = find_rounding(w, c);
    const oct_dtype addend = c->second ? c->second->dtype : OCT_U8;
    const long long n = c->number;
    char second[OCT_TO_C_TEXT], parameters[OCT_TO_C_TEXT];
    write_layer(w, c);
    oct_to_c_constants(w, &(oct_to_c_array){"weight", c->number, OCT_S8,
                                            s->shape.out_c * oct_conv_depth(&s->shape), s->weight});
    write_biases(w, c);
    write_multipliers(w, c);
    oct_to_c_begin_call(
        w, c,
        &(oct_to_c_form){.kernel = find_kernel(c->step),
                         .variant = c->second ? "sum" : NULL,
                         .pair = c->second != NULL,
                         .wide = oct_rounding_of(w->program->requantizer)->constants_of ||
                                 oct_epilogue_is_wide(c->x->dtype, addend, c->y->dtype),
                         .parameters = kernel_parameters(c, rounding, parameters),
                         .function = r.function,
                         .constants = r.constants,
                         .result = c->y->dtype == OCT_F32 ? "result_value" : "result_code"});
    oct_to_c_add(w, &w->calls, "&layer_%lld, weight_%lld, bias_%lld, ", n, n, n);
    if (!rounding->constants_of || rounding->c_multiplier)
        oct_to_c_add(w, &w->calls, "multiplier_%lld, ", n);
    if (rounding->constants_of) oct_to_c_add(w, &w->calls, "shift_%lld, ", n);
    if (c->second) oct_to_c_add(w, &w->calls, "%s, ", oct_to_c_value(w, c->step->input[1], second));
    oct_to_c_add(w, &w->calls, "%s, %s);\n", c->from, c->to);
}

/* Two tensors are combined element by element. */

/* What follows the strides in a pair_layer: bounds, and how the two are multiplied. */
typedef struct factors {
    int32_t lo, hi;
    int64_t multiplier_a, multiplier_b;
    int shift;
    float factor;
} factors;

/* Writes the struct pair_layer: strides of both tensors (0 where one is broadcast), bounds and factors. */
static void write_pair_layer(oct_to_c *w, const oct_to_c_call *c, factors f)
{
    oct_broadcast b = {0};
    const oct_shape a = oct_value_shape(c->x, 4), second = oct_value_shape(c->second, 4);
    (void)oct_broadcast_of(&a, &second, &b); /* cannot fail: the program has been checked */
    int64_t position[2], channel[2];
    for (int i = 0; i < 2; i++) {
        position[i] = b.position[i] > 1 ? b.channel[i] : 0;
        channel[i] = b.channel[i] > 1;
    }
    if (oct_broadcast_is_plain(&b)) { /* one row */
        b.channels *= b.positions;
        b.positions = 1;
        channel[0] = channel[1] = 1;
    }
    oct_to_c_count_layer(w, 14, 2); /* with 4 bytes to align */
    oct_to_c_add(
        w, &w->constants,
        "CONSTANT_PLACE static const pair_layer layer_%lld = {\n"
        "    .positions = %lld, .channels = %lld, .a_position = %lld, .a_channel = %lld, "
        ".b_position = %lld, .b_channel = %lld,\n"
        "    .zero_a = %d, .zero_b = %d, .zero_y = %d, .lo = %d, .hi = %d,\n"
        "    .multiplier_a = %lld, .multiplier_b = %lld, .shift = %d, .factor = %aF,\n};\n",
        (long long)c->number, (long long)b.positions, (long long)b.channels, (long long)position[0],
        (long long)channel[0], (long long)position[1], (long long)channel[1], c->x->q.zero_point,
        c->second->q.zero_point, c->y->q.zero_point, f.lo, f.hi, (long long)f.multiplier_a,
        (long long)f.multiplier_b, f.shift, (double)f.factor);
}

/* Writes the kernel of a pair, and its call. parameters: arguments after the layer. */
static void write_pair_call(oct_to_c *w, const oct_to_c_call *c, oct_to_c_form form,
                            const char *parameters)
{
    char second[OCT_TO_C_TEXT];
    form.pair = true;
    form.wide = c->x->dtype == OCT_U16 || c->second->dtype == OCT_U16 || c->y->dtype == OCT_U16;
    form.acc = form.wide ? OCT_S64 : OCT_S32;
    oct_to_c_begin_call(w, c, &form);
    oct_to_c_add(w, &w->calls, "&layer_%lld, %s%s, %s, %s);\n", (long long)c->number, parameters,
                 c->from, oct_to_c_value(w, c->step->input[1], second), c->to);
}

/* Writes the call of a sum of two. A rounding with a sum of its own (rounding->sum) has its constants in the C form and
 * its own kernel; the others share "add", with the factors and the shift of the step. */
static void write_add(oct_to_c *w, oct_to_c_call *c)
{
    const oct_qadd *add = &c->step->add;
    const oct_rounding_row *rounding = oct_rounding_of(w->program->requantizer);
    const oct_to_c_rounding r =
        oct_to_c_rounds(w, c->y, "multiplier[0]", "shift[0]", "multiplier[0]");
    oct_sum_constants s = {.a = add->ma, .b = add->mb};
    char parameters[OCT_TO_C_TEXT] = "";
    if (rounding->sum) {
        s = rounding->sum_of(add, c->x->q, c->second->q, c->y->q);
        write_fixed(w, rounding, c->number, rounding->num_sum_constants, s.ratio);
        snprintf(parameters, sizeof parameters, "multiplier_%lld, shift_%lld, ",
                 (long long)c->number, (long long)c->number);
    }
    write_pair_layer(w, c,
                     (factors){.lo = add->lo,
                               .hi = add->hi,
                               .multiplier_a = s.a,
                               .multiplier_b = s.b,
                               .shift = rounding->sum ? 0 : add->shift});
    write_pair_call(w, c,
                    (oct_to_c_form){.kernel = rounding->sum ? rounding->c_add : "add",
                                    .function = r.function,
                                    .constants = r.constants},
                    parameters);
}

/* Writes the call of a product of two. */
static void write_mul(oct_to_c *w, oct_to_c_call *c)
{
    const oct_qparams q = c->y->q;
    const float factor = c->step->mul.factor;
    const oct_rounding_row *rounding = oct_rounding_of(w->program->requantizer);
    const oct_to_c_rounding r =
        oct_to_c_rounds(w, c->y, "(int32_t)l->multiplier_a", "l->shift", "l->factor");
    const oct_fixed fixed = oct_fixed_of_layer(w->program->requantizer, c->x->q.scale,
                                               c->second->q.scale, q.scale, factor);
    oct_to_c_form form = {.kernel = "mul",
                          .variant = rounding->code_name ? rounding->code_name : rounding->name,
                          .function = r.function,
                          .constants = r.constants};
    if (c->step->mul.offset_first) {
        form.variant = form.function = "offset_first";
        form.constants = "l->factor, l->zero_y";
    }
    write_pair_layer(w, c,
                     (factors){.lo = q.qmin - q.zero_point,
                               .hi = q.qmax - q.zero_point,
                               .multiplier_a = rounding->c_multiplier ? fixed.multiplier : 0,
                               .shift = fixed.shift,
                               .factor = factor});
    write_pair_call(w, c, form, "");
}

oct_to_c_write *const oct_to_c_product_steps[OCT_STEP_KINDS] = {
    [OCT_STEP_CONV] = write_conv,   [OCT_STEP_CONV_FLOAT] = write_conv,
    [OCT_STEP_AFFINE] = write_conv, [OCT_STEP_ADD] = write_add,
    [OCT_STEP_MUL] = write_mul,
};
