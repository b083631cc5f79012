/* Layers with weights, and sums and products of two tensors, as C. */
#include "io/export/c_form.h"

#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "core/tensor/broadcast.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A layer and the program's arithmetic for it. */
typedef struct layer {
    const oct_step *step;
    int64_t number;
    const oct_value *x, *second, *y; /* second: NULL without */
    oct_arithmetic arithmetic;
    oct_dtype acc;
} layer;

static layer layer_of(const oct_to_c *w, int64_t number)
{
    const oct_step *step = &w->program->steps[number];
    layer l = {.step = step,
               .number = number,
               .x = oct_step_input(w->program, step, 0),
               .second = step->num_inputs > 1 ? oct_step_input(w->program, step, 1) : NULL,
               .y = oct_step_output(w->program, step)};
    l.arithmetic = oct_arithmetic_of(w->program->requantizer, l.x->dtype,
                                     l.second ? l.second->dtype : OCT_U8, l.y->dtype);
    l.acc = l.x->dtype == OCT_U16 ? OCT_S64 : OCT_S32;
    return l;
}

/* The program's sums are over codes, of which its biases take off the zero point; ours are over values. An affine
 * layer's are over values there, too. */
static int64_t bias_of(const layer *l, int64_t c)
{
    const int64_t depth = oct_conv_depth(&l->step->conv);
    int64_t sum = 0;
    if (l->step->kind == OCT_STEP_AFFINE) return l->step->bias[c];
    for (int64_t i = 0; i < depth; i++)
        sum += l->step->weight[c * depth + i];
    return l->step->bias[c] + sum * l->x->q.zero_point;
}

/* Biases fit into the accumulators: each is what the layer sums up to where all values are 0. */
static void write_biases(oct_to_c *w, const layer *l)
{
    const int64_t channels = l->step->conv.out_c;
    int64_t *wide = NULL;
    if (w->status == OCT_OK) w->status = oct_alloc(&wide, (size_t)channels, sizeof *wide);
    if (w->status != OCT_OK) return;
    int32_t *narrow = (int32_t *)(void *)wide;
    for (int64_t c = 0; c < channels; c++) {
        const int64_t bias = bias_of(l, c);
        if (l->acc == OCT_S64)
            wide[c] = bias;
        else
            narrow[c] = (int32_t)bias;
    }
    oct_to_c_constants(w, &(oct_to_c_array){"bias", l->number, l->acc, channels, wide});
    oct_free(&wide);
}

/* How far the sums of a channel go to the right; beyond these ends nothing changes (kernel/epilogue.h). */
static int8_t shift_of(float multiplier)
{
    int exponent;
    (void)frexpf(multiplier, &exponent);
    return (int8_t)oct_max_i64(oct_min_i64(1 - exponent, 62), -16);
}

static bool shifts(const layer *l)
{
    return oct_arithmetic_shifts(l->arithmetic) && l->y->dtype != OCT_F32;
}

/* The kernel that shifts a sum of a layer. */
static const char *shift_name(const layer *l)
{
    if (l->arithmetic == OCT_ARITHMETIC_SHIFT_EVEN) return "requantize_shift_even";
    return l->arithmetic == OCT_ARITHMETIC_SHIFT_20 ? "requantize_shift_20" : "requantize_shift";
}

/* Codes are made by whole multipliers. */
static bool is_fixed(const layer *l)
{
    return (l->arithmetic == OCT_ARITHMETIC_DOUBLE || l->arithmetic == OCT_ARITHMETIC_Q15) &&
           l->y->dtype != OCT_F32;
}

static bool has_15_bits(const layer *l)
{
    return is_fixed(l) && l->arithmetic == OCT_ARITHMETIC_Q15;
}

