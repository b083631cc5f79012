/* The integer program as data: its release, and the check that everything about it holds before the
 * runtime, an exporter or a table printer relies on it. Programs come from files, so nothing here may
 * read an array before its size is known to be right. */
#include "quant/runtime/program.h"

#include "core/base/mem.h"

#include <math.h>
#include <string.h>

enum { MAX_STEPS = 65536, MAX_DIM = 65536, MAX_WINDOW = 1024, MAX_MULTIPLIER = 1 << 21 };

static const int64_t max_value_bytes = INT64_C(1) << 30;  /* of one sample */
static const int64_t max_weight_bytes = INT64_C(1) << 31; /* of one step */

static const char *const kind_names[] = {
#define X(name, text) text,
    OCT_STEP_LIST(X)
#undef X
};

void oct_program_free(oct_program *program)
{
    for (int64_t i = 0; program->steps && i < program->num_steps; i++) {
        oct_step *step = &program->steps[i];
        oct_free(&step->weight);
        oct_free(&step->bias);
        oct_free(&step->multiplier);
        oct_free(&step->weight_scale);
    }
    oct_free(&program->steps);
    oct_free(&program->values);
    *program = (oct_program){0};
}

static bool is_size(int64_t dim)
{
    return dim >= 1 && dim <= MAX_DIM;
}

static bool is_scale(float scale)
{
    return isfinite(scale) && scale > 0.0f;
}

static int64_t value_numel(const oct_value *value)
{
    return value->h * value->w * value->c;
}

static bool same_qparams(oct_qparams a, oct_qparams b)
{
    return a.scale == b.scale && a.zero_point == b.zero_point && a.qmin == b.qmin &&
           a.qmax == b.qmax;
}

static oct_status check_value(const oct_program *program, int64_t number)
{
    const oct_value *value = &program->values[number];
    OCT_CHECK(value->dtype == OCT_U8 || value->dtype == OCT_F32, OCT_DATA,
              "value %lld: its type is neither u8 nor f32", (long long)number);
    OCT_CHECK(is_size(value->h) && is_size(value->w) && is_size(value->c), OCT_DATA,
              "value %lld: its shape (%lld, %lld, %lld) is not within 1 to %d", (long long)number,
              (long long)value->h, (long long)value->w, (long long)value->c, MAX_DIM);
    OCT_CHECK(value_numel(value) <= max_value_bytes / (int64_t)sizeof(float), OCT_DATA,
              "value %lld: one sample takes more than 1 GiB", (long long)number);
    if (value->dtype == OCT_F32) return OCT_OK;
    const oct_qparams *q = &value->q;
    OCT_CHECK(is_scale(q->scale), OCT_DATA, "value %lld: its scale is not a positive finite number",
              (long long)number);
    OCT_CHECK(q->qmin >= 0 && q->qmin < q->qmax && q->qmax <= 255 && q->zero_point >= q->qmin &&
                  q->zero_point <= q->qmax,
              OCT_DATA,
              "value %lld: its codes %d to %d with zero point %d are not a range of unsigned bytes",
              (long long)number, q->qmin, q->qmax, q->zero_point);
    return OCT_OK;
}

/* Sizes of a window and the arithmetic of the output plane, which pools and convolutions share. */
static oct_status check_window(const oct_step *step, int most_padding)
{
    const oct_conv_shape *s = &step->conv;
    OCT_CHECK(is_size(s->in_h) && is_size(s->in_w) && is_size(s->in_c) && is_size(s->out_h) &&
                  is_size(s->out_w) && is_size(s->out_c),
              OCT_DATA, "its sizes are not within 1 to %d", MAX_DIM);
    OCT_CHECK(s->kernel_h >= 1 && s->kernel_h <= MAX_WINDOW && s->kernel_w >= 1 &&
                  s->kernel_w <= MAX_WINDOW && s->stride >= 1 && s->stride <= MAX_WINDOW,
              OCT_DATA, "its kernel and stride are not within 1 to %d", MAX_WINDOW);
    OCT_CHECK(s->padding >= 0 && s->padding <= most_padding, OCT_DATA,
              "padding %d is not within 0 to %d", s->padding, most_padding);
    const int64_t room_h = s->in_h + 2 * s->padding - s->kernel_h;
    const int64_t room_w = s->in_w + 2 * s->padding - s->kernel_w;
    OCT_CHECK(room_h >= 0 && room_w >= 0, OCT_DATA, "its kernel is larger than its input");
    OCT_CHECK(s->out_h == room_h / s->stride + 1 && s->out_w == room_w / s->stride + 1, OCT_DATA,
              "output plane %lld x %lld does not follow from its input, kernel, stride and padding",
              (long long)s->out_h, (long long)s->out_w);
    return OCT_OK;
}

