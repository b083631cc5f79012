/* The integer program as data: its release, and the check that everything about it holds before the
 * runtime, an exporter or a table printer relies on it. Programs come from files, so nothing here may
 * read an array before its size is known to be right. */
#include "quant/program/step.h"

#include "core/base/mem.h"

#include <math.h>
#include <string.h>

static const int64_t max_value_bytes = INT64_C(1) << 30; /* of one sample */

void oct_program_free(oct_program *program)
{
    for (int64_t i = 0; program->steps && i < program->num_steps; i++) {
        oct_step *step = &program->steps[i];
        const oct_step_type *type = oct_step_type_of(step->kind);
        for (int k = 0; type && k < type->num_arrays; k++)
            oct_free(oct_step_slot(step, &type->arrays[k]));
        if (step->kind != OCT_STEP_FLOAT || !step->fallback) continue;
        oct_fallback *fallback = step->fallback;
        for (int64_t k = 0; fallback->arrays && k < fallback->num_arrays; k++) {
            oct_free(&fallback->arrays[k].name);
            oct_free(&fallback->arrays[k].data);
        }
        oct_free(&fallback->arrays);
        oct_free(&step->fallback);
    }
    oct_free(&program->steps);
    oct_free(&program->values);
    *program = (oct_program){0};
}

static oct_status copy_block(void *to /* T ** */, const void *from, size_t count, size_t size)
{
    void *own;
    OCT_TRY(oct_alloc(&own, count, size));
    if (count > 0) memcpy(own, from, count * size);
    memcpy(to, &own, sizeof own);
    return OCT_OK;
}

oct_status oct_fallback_add_array(oct_fallback *fallback, size_t *capacity, const char *name,
                                  oct_dtype dtype, const oct_shape *shape, const void *data)
{
    OCT_TRY(oct_grow(&fallback->arrays, capacity, (size_t)fallback->num_arrays + 1,
                     sizeof *fallback->arrays));
    oct_fallback_array *to = &fallback->arrays[fallback->num_arrays++];
    *to = (oct_fallback_array){.dtype = dtype, .shape = *shape};
    OCT_TRY(oct_strdup(&to->name, name));
    return copy_block(&to->data, data, (size_t)oct_shape_numel(shape), oct_dtype_bytes(dtype));
}

static oct_status copy_fallback(oct_fallback **copy, const oct_fallback *fallback)
{
    size_t capacity = 0;
    OCT_TRY(oct_alloc(copy, 1, sizeof **copy));
    **copy = *fallback;
    (*copy)->arrays = NULL;
    (*copy)->num_arrays = 0;
    for (int64_t i = 0; i < fallback->num_arrays; i++) {
        const oct_fallback_array *a = &fallback->arrays[i];
        OCT_TRY(oct_fallback_add_array(*copy, &capacity, a->name, a->dtype, &a->shape, a->data));
    }
    return OCT_OK;
}

oct_status oct_program_copy(oct_program *copy, const oct_program *program)
{
    *copy = *program;
    copy->values = NULL;
    copy->steps = NULL;
    OCT_TRY(copy_block(&copy->values, program->values, (size_t)program->num_values,
                       sizeof *program->values));
    OCT_TRY(oct_alloc(&copy->steps, (size_t)program->num_steps, sizeof *copy->steps));
    for (int64_t i = 0; i < program->num_steps; i++) {
        const oct_step *from = &program->steps[i];
        const oct_step_type *type = oct_step_type_of(from->kind);
        oct_step *to = &copy->steps[i];
        *to = *from;
        if (from->kind == OCT_STEP_FLOAT) to->fallback = NULL;
        for (int k = 0; k < type->num_arrays; k++)
            memset(oct_step_slot(to, &type->arrays[k]), 0, sizeof(void *));
        for (int k = 0; k < type->num_arrays; k++)
            OCT_TRY(copy_block(oct_step_slot(to, &type->arrays[k]),
                               oct_step_data(from, &type->arrays[k]),
                               (size_t)oct_step_array_numel(from, &type->arrays[k]),
                               oct_dtype_bytes(type->arrays[k].dtype)));
        if (from->kind == OCT_STEP_FLOAT) OCT_TRY(copy_fallback(&to->fallback, from->fallback));
    }
    return OCT_OK;
}

/* Checks type, shape and qparams of a value. */
static oct_status check_value(const oct_program *program, int64_t number)
{
    const oct_value *value = &program->values[number];
    OCT_CHECK(value->dtype == OCT_U8 || value->dtype == OCT_U16 || value->dtype == OCT_F32 ||
                  value->dtype == OCT_S32,
              OCT_DATA, "value %lld: its type is none of u8, u16, f32 and s32", (long long)number);
    OCT_CHECK(oct_is_size(value->h) && oct_is_size(value->w) && oct_is_size(value->c), OCT_DATA,
              "value %lld: its shape (%lld, %lld, %lld) is not within 1 to %d", (long long)number,
              (long long)value->h, (long long)value->w, (long long)value->c, OCT_DIM_MAX);
    OCT_CHECK(oct_value_numel(value) <= max_value_bytes / (int64_t)sizeof(float), OCT_DATA,
              "value %lld: one sample takes more than 1 GiB", (long long)number);
    if (value->dtype != OCT_U8 && value->dtype != OCT_U16) return OCT_OK;
    const oct_qparams *q = &value->q;
    OCT_CHECK(isfinite(q->scale) && q->scale > 0.0f, OCT_DATA,
              "value %lld: its scale is not a positive finite number", (long long)number);
    OCT_CHECK(q->qmin >= 0 && q->qmin < q->qmax && q->qmax <= UINT16_MAX &&
                  q->zero_point >= q->qmin && q->zero_point <= q->qmax &&
                  oct_codes_dtype(*q) == value->dtype,
              OCT_DATA, "value %lld: its codes %d to %d with zero point %d are not a range of %s",
              (long long)number, q->qmin, q->qmax, q->zero_point, oct_dtype_name(value->dtype));
    return OCT_OK;
}