/* Whole multipliers and their shifts. */
static void write_fixed(oct_to_c *w, int64_t number, int64_t count, const oct_fixed *fixed)
{
    int32_t *multiplier = NULL;
    int8_t *shift = NULL;
    if (w->status == OCT_OK) w->status = oct_alloc(&multiplier, (size_t)count, sizeof *multiplier);
    if (w->status == OCT_OK) w->status = oct_alloc(&shift, (size_t)count, sizeof *shift);
    for (int64_t c = 0; w->status == OCT_OK && c < count; c++) {
        multiplier[c] = fixed[c].multiplier;
        shift[c] = (int8_t)fixed[c].exponent;
    }
    if (w->status == OCT_OK) {
        oct_to_c_constants(w, &(oct_to_c_array){"multiplier", number, OCT_S32, count, multiplier});
        oct_to_c_constants(w, &(oct_to_c_array){"shift", number, OCT_S8, count, shift});
    }
    oct_free(&multiplier);
    oct_free(&shift);
}

static void write_fixed_multipliers(oct_to_c *w, const layer *l)
{
    const int64_t channels = l->step->conv.out_c;
    oct_fixed *fixed = NULL;
    if (w->status == OCT_OK) w->status = oct_alloc(&fixed, (size_t)channels, sizeof *fixed);
    if (w->status != OCT_OK) return;
    for (int64_t c = 0; c < channels; c++)
        fixed[c] = oct_fixed_of_layer(w->program->requantizer, l->x->q.scale,
                                      l->step->weight_scale[c], l->y->q.scale);
    for (int64_t c = 0; has_15_bits(l) && c < channels; c++)
        fixed[c].exponent = 15 - fixed[c].exponent; /* to the right */
    write_fixed(w, l->number, channels, fixed);
    oct_free(&fixed);
}

static void write_multipliers(oct_to_c *w, const layer *l)
{
    const int64_t channels = l->step->conv.out_c;
    int8_t *shift = NULL;
    if (is_fixed(l)) {
        write_fixed_multipliers(w, l);
        return;
    }
    if (!shifts(l)) {
        oct_to_c_constants(
            w, &(oct_to_c_array){"multiplier", l->number, OCT_F32, channels, l->step->multiplier});
        return;
    }
    if (w->status == OCT_OK) w->status = oct_alloc(&shift, (size_t)channels, sizeof *shift);
    if (w->status != OCT_OK) return;
    for (int64_t c = 0; c < channels; c++)
        shift[c] = shift_of(l->step->multiplier[c]);
    oct_to_c_constants(w, &(oct_to_c_array){"shift", l->number, OCT_S8, channels, shift});
    oct_free(&shift);
}

static void write_layer(oct_to_c *w, const layer *l)
{
    const oct_step *step = l->step;
    const oct_conv_shape *s = &step->conv;
    const int step_h = (int)oct_max_i64(step->input_step_h, 1),
              step_w = (int)oct_max_i64(step->input_step_w, 1);
    oct_to_c_need(w, "conv_layer", false);
    oct_to_c_layer(w, 24, 0);
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
        l->y->dtype == OCT_F32 ? 0 : l->y->q.zero_point, step->lo, step->hi,
        l->second ? l->second->q.zero_point : 0, l->second ? (double)step->addend_multiplier : 0.0);
}

/* How a sum becomes a result, as kernels have it in place of $R: one function for each arithmetic. */
typedef struct rounding {
    const char *function; /* a kernel */
    char result[OCT_TO_C_TEXT], parameters[OCT_TO_C_TEXT];
} rounding;