/* A value may enter flattened: NHWC makes that a mere view. */
static bool fits_input(const oct_conv_shape *s, const oct_value *value)
{
    if (s->in_h == value->h && s->in_w == value->w && s->in_c == value->c) return true;
    return s->in_h == 1 && s->in_w == 1 && s->in_c == value_numel(value);
}

static bool fits_output(const oct_conv_shape *s, const oct_value *value)
{
    return s->out_h == value->h && s->out_w == value->w && s->out_c == value->c;
}

static oct_status check_conv(const oct_program *program, const oct_step *step)
{
    const oct_conv_shape *s = &step->conv;
    const oct_value *in = &program->values[step->input[0]], *out = &program->values[step->output];
    OCT_TRY(check_window(step, MAX_WINDOW));
    OCT_CHECK(s->groups >= 1 && s->in_c % s->groups == 0 && s->out_c % s->groups == 0, OCT_DATA,
              "%d groups do not divide %lld input and %lld output channels", s->groups,
              (long long)s->in_c, (long long)s->out_c);
    OCT_CHECK(fits_input(s, in), OCT_DATA, "its input shape is not that of value %d",
              step->input[0]);
    OCT_CHECK(fits_output(s, out), OCT_DATA, "its output shape is not that of value %d",
              step->output);
    OCT_CHECK(step->weight && step->bias && step->multiplier && step->weight_scale, OCT_DATA,
              "weights, biases, multipliers or weight scales are missing");
    /* Each factor is at most 2^17, so neither product overflows. */
    const int64_t taps = (int64_t)s->kernel_h * s->kernel_w * (s->in_c / s->groups);
    OCT_CHECK(taps <= max_weight_bytes / s->out_c, OCT_DATA, "its weights take more than 2 GiB");
    for (int64_t c = 0; c < s->out_c; c++) {
        OCT_CHECK(isfinite(step->multiplier[c]), OCT_DATA, "multiplier %lld is not finite",
                  (long long)c);
        OCT_CHECK(is_scale(step->weight_scale[c]), OCT_DATA,
                  "weight scale %lld is not a positive finite number", (long long)c);
        OCT_CHECK(oct_qconv_bound(s, step->weight, c, step->bias[c], in->q.qmin, in->q.qmax) <=
                      INT32_MAX,
                  OCT_DATA, "the sums of channel %lld can leave 32 bits", (long long)c);
    }
    if (step->kind == OCT_STEP_CONV_FLOAT) return OCT_OK;
    const oct_qparams *q = &out->q;
    OCT_CHECK(step->lo <= step->hi && step->lo >= q->qmin - q->zero_point &&
                  step->hi <= q->qmax - q->zero_point,
              OCT_DATA, "bounds %d to %d are not within the codes of value %d", step->lo, step->hi,
              step->output);
    return OCT_OK;
}

static oct_status check_add(const oct_program *program, const oct_step *step)
{
    const oct_value *a = &program->values[step->input[0]], *b = &program->values[step->input[1]];
    const oct_value *y = &program->values[step->output];
    const oct_qadd *add = &step->add;
    OCT_CHECK(a->h == b->h && a->w == b->w && a->c == b->c && a->h == y->h && a->w == y->w &&
                  a->c == y->c,
              OCT_DATA, "its inputs and output differ in shape");
    OCT_CHECK(add->ma >= 0 && add->ma <= MAX_MULTIPLIER && add->mb >= 0 &&
                  add->mb <= MAX_MULTIPLIER && add->shift >= 1 && add->shift <= 30,
              OCT_DATA, "its multipliers %d, %d and shift %d are out of range", add->ma, add->mb,
              add->shift);
    OCT_CHECK(add->za == a->q.zero_point && add->zb == b->q.zero_point &&
                  add->zero_point == y->q.zero_point,
              OCT_DATA, "its zero points are not those of its values");
    OCT_CHECK(add->lo <= add->hi && add->lo >= y->q.qmin - y->q.zero_point &&
                  add->hi <= y->q.qmax - y->q.zero_point,
              OCT_DATA, "bounds %d to %d are not within the codes of value %d", add->lo, add->hi,
              step->output);
    return OCT_OK;
}

static oct_status check_pool(const oct_program *program, const oct_step *step)
{
    const oct_conv_shape *s = &step->conv;
    const oct_value *in = &program->values[step->input[0]], *out = &program->values[step->output];
    const bool largest = step->kind == OCT_STEP_MAX_POOL;
    /* No window may lie in the border alone. */
    const int kernel = s->kernel_h < s->kernel_w ? s->kernel_h : s->kernel_w;
    OCT_TRY(check_window(step, largest ? kernel / 2 : 0));
    OCT_CHECK(!largest || s->kernel_h == s->kernel_w, OCT_DATA, "its kernel is not square");
    OCT_CHECK(s->in_h == in->h && s->in_w == in->w && s->in_c == in->c, OCT_DATA,
              "its input shape is not that of value %d", step->input[0]);
    OCT_CHECK(fits_output(s, out) && s->out_c == s->in_c, OCT_DATA,
              "its output shape is not that of value %d", step->output);
    OCT_CHECK(same_qparams(in->q, out->q), OCT_DATA,
              "its output is quantized otherwise than its input");
    return OCT_OK;
}