static bool is_value(const oct_program *program, int32_t number)
{
    return number >= 0 && number < program->num_values;
}

/* Checks that an input or output of a step is float or codes, as its kind wants. */
static oct_status check_domain(const oct_program *program, const char *role, int32_t number,
                               bool is_float)
{
    const oct_dtype dtype = program->values[number].dtype;
    OCT_CHECK(is_float ? dtype == OCT_F32 : dtype == OCT_U8 || dtype == OCT_U16, OCT_DATA,
              is_float ? "%s value %d is not f32" : "%s value %d is not codes", role, number);
    return OCT_OK;
}

/* Checks a step's values, then what its kind relies on. made[v]: v exists before the step; then its output does. */
static oct_status check_step(const oct_program *program, const oct_step *step, bool *made)
{
    const oct_step_type *type = oct_step_type_of(step->kind);
    OCT_CHECK(step->num_inputs >= type->inputs[0] && step->num_inputs <= type->inputs[1] &&
                  step->num_inputs <= OCT_STEP_INPUTS,
              OCT_DATA, "%d inputs; it takes %d to %d", step->num_inputs, type->inputs[0],
              type->inputs[1]);
    for (int i = 0; i < step->num_inputs; i++) {
        const int32_t input = step->input[i];
        OCT_CHECK(is_value(program, input), OCT_DATA, "input value %d does not exist", input);
        OCT_CHECK(made[input], OCT_DATA, "value %d is used before it is made", input);
        if (!type->any_domain) OCT_TRY(check_domain(program, "input", input, type->float_in));
    }
    OCT_CHECK(is_value(program, step->output), OCT_DATA, "output value %d does not exist",
              step->output);
    OCT_CHECK(!made[step->output], OCT_DATA, "value %d is made a second time", step->output);
    if (!type->any_domain) OCT_TRY(check_domain(program, "output", step->output, type->float_out));
    OCT_TRY(type->check(program, step));
    made[step->output] = true;
    return OCT_OK;
}

static oct_status check_steps(const oct_program *program, bool *made)
{
    for (int i = 0; i < program->num_inputs; i++)
        made[program->inputs[i]] = true;
    for (int64_t i = 0; i < program->num_steps; i++) {
        const oct_step *step = &program->steps[i];
        OCT_CHECK(oct_step_type_of(step->kind), OCT_DATA, "step %lld: kind %d does not exist",
                  (long long)i, (int)step->kind);
        OCT_CHECK(memchr(step->name, '\0', sizeof step->name) && step->name[0], OCT_DATA,
                  "step %lld: its name is empty or does not end", (long long)i);
        if (check_step(program, step, made) != OCT_OK)
            return oct_fail_prefix("step %lld (%s \"%s\")", (long long)i,
                                   oct_step_type_of(step->kind)->name, step->name);
    }
    for (int64_t v = 0; v < program->num_values; v++)
        OCT_CHECK(made[v], OCT_DATA, "value %lld is never made", (long long)v);
    return OCT_OK;
}

/* Checks that an input or the output of the program is f32; the output may also be class numbers, s32 (`numbers`). */
static oct_status check_end(const oct_program *program, const char *role, int32_t number,
                            bool numbers)
{
    OCT_CHECK(is_value(program, number) && (program->values[number].dtype == OCT_F32 ||
                                            (numbers && program->values[number].dtype == OCT_S32)),
              OCT_DATA, "the program's %s %d is not one of its f32 %svalues", role, number,
              numbers ? "or s32 " : "");
    return OCT_OK;
}

static oct_status check_ends(const oct_program *program)
{
    OCT_CHECK(program->num_inputs >= 1 && program->num_inputs <= OCT_PROGRAM_INPUTS, OCT_DATA,
              "the program has %d inputs; 1 to %d are allowed", program->num_inputs,
              OCT_PROGRAM_INPUTS);
    OCT_TRY(check_end(program, "output", program->output, true));
    for (int i = 0; i < program->num_inputs; i++) {
        OCT_TRY(check_end(program, "input", program->inputs[i], false));
        OCT_CHECK(program->inputs[i] != program->output, OCT_DATA,
                  "value %d is both an input and the output of the program", program->output);
        for (int k = 0; k < i; k++)
            OCT_CHECK(program->inputs[i] != program->inputs[k], OCT_DATA,
                      "value %d is an input of the program twice", program->inputs[i]);
    }
    return OCT_OK;
}

oct_status oct_program_check(const oct_program *program)
{
    OCT_CHECK(program->num_steps >= 1 && program->num_steps <= OCT_PROGRAM_STEPS_MAX &&
                  program->num_values >= 2 &&
                  program->num_values <= OCT_PROGRAM_STEPS_MAX + OCT_PROGRAM_INPUTS &&
                  program->steps && program->values,
              OCT_DATA, "the program has no steps, or more than %d", OCT_PROGRAM_STEPS_MAX);
    OCT_CHECK(memchr(program->target, '\0', sizeof program->target), OCT_DATA,
              "the name of the program's target does not end");
    for (int64_t v = 0; v < program->num_values; v++)
        OCT_TRY(check_value(program, v));
    OCT_TRY(check_ends(program));
    OCT_OWNED(oct_free) bool *made = NULL;
    OCT_TRY(oct_alloc(&made, (size_t)program->num_values, sizeof *made));
    return check_steps(program, made);
}