static rounding rounding_of(const layer *l)
{
    rounding r = {.function = "requantize"};
    const bool wide = l->arithmetic != OCT_ARITHMETIC_FLOAT, values = l->y->dtype == OCT_F32;
    const char *type = oct_to_c_type(l->y->dtype), *joined = "";
    if (l->second) joined = ", second[i] - l->zero_second, l->second_multiplier";
    if (values) r.function = "unquantized";
    if (l->second) r.function = values ? "unquantized_joined" : "requantize_joined";
    if (shifts(l)) r.function = shift_name(l);
    if (is_fixed(l)) r.function = has_15_bits(l) ? "requantize_q15" : "requantize_double";
    snprintf(r.parameters, sizeof r.parameters, "%s",
             shifts(l)     ? "const int8_t *shift"
             : is_fixed(l) ? "const int32_t *multiplier, const int8_t *shift"
                           : "const float *multiplier");
    if (l->second)
        snprintf(r.parameters, sizeof r.parameters, "const float *multiplier, const %s *second",
                 oct_to_c_type(l->second->dtype));
    if (shifts(l))
        snprintf(r.result, sizeof r.result, "(%s)(%s(sum, shift[c], l->lo, l->hi) + l->zero_y)",
                 type, r.function);
    else if (has_15_bits(l))
        snprintf(r.result, sizeof r.result,
                 "(%s)(requantize_q15(sum, multiplier[c], shift[c], %d, l->lo, l->hi) + l->zero_y)",
                 type, oct_to_c_behind(l->y));
    else if (is_fixed(l))
        snprintf(r.result, sizeof r.result,
                 "(%s)(requantize_double(sum, multiplier[c], shift[c], l->lo, l->hi) + l->zero_y)",
                 type);
    else if (values)
        snprintf(r.result, sizeof r.result, "%s%s(sum, multiplier[c]%s, l->hi)", r.function,
                 wide ? "_wide" : "", joined);
    else
        snprintf(r.result, sizeof r.result,
                 "(%s)(%s%s(sum, multiplier[c]%s, l->lo, l->hi) + l->zero_y)", type, r.function,
                 wide ? "_wide" : "", joined);
    return r;
}

/* The kernel that has the shape's form. */
static const char *kernel_of(const layer *l)
{
    const oct_conv_shape *s = &l->step->conv;
    if (l->step->kind == OCT_STEP_AFFINE) return "affine";
    if (s->dilation_h > 1 || s->dilation_w > 1 || l->step->input_step_h > 1 ||
        l->step->input_step_w > 1)
        return "conv_general";
    if (s->groups == 1) return "conv";
    return oct_conv_is_depthwise(s) ? "depthwise" : "conv_general";
}

static void write_conv(oct_to_c *w, int64_t number)
{
    const layer l = layer_of(w, number);
    const oct_step *step = l.step;
    const rounding r = rounding_of(&l);
    const char *kernel = kernel_of(&l);
    char name[OCT_TO_C_TEXT], x[OCT_TO_C_TEXT], y[OCT_TO_C_TEXT], second[OCT_TO_C_TEXT];
    write_layer(w, &l);
    oct_to_c_constants(w, &(oct_to_c_array){"weight", number, OCT_S8,
                                            step->conv.out_c * oct_conv_depth(&step->conv),
                                            step->weight});
    write_biases(w, &l);
    write_multipliers(w, &l);
    const bool clips = strcmp(kernel, "conv") == 0 || strcmp(kernel, "depthwise") == 0;
    oct_to_c_kernel(
        w,
        &(oct_to_c_form){.kernel = kernel,
                         .variant = l.second ? "joined" : NULL,
                         .x = l.x->dtype,
                         .second = l.second ? l.second->dtype : OCT_U8,
                         .y = l.y->dtype,
                         .acc = l.acc,
                         .pair = l.second != NULL,
                         .wide = l.arithmetic != OCT_ARITHMETIC_FLOAT,
                         .parameters = r.parameters,
                         .result = r.result,
                         .needs = {r.function, strcmp(kernel, "affine") ? "hidden" : NULL,
                                   clips ? "least" : NULL}},
        name);
    oct_to_c_add(w, &w->calls, "    %s(&layer_%lld, weight_%lld, bias_%lld, %s_%lld, ", name,
                 (long long)number, (long long)number, (long long)number,
                 shifts(&l) ? "shift" : "multiplier", (long long)number);
    if (is_fixed(&l)) oct_to_c_add(w, &w->calls, "shift_%lld, ", (long long)number);
    if (l.second) oct_to_c_add(w, &w->calls, "%s, ", oct_to_c_value(w, step->input[1], second));
    oct_to_c_add(w, &w->calls, "%s, %s);\n", oct_to_c_value(w, step->input[0], x),
                 oct_to_c_value(w, step->output, y));
}

