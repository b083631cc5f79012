/* Layers with weights, and sums and products of two tensors, as C. */
#include "io/export/c_form.h"

#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "core/tensor/broadcast.h"
#include "io/export/program_parts.h"

#include <stdio.h>

/* A layer and the program's arithmetic for it. */
typedef struct layer {
    const oct_step *step;
    int64_t number;
    const oct_value *x, *second, *y;  /* second: NULL without */
    const oct_rounding_row *rounding; /* of its sums */
    bool wide;                        /* floats are doubles */
    oct_dtype acc;
} layer;

/* Collects what is written of a step with weights: its tensors, its rounding and the type of its sums. */
static layer describe_layer(const oct_to_c *w, const oct_to_c_call *c)
{
    const oct_step *step = c->step;
    layer l = {.step = step,
               .number = c->number,
               .x = c->x,
               .second = step->num_inputs > 1 ? oct_step_input(w->program, step, 1) : NULL,
               .y = c->y};
    const oct_rounding_row *rounding = oct_rounding_of(w->program->requantizer);
    l.rounding = l.y->dtype == OCT_F32 ? &oct_rounding_float : rounding;
    l.wide = rounding->constants_of ||
             oct_epilogue_is_wide(l.x->dtype, l.second ? l.second->dtype : OCT_U8, l.y->dtype);
    l.acc = l.x->dtype == OCT_U16 ? OCT_S64 : OCT_S32;
    return l;
}

/* Writes the biases of sums over code - zero point. They fit into the accumulators: each is what the layer sums up to
 * where all values are 0. */
static void write_biases(oct_to_c *w, const layer *l)
{
    const int64_t channels = l->step->conv.shape.out_c;
    OCT_OWNED(oct_free) int64_t *wide = NULL;
    if (w->status == OCT_OK) w->status = oct_alloc(&wide, (size_t)channels, sizeof *wide);
    if (w->status != OCT_OK) return;
    int32_t *narrow = (int32_t *)(void *)wide;
    for (int64_t c = 0; c < channels; c++) {
        const int64_t bias = oct_export_bias(l->step, l->x->q, c);
        if (l->acc == OCT_S64)
            wide[c] = bias;
        else
            narrow[c] = (int32_t)bias;
    }
    oct_to_c_constants(w, &(oct_to_c_array){"bias", l->number, l->acc, channels, wide});
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
static void write_multipliers(oct_to_c *w, const layer *l)
{
    const int64_t channels = l->step->conv.shape.out_c;
    OCT_OWNED(oct_free) oct_fixed *fixed = NULL;
    if (!l->rounding->constants_of) {
        oct_to_c_constants(w, &(oct_to_c_array){"multiplier", l->number, OCT_F32, channels,
                                                l->step->conv.multiplier});
        return;
    }
    if (w->status == OCT_OK) w->status = oct_alloc(&fixed, (size_t)channels, sizeof *fixed);
    if (w->status != OCT_OK) return;
    for (int64_t c = 0; c < channels; c++)
        fixed[c] = oct_fixed_of_layer(w->program->requantizer, l->x->q.scale,
                                      l->step->conv.weight_scale[c], l->y->q.scale,
                                      l->step->conv.multiplier[c]);
    write_fixed(w, l->rounding, l->number, channels, fixed);
}

/* Writes the struct conv_layer of a layer: sizes, windows, zero points and bounds. */
static void write_layer(oct_to_c *w, const layer *l)
{
    const oct_step *step = l->step;
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
        (long long)l->number, (long long)s->in_h, (long long)s->in_w, (long long)s->in_c,
        (long long)s->out_h, (long long)s->out_w, (long long)s->out_c, s->kernel_h, s->kernel_w,
        s->stride_h, s->stride_w, s->pad_top, s->pad_left);
    oct_to_c_add(
        w, &w->constants,
        "    .dilation_h = %d, .dilation_w = %d, .groups = %d, .step_h = %d, .step_w = %d, "
        ".line = %lld,\n"
        "    .zero_x = %d, .zero_y = %d, .lo = %d, .hi = %d, .zero_second = %d, "
        ".second_multiplier = %aF,\n};\n",
        s->dilation_h, s->dilation_w, s->groups, step_h, step_w,
        (long long)((s->in_w - 1) / step_w + 1), l->x->q.zero_point,
        l->y->dtype == OCT_F32 ? 0 : l->y->q.zero_point, step->conv.lo, step->conv.hi,
        l->second ? l->second->q.zero_point : 0,
        l->second ? (double)step->conv.addend_multiplier : 0.0);
}