static oct_status check_boundary(const oct_program *program, const oct_step *step)
{
    const oct_value *in = &program->values[step->input[0]], *out = &program->values[step->output];
    OCT_CHECK(in->h == out->h && in->w == out->w && in->c == out->c, OCT_DATA,
              "its input and output differ in shape");
    return OCT_OK;
}

/* Types of input and output, inputs, and the check of the kind. */
typedef struct kind_rule {
    oct_dtype in, out;
    int inputs;
    oct_status (*check)(const oct_program *program, const oct_step *step);
} kind_rule;

static const kind_rule rules[] = {
    [OCT_STEP_QUANTIZE] = {OCT_F32, OCT_U8, 1, check_boundary},
    [OCT_STEP_CONV] = {OCT_U8, OCT_U8, 1, check_conv},
    [OCT_STEP_CONV_FLOAT] = {OCT_U8, OCT_F32, 1, check_conv},
    [OCT_STEP_ADD] = {OCT_U8, OCT_U8, 2, check_add},
    [OCT_STEP_MAX_POOL] = {OCT_U8, OCT_U8, 1, check_pool},
    [OCT_STEP_AVG_POOL] = {OCT_U8, OCT_U8, 1, check_pool},
    [OCT_STEP_DEQUANTIZE] = {OCT_U8, OCT_F32, 1, check_boundary},
};

static bool is_value(const oct_program *program, int32_t number)
{
    return number >= 0 && number < program->num_values;
}

/* made[v]: value v exists before this step. */
static oct_status check_step(const oct_program *program, const oct_step *step, bool *made)
{
    const kind_rule *rule = &rules[step->kind];
    for (int i = 0; i < rule->inputs; i++) {
        const int32_t input = step->input[i];
        OCT_CHECK(is_value(program, input), OCT_DATA, "input value %d does not exist", input);
        OCT_CHECK(made[input], OCT_DATA, "value %d is used before it is made", input);
        OCT_CHECK(program->values[input].dtype == rule->in, OCT_DATA, "input value %d is not %s",
                  input, oct_dtype_name(rule->in));
    }
    OCT_CHECK(is_value(program, step->output), OCT_DATA, "output value %d does not exist",
              step->output);
    OCT_CHECK(!made[step->output], OCT_DATA, "value %d is made a second time", step->output);
    OCT_CHECK(program->values[step->output].dtype == rule->out, OCT_DATA,
              "output value %d is not %s", step->output, oct_dtype_name(rule->out));
    OCT_TRY(rule->check(program, step));
    made[step->output] = true;
    return OCT_OK;
}

static oct_status check_steps(const oct_program *program, bool *made)
{
    made[program->input] = true;
    for (int64_t i = 0; i < program->num_steps; i++) {
        const oct_step *step = &program->steps[i];
        OCT_CHECK((int)step->kind >= 0 && step->kind < OCT_STEP_KINDS, OCT_DATA,
                  "step %lld: kind %d does not exist", (long long)i, (int)step->kind);
        OCT_CHECK(memchr(step->name, '\0', sizeof step->name) && step->name[0], OCT_DATA,
                  "step %lld: its name is empty or does not end", (long long)i);
        if (check_step(program, step, made) != OCT_OK)
            return oct_fail_prefix("step %lld (%s \"%s\")", (long long)i, kind_names[step->kind],
                                   step->name);
    }
    for (int64_t v = 0; v < program->num_values; v++)
        OCT_CHECK(made[v], OCT_DATA, "value %lld is never made", (long long)v);
    return OCT_OK;
}

oct_status oct_program_check(const oct_program *program)
{
    OCT_CHECK(program->num_steps >= 1 && program->num_steps <= MAX_STEPS &&
                  program->num_values >= 2 && program->num_values <= MAX_STEPS + 1 &&
                  program->steps && program->values,
              OCT_DATA, "the program has no steps, or more than %d", MAX_STEPS);
    for (int64_t v = 0; v < program->num_values; v++)
        OCT_TRY(check_value(program, v));
    OCT_CHECK(is_value(program, program->input) && is_value(program, program->output) &&
                  program->input != program->output,
              OCT_DATA, "the program's input %d and output %d are not two of its values",
              program->input, program->output);
    OCT_CHECK(program->values[program->input].dtype == OCT_F32 &&
                  program->values[program->output].dtype == OCT_F32,
              OCT_DATA, "the program's input and output are not f32");
    bool *made = NULL;
    OCT_TRY(oct_alloc(&made, (size_t)program->num_values, sizeof *made));
    const oct_status status = check_steps(program, made);
    oct_free(&made);
    return status;
}