/* Two tensors that meet element by element. */
typedef struct pair {
    const oct_step *step;
    int64_t number;
    const oct_value *a, *b, *y;
    bool wide;
} pair;

static pair pair_of(const oct_to_c *w, int64_t number)
{
    const oct_step *step = &w->program->steps[number];
    pair p = {.step = step,
              .number = number,
              .a = oct_step_input(w->program, step, 0),
              .b = oct_step_input(w->program, step, 1),
              .y = oct_step_output(w->program, step)};
    p.wide = p.a->dtype == OCT_U16 || p.b->dtype == OCT_U16 || p.y->dtype == OCT_U16;
    return p;
}

/* What stands behind the strides in a pair_layer. */
typedef struct factors {
    int32_t lo, hi;
    int64_t ma, mb;
    int shift;
    float factor;
} factors;

static void write_pair_layer(oct_to_c *w, const pair *p, factors f)
{
    oct_broadcast b = {0};
    const oct_shape a = OCT_SHAPE(1, p->a->h, p->a->w, p->a->c),
                    second = OCT_SHAPE(1, p->b->h, p->b->w, p->b->c);
    (void)oct_broadcast_of(&a, &second, &b); /* they meet: the program has been checked */
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
    oct_to_c_need(w, "pair_layer", false);
    oct_to_c_layer(w, 14, 2); /* with 4 bytes to align */
    oct_to_c_add(
        w, &w->constants,
        "CONSTANT_PLACE static const pair_layer layer_%lld = {\n"
        "    .positions = %lld, .channels = %lld, .a_position = %lld, .a_channel = %lld, "
        ".b_position = %lld, .b_channel = %lld,\n"
        "    .zero_a = %d, .zero_b = %d, .zero_y = %d, .lo = %d, .hi = %d,\n"
        "    .multiplier_a = %lld, .multiplier_b = %lld, .shift = %d, .factor = %aF,\n};\n",
        (long long)p->number, (long long)b.positions, (long long)b.channels, (long long)position[0],
        (long long)channel[0], (long long)position[1], (long long)channel[1], p->a->q.zero_point,
        p->b->q.zero_point, p->y->q.zero_point, f.lo, f.hi, (long long)f.ma, (long long)f.mb,
        f.shift, (double)f.factor);
}

/* parameters: further ones of the call, behind its layer. */
static void write_pair(oct_to_c *w, const pair *p, const oct_to_c_form *of, const char *parameters)
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

static void write_steps(oct_to_c *w, const pair *p)
{
    const oct_qadd *add = &p->step->add;
    const oct_qadd_steps s = oct_qadd_steps_of(add, p->a->q, p->b->q, p->y->q);
    char parameters[OCT_TO_C_TEXT];
    write_fixed(w, p->number, 3, (const oct_fixed[]){s.a, s.b, s.y});
    write_pair_layer(w, p, (factors){.lo = add->lo, .hi = add->hi, .mb = add->mb < 0 ? -1 : 1});
    snprintf(parameters, sizeof parameters, "multiplier_%lld, shift_%lld, ", (long long)p->number,
             (long long)p->number);
    write_pair(w, p, &(oct_to_c_form){.kernel = "add_steps", .needs = {"requantize_double"}},
               parameters);
}

static void write_shifted(oct_to_c *w, const pair *p)
{
    const oct_qadd *add = &p->step->add;
    const oct_qadd_shifted s = oct_qadd_shifted_of(add, p->a->q, p->b->q, p->y->q);
    char parameters[OCT_TO_C_TEXT];
    write_pair_layer(w, p, (factors){.lo = add->lo, .hi = add->hi, .ma = s.a, .mb = s.b});
    snprintf(parameters, sizeof parameters, "%d, %d, %d, ", s.y.multiplier, 15 - s.y.exponent,
             oct_to_c_behind(p->y));
    write_pair(w, p, &(oct_to_c_form){.kernel = "add_fixed", .needs = {"requantize_q15"}},
               parameters);
}