/* Finds the function that rounds a sum to the output, and what it takes: constants and the second addend. */
static oct_to_c_rounding find_rounding(const oct_to_c *w, const layer *l)
{
    oct_to_c_rounding r = oct_to_c_rounds(w, l->y, "multiplier[c]", "shift[c]", "multiplier[c]");
    if (l->rounding->constants_of) {
        snprintf(r.function, sizeof r.function, "requantize_%s", l->rounding->name);
        return r;
    }
    snprintf(r.function, sizeof r.function, "%s%s",
             l->y->dtype == OCT_F32 ? "unquantized" : "requantize", l->second ? "_sum" : "");
    snprintf(r.constants, sizeof r.constants, "multiplier[c]%s",
             l->second ? ", second[i] - l->zero_second, l->second_multiplier" : "");
    return r;
}

/* The parameters of the layer's kernel between the biases and the input. */
static const char *kernel_parameters(const layer *l, char text[OCT_TO_C_TEXT])
{
    if (l->rounding->constants_of)
        return l->rounding->c_multiplier ? "const int32_t *multiplier, const int8_t *shift"
                                         : "const int8_t *shift";
    if (!l->second) return "const float *multiplier";
    snprintf(text, OCT_TO_C_TEXT, "const float *multiplier, const %s *second",
             oct_to_c_type(l->second->dtype));
    return text;
}

/* Names the kernel for the shape: the general one for dilation, groups and transposed convolutions. */
static const char *find_kernel(const layer *l)
{
    const oct_conv_shape *s = &l->step->conv.shape;
    if (l->step->kind == OCT_STEP_AFFINE) return "affine";
    if (s->dilation_h > 1 || s->dilation_w > 1 || l->step->conv.input_step_h > 1 ||
        l->step->conv.input_step_w > 1)
        return "conv_general";
    if (s->groups == 1) return "conv";
    return oct_conv_is_depthwise(s) ? "depthwise" : "conv_general";
}

/* Writes a layer with weights: its constants, its kernel and its call. */
static void write_conv(oct_to_c *w, oct_to_c_call *c)
{
    const layer l = describe_layer(w, c);
    const oct_step *step = l.step;
    const oct_to_c_rounding r = find_rounding(w, &l);
    char second[OCT_TO_C_TEXT], parameters[OCT_TO_C_TEXT];
    write_layer(w, &l);
    oct_to_c_constants(w,
                       &(oct_to_c_array){"weight", c->number, OCT_S8,
                                         step->conv.shape.out_c * oct_conv_depth(&step->conv.shape),
                                         step->conv.weight});
    write_biases(w, &l);
    write_multipliers(w, &l);
    oct_to_c_kernel(
        w,
        &(oct_to_c_form){.kernel = find_kernel(&l),
                         .variant = l.second ? "sum" : NULL,
                         .x = l.x->dtype,
                         .second = l.second ? l.second->dtype : OCT_U8,
                         .y = l.y->dtype,
                         .acc = l.acc,
                         .pair = l.second != NULL,
                         .wide = l.wide,
                         .parameters = kernel_parameters(&l, parameters),
                         .function = r.function,
                         .constants = r.constants,
                         .result = l.y->dtype == OCT_F32 ? "result_value" : "result_code"},
        c->kernel);
    oct_to_c_add(w, &w->calls, "    %s(&layer_%lld, weight_%lld, bias_%lld, ", c->kernel,
                 (long long)c->number, (long long)c->number, (long long)c->number);
    if (!l.rounding->constants_of || l.rounding->c_multiplier)
        oct_to_c_add(w, &w->calls, "multiplier_%lld, ", (long long)c->number);
    if (l.rounding->constants_of) oct_to_c_add(w, &w->calls, "shift_%lld, ", (long long)c->number);
    if (l.second) oct_to_c_add(w, &w->calls, "%s, ", oct_to_c_value(w, step->input[1], second));
    oct_to_c_add(w, &w->calls, "%s, %s);\n", c->from, c->to);
}

/* Two tensors that are combined element by element. */
typedef struct pair {
    const oct_step *step;
    int64_t number;
    const oct_value *a, *b, *y;
    bool wide; /* sums have 64 bits */
} pair;

/* Collects the tensors of a sum or product of two, and whether its sums have 64 bits. */
static pair describe_pair(const oct_to_c *w, const oct_to_c_call *c)
{
    const oct_step *step = c->step;
    pair p = {.step = step,
              .number = c->number,
              .a = c->x,
              .b = oct_step_input(w->program, step, 1),
              .y = c->y};
    p.wide = p.a->dtype == OCT_U16 || p.b->dtype == OCT_U16 || p.y->dtype == OCT_U16;
    return p;
}

/* What follows the strides in a pair_layer: bounds, and how the two are multiplied. */
typedef struct factors {
    int32_t lo, hi;
    int64_t multiplier_a, multiplier_b;
    int shift;
    float factor;
} factors;

/* Writes the struct pair_layer: strides of both tensors (0 where one is broadcast), bounds and factors. */
static void write_pair_layer(oct_to_c *w, const pair *p, factors f)
{
    oct_broadcast b = {0};
    const oct_shape a = OCT_SHAPE(1, p->a->h, p->a->w, p->a->c),
                    second = OCT_SHAPE(1, p->b->h, p->b->w, p->b->c);
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
        (long long)p->number, (long long)b.positions, (long long)b.channels, (long long)position[0],
        (long long)channel[0], (long long)position[1], (long long)channel[1], p->a->q.zero_point,
        p->b->q.zero_point, p->y->q.zero_point, f.lo, f.hi, (long long)f.multiplier_a,
        (long long)f.multiplier_b, f.shift, (double)f.factor);
}

/* Writes the kernel for the types of a pair, and its call. parameters: arguments after the layer. */
static void write_pair_call(oct_to_c *w, const pair *p, const oct_to_c_form *of,
                            const char *parameters)
{
    char name[OCT_TO_C_TEXT], a[OCT_TO_C_TEXT], b[OCT_TO_C_TEXT], y[OCT_TO_C_TEXT];
    oct_to_c_form form = *of;
    form.x = p->a->dtype;
    form.second = p->b->dtype;
    form.y = p->y->dtype;
    form.acc = p->wide ? OCT_S64 : OCT_S32;
    form.pair = true;
    form.wide = p->wide;
    oct_to_c_kernel(w, &form, name);
    oct_to_c_add(w, &w->calls, "    %s(&layer_%lld, %s%s, %s, %s);\n", name, (long long)p->number,
                 parameters, oct_to_c_value(w, p->step->input[0], a),
                 oct_to_c_value(w, p->step->input[1], b), oct_to_c_value(w, p->step->output, y));
}

/* Writes the call of a sum of two. A rounding with a sum of its own (rounding->sum) has its constants in the C form and
 * its own kernel; the others share "add", with the factors and the shift of the step. */
static void write_add(oct_to_c *w, oct_to_c_call *c)
{
    const pair p = describe_pair(w, c);
    const oct_qadd *add = &p.step->add;
    const oct_rounding_row *rounding = oct_rounding_of(w->program->requantizer);
    const oct_to_c_rounding r =
        oct_to_c_rounds(w, p.y, "multiplier[0]", "shift[0]", "multiplier[0]");
    oct_sum_constants s = {.a = add->ma, .b = add->mb};
    char parameters[OCT_TO_C_TEXT] = "";
    if (rounding->sum) {
        s = rounding->sum_of(add, p.a->q, p.b->q, p.y->q);
        write_fixed(w, rounding, c->number, rounding->num_sum_constants, s.ratio);
        snprintf(parameters, sizeof parameters, "multiplier_%lld, shift_%lld, ",
                 (long long)c->number, (long long)c->number);
    }
    write_pair_layer(w, &p,
                     (factors){.lo = add->lo,
                               .hi = add->hi,
                               .multiplier_a = s.a,
                               .multiplier_b = s.b,
                               .shift = rounding->sum ? 0 : add->shift});
    write_pair_call(w, &p,
                    &(oct_to_c_form){.kernel = rounding->sum ? rounding->c_add : "add",
                                     .function = r.function,
                                     .constants = r.constants},
                    parameters);
}

/* Writes the call of a product of two. */
static void write_mul(oct_to_c *w, oct_to_c_call *c)
{
    const pair p = describe_pair(w, c);
    const oct_qparams q = p.y->q;
    const oct_rounding_row *rounding = oct_rounding_of(w->program->requantizer);
    const oct_to_c_rounding r =
        oct_to_c_rounds(w, p.y, "(int32_t)l->multiplier_a", "l->shift", "l->factor");
    const oct_fixed fixed = oct_fixed_of_layer(w->program->requantizer, p.a->q.scale, p.b->q.scale,
                                               q.scale, p.step->mul.factor);
    oct_to_c_form form = {.kernel = "mul",
                          .variant = rounding->code_name ? rounding->code_name : rounding->name,
                          .function = r.function,
                          .constants = r.constants};
    if (p.step->mul.offset_first) {
        form.variant = form.function = "offset_first";
        form.constants = "l->factor, l->zero_y";
    }
    write_pair_layer(w, &p,
                     (factors){.lo = q.qmin - q.zero_point,
                               .hi = q.qmax - q.zero_point,
                               .multiplier_a = rounding->c_multiplier ? fixed.multiplier : 0,
                               .shift = fixed.shift,
                               .factor = p.step->mul.factor});
    write_pair_call(w, &p, &form, "");
}

oct_to_c_write *const oct_to_c_product_steps[OCT_STEP_KINDS] = {
    [OCT_STEP_CONV] = write_conv,   [OCT_STEP_CONV_FLOAT] = write_conv,
    [OCT_STEP_AFFINE] = write_conv, [OCT_STEP_ADD] = write_add,
    [OCT_STEP_MUL] = write_mul,
};