static void write_add(oct_to_c *w, int64_t number)
{
    const pair p = pair_of(w, number);
    const oct_qadd *add = &p.step->add;
    if (w->program->requantizer == OCT_REQUANT_DOUBLE) {
        write_steps(w, &p);
        return;
    }
    if (w->program->requantizer == OCT_REQUANT_Q15) {
        write_shifted(w, &p);
        return;
    }
    write_pair_layer(
        w, &p,
        (factors){.lo = add->lo, .hi = add->hi, .ma = add->ma, .mb = add->mb, .shift = add->shift});
    write_pair(w, &p, &(oct_to_c_form){.kernel = "add"}, "");
}

/* A factor beyond 2^24 takes every product but 0 beyond all codes, as 2^24 does. */
static int power_of(float factor)
{
    int exponent;
    (void)frexpf(factor, &exponent);
    return (int)oct_min_i64(exponent - 1, 24);
}

static void write_mul(oct_to_c *w, int64_t number)
{
    const pair p = pair_of(w, number);
    const oct_qparams q = p.y->q;
    const char *type = oct_to_c_type(p.y->dtype);
    const bool shifts_all = oct_requantizer_shifts(w->program->requantizer);
    oct_to_c_form form = {.kernel = "mul", .variant = "even", .needs = {"round_even"}};
    char result[OCT_TO_C_TEXT];
    const bool twice = w->program->requantizer == OCT_REQUANT_DOUBLE;
    const bool of_15_bits = w->program->requantizer == OCT_REQUANT_Q15;
    const oct_fixed fixed =
        oct_fixed_of_layer(w->program->requantizer, p.a->q.scale, p.b->q.scale, q.scale);
    write_pair_layer(w, &p,
                     (factors){.lo = q.qmin - q.zero_point,
                               .hi = q.qmax - q.zero_point,
                               .ma = fixed.multiplier,
                               .shift = shifts_all   ? -power_of(p.step->factor)
                                        : of_15_bits ? 15 - fixed.exponent
                                                     : fixed.exponent,
                               .factor = p.step->factor});
    if (shifts_all) {
        const bool even = w->program->requantizer == OCT_REQUANT_SHIFT_EVEN;
        form.variant = even ? "shift_even" : "shift";
        form.needs[0] = even ? "requantize_shift_even" : "requantize_shift";
        snprintf(result, sizeof result, "(%s)(%s(sum, l->shift, l->lo, l->hi) + l->zero_y)", type,
                 form.needs[0]);
    } else if (of_15_bits) {
        snprintf(result, sizeof result,
                 "(%s)(requantize_q15(sum, (int32_t)l->multiplier_a, l->shift, %d, l->lo, l->hi) + "
                 "l->zero_y)",
                 type, oct_to_c_behind(p.y));
        form.variant = "q15";
        form.needs[0] = "requantize_q15";
    } else if (twice) {
        snprintf(result, sizeof result,
                 "(%s)(requantize_double(sum, (int32_t)l->multiplier_a, l->shift, l->lo, l->hi) + "
                 "l->zero_y)",
                 type);
        form.variant = "twice";
        form.needs[0] = "requantize_double";
    } else if (p.step->offset_first) {
        snprintf(result, sizeof result, "(%s)offset_first(sum, l->factor, l->zero_y, l->lo, l->hi)",
                 type);
        form.variant = form.needs[0] = "offset_first";
    } else {
        snprintf(
            result, sizeof result,
            p.wide
                ? "(%s)(round_even_wide((double)sum * (double)l->factor, l->lo, l->hi) + l->zero_y)"
                : "(%s)(round_even((float)sum * l->factor, l->lo, l->hi) + l->zero_y)",
            type);
    }
    form.result = result;
    write_pair(w, &p, &form, "");
}

const oct_to_c_step_type oct_to_c_product_steps[] = {
    {"conv", write_conv}, {"conv_float", write_conv}, {"affine", write_conv},
    {"add", write_add},   {"mul", write_mul},
};
const size_t oct_to_c_product_steps_count = OCT_COUNT(oct_to_c_product_steps);
