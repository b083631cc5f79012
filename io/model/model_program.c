/* Programs in model files.
 *
 * Steps and values are tables of integers with one row each, and what a step's row and its arrays mean
 * is said by its kind (quant/runtime/step_<kind>.c); float fallbacks have a folder of their own. A file is
 * read in the order in which each part bounds the next: counts, tables, then arrays whose shapes follow
 * from the tables.
 */
#include "io/model/model_program.h"

#include "core/base/mem.h"
#include "core/base/text.h"
#include "quant/program/step.h"

#include <stdio.h>
#include <string.h>

enum {
    STEPS_MAX = OCT_MODEL_STEPS_MAX,
    VALUES_MAX = OCT_MODEL_VALUES_MAX,
    DIM_MAX = OCT_DIM_MAX,
};
static const int64_t array_numel_max = (int64_t)1 << 28;
static const size_t text_bytes_max = (size_t)1 << 20;

/* Columns of program/steps: what every step has, then the cells of its kind (quant/program/step.h). The inputs
 * of all steps stand in a row in program/step_inputs. */
enum {
    NUM_INPUTS,
    OUTPUT,
    CELLS,
    STEP_WIDTH = CELLS + OCT_STEP_CELLS,
};

/* Columns of program/values; the types and scales are beside it. */
#define VALUE_COLUMNS(X)                                                                           \
    X(h, 1, DIM_MAX)                                                                               \
    X(w, 1, DIM_MAX)                                                                               \
    X(c, 1, DIM_MAX)                                                                               \
    X(q.zero_point, INT32_MIN, INT32_MAX)                                                          \
    X(q.qmin, INT32_MIN, INT32_MAX)                                                                \
    X(q.qmax, INT32_MIN, INT32_MAX)

#define COUNT_COLUMN(field, min, max) +1
enum { VALUE_WIDTH = 0 VALUE_COLUMNS(COUNT_COLUMN) };

/* Columns of a float fallback's "shapes": its arrays' types, dimensions and sizes. */
enum { ARRAY_DTYPE, ARRAY_NDIM, ARRAY_DIM, ARRAY_WIDTH = ARRAY_DIM + OCT_MAX_DIMS };

bool oct_is_plain_text(const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if ((c < ' ' && c != '\n' && c != '\t') || c == 0x7f) return false;
    }
    return true;
}

/* The path of what belongs to a step: "program/weights/12/bias". */
static const char *part_path(char path[64], const char *group, int64_t step, const char *name)
{
    snprintf(path, 64, "program/%s/%lld/%s", group, (long long)step, name);
    return path;
}

static const char *array_path(char path[64], int64_t step, int64_t array)
{
    snprintf(path, 64, "program/islands/%lld/arrays/%lld", (long long)step, (long long)array);
    return path;
}

/* Writing. */

/* One row of each table. */
static void put_step(const oct_step *step, int64_t *row, float *factors)
{
    row[NUM_INPUTS] = step->num_inputs;
    row[OUTPUT] = step->output;
    oct_step_get_fields(step, row + CELLS, factors);
}

static oct_status write_step_inputs(oct_h5 *h5, const oct_program *program)
{
    oct_status status = OCT_OK;
    int64_t *inputs = NULL, count = 0;
    OCT_TRY(oct_alloc(&inputs, (size_t)program->num_steps * OCT_STEP_INPUTS, sizeof *inputs));
    for (int64_t i = 0; i < program->num_steps; i++)
        for (int k = 0; k < program->steps[i].num_inputs; k++)
            inputs[count++] = program->steps[i].input[k];
    status = oct_h5_write(h5, "program/step_inputs", OCT_S64, OCT_SHAPE(count), inputs);
    oct_free(&inputs);
    return status;
}

static oct_status write_steps(oct_h5 *h5, const oct_program *program)
{
    oct_status status = OCT_OK;
    oct_text kinds = {0}, names = {0};
    int64_t *table = NULL;
    float *factors = NULL;
    const int64_t steps = program->num_steps;

    OCT_TRY_OUT(oct_alloc(&table, (size_t)steps * STEP_WIDTH, sizeof *table));
    OCT_TRY_OUT(oct_alloc(&factors, (size_t)steps * OCT_STEP_FACTORS, sizeof *factors));
    for (int64_t i = 0; i < steps; i++) {
        const oct_step *step = &program->steps[i];
        put_step(step, table + i * STEP_WIDTH, factors + i * OCT_STEP_FACTORS);
        OCT_TRY_OUT(oct_text_add(&kinds, "%s\n", oct_step_type_of(step->kind)->name));
        OCT_TRY_OUT(oct_text_add(&names, "%s\n", step->name));
    }
    OCT_TRY_OUT(oct_h5_write(h5, "program/steps", OCT_S64, OCT_SHAPE(steps, STEP_WIDTH), table));
    OCT_TRY_OUT(write_step_inputs(h5, program));
    OCT_TRY_OUT(oct_h5_write(h5, "program/step_factors", OCT_F32,
                             OCT_SHAPE(steps, OCT_STEP_FACTORS), factors));
    OCT_TRY_OUT(oct_h5_write_text(h5, "program/step_kinds", kinds.data));
    status = oct_h5_write_text(h5, "program/step_names", names.data);
out:
    oct_free(&table);
    oct_free(&factors);
    oct_text_free(&kinds);
    oct_text_free(&names);
    return status;
}

static oct_status write_values(oct_h5 *h5, const oct_program *program)
{
    oct_status status = OCT_OK;
    oct_text dtypes = {0};
    int64_t *table = NULL;
    float *scales = NULL;

    OCT_TRY_OUT(oct_alloc(&table, (size_t)program->num_values * VALUE_WIDTH, sizeof *table));
    OCT_TRY_OUT(oct_alloc(&scales, (size_t)program->num_values, sizeof *scales));
    for (int64_t i = 0; i < program->num_values; i++) {
        oct_value value = program->values[i];
        int64_t *cell = table + i * VALUE_WIDTH;
        if (value.dtype != OCT_U8 && value.dtype != OCT_U16)
            value.q = (oct_qparams){0}; /* undefined: it must not matter */
#define X(field, min, max) *cell++ = value.field;
        VALUE_COLUMNS(X)
#undef X
        scales[i] = value.q.scale;
        OCT_TRY_OUT(oct_text_add(&dtypes, "%s\n", oct_dtype_name(value.dtype)));
    }
    OCT_TRY_OUT(oct_h5_write(h5, "program/values", OCT_S64,
                             OCT_SHAPE(program->num_values, VALUE_WIDTH), table));
    OCT_TRY_OUT(
        oct_h5_write(h5, "program/value_scales", OCT_F32, OCT_SHAPE(program->num_values), scales));
    status = oct_h5_write_text(h5, "program/value_types", dtypes.data);
out:
    oct_free(&table);
    oct_free(&scales);
    oct_text_free(&dtypes);
    return status;
}

static oct_status write_arrays(oct_h5 *h5, int64_t i, const oct_step *step)
{
    const oct_step_type *type = oct_step_type_of(step->kind);
    char path[64];
    oct_shape shape;
    for (int k = 0; k < type->num_arrays; k++) {
        const oct_step_array *array = &type->arrays[k];
        OCT_TRY(array->shape(step, &shape));
        OCT_TRY(oct_h5_write(h5, part_path(path, array->group, i, array->name), array->dtype, shape,
                             oct_step_data(step, array)));
    }
    return OCT_OK;
}

static oct_status write_fallback_arrays(oct_h5 *h5, int64_t i, const oct_fallback *fallback)
{
    oct_status status = OCT_OK;
    oct_text names = {0};
    int64_t *shapes = NULL;
    const int64_t count = fallback->num_arrays;
    char path[64];

    OCT_TRY_OUT(oct_alloc(&shapes, (size_t)count * ARRAY_WIDTH, sizeof *shapes));
    for (int64_t k = 0; k < count; k++) {
        const oct_fallback_array *array = &fallback->arrays[k];
        int64_t *row = shapes + k * ARRAY_WIDTH;
        row[ARRAY_DTYPE] = array->dtype;
        row[ARRAY_NDIM] = array->shape.ndim;
        for (int d = 0; d < array->shape.ndim; d++)
            row[ARRAY_DIM + d] = array->shape.dim[d];
        OCT_TRY_OUT(oct_text_add(&names, "%s\n", array->name));
        OCT_TRY_OUT(
            oct_h5_write(h5, array_path(path, i, k), array->dtype, array->shape, array->data));
    }
    OCT_TRY_OUT(oct_h5_write(h5, part_path(path, "islands", i, "shapes"), OCT_S64,
                             OCT_SHAPE(count, ARRAY_WIDTH), shapes));
    status =
        oct_h5_write_text(h5, part_path(path, "islands", i, "names"), names.data ? names.data : "");
out:
    oct_free(&shapes);
    oct_text_free(&names);
    return status;
}

static oct_status write_fallback(oct_h5 *h5, int64_t i, const oct_step *step)
{
    const oct_fallback *fallback = step->fallback;
    int64_t dims[OCT_STEP_INPUTS] = {0};
    char path[64];
    for (int k = 0; k < step->num_inputs; k++)
        dims[k] = fallback->dims[k];
    OCT_TRY(oct_h5_write_text(h5, part_path(path, "islands", i, "type"), fallback->type));
    OCT_TRY(oct_h5_write_i64(h5, part_path(path, "islands", i, "num_args"), fallback->num_args));
    OCT_TRY(
        oct_h5_write_i64(h5, part_path(path, "islands", i, "num_arrays"), fallback->num_arrays));
    OCT_TRY(oct_h5_write(h5, part_path(path, "islands", i, "args"), OCT_F64,
                         OCT_SHAPE(fallback->num_args), fallback->args));
    OCT_TRY(oct_h5_write(h5, part_path(path, "islands", i, "dims"), OCT_S64,
                         OCT_SHAPE(step->num_inputs), dims));
    return write_fallback_arrays(h5, i, fallback);
}

oct_status oct_model_write_program(oct_h5 *h5, const oct_program *program)
{
    int64_t inputs[OCT_PROGRAM_INPUTS] = {0};
    for (int i = 0; i < program->num_inputs; i++)
        inputs[i] = program->inputs[i];
    OCT_TRY(oct_h5_write_text(h5, "program/target", program->target));
    OCT_TRY(oct_h5_write_i64(h5, "program/shift", program->requantizer));
    OCT_TRY(oct_h5_write_i64(h5, "program/num_steps", program->num_steps));
    OCT_TRY(oct_h5_write_i64(h5, "program/num_values", program->num_values));
    OCT_TRY(oct_h5_write_i64(h5, "program/num_inputs", program->num_inputs));
    OCT_TRY(oct_h5_write(h5, "program/inputs", OCT_S64, OCT_SHAPE(OCT_PROGRAM_INPUTS), inputs));
    OCT_TRY(oct_h5_write_i64(h5, "program/output", program->output));
    OCT_TRY(write_steps(h5, program));
    OCT_TRY(write_values(h5, program));
    for (int64_t i = 0; i < program->num_steps; i++) {
        const oct_step *step = &program->steps[i];
        OCT_TRY(write_arrays(h5, i, step));
        if (step->kind == OCT_STEP_FLOAT) OCT_TRY(write_fallback(h5, i, step));
    }
    return OCT_OK;
}

/* Reading. */

/* Cuts a text of exactly `count` lines, each ended by a newline; visit gets line after line. */
static oct_status read_lines(oct_h5 *h5, const char *path, int64_t count,
                             oct_status (*visit)(void *user, int64_t, const char *), void *user)
{
    oct_status status = OCT_OK;
    char *text = NULL;
    int64_t i = 0;

    OCT_TRY_OUT(oct_h5_read_text(h5, path, text_bytes_max, &text));
    for (char *line = text, *end; i < count && (end = strchr(line, '\n')); line = end + 1, i++) {
        *end = '\0';
        OCT_TRY_OUT(visit(user, i, line));
        if (i + 1 == count && end[1] != '\0') i = count; /* text after the last line */
    }
    OCT_CHECK_OUT(i == count && (count > 0 || !*text), OCT_DATA, "%s does not have %lld lines",
                  path, (long long)count);
out:
    oct_free(&text);
    return status;
}

static oct_status take_kind(void *user, int64_t i, const char *line)
{
    oct_program *program = user;
    for (int kind = 0; kind < OCT_STEP_KINDS; kind++) {
        if (strcmp(oct_step_type_of((oct_step_kind)kind)->name, line) != 0) continue;
        program->steps[i].kind = (oct_step_kind)kind;
        return OCT_OK;
    }
    return oct_fail(OCT_DATA, "step %lld is of a kind that this Octet does not know", (long long)i);
}

static oct_status take_name(void *user, int64_t i, const char *line)
{
    oct_step *step = &((oct_program *)user)->steps[i];
    OCT_CHECK(strlen(line) < sizeof step->name && oct_is_plain_text(line), OCT_DATA,
              "the name of step %lld is too long or holds control characters", (long long)i);
    snprintf(step->name, sizeof step->name, "%s", line);
    return OCT_OK;
}

static oct_status take_dtype(void *user, int64_t i, const char *line)
{
    static const oct_dtype known[] = {OCT_U8, OCT_U16, OCT_F32, OCT_S32};
    for (size_t k = 0; k < OCT_COUNT(known); k++) {
        if (strcmp(oct_dtype_name(known[k]), line) != 0) continue;
        ((oct_program *)user)->values[i].dtype = known[k];
        return OCT_OK;
    }
    return oct_fail(OCT_DATA, "value %lld is none of u8, u16, f32 and s32", (long long)i);
}

static bool within(int64_t value, int64_t min, int64_t max)
{
    return value >= min && value <= max;
}

static oct_status take_number(int64_t cell, int64_t min, int64_t max, const char *name,
                              int32_t *number)
{
    OCT_CHECK(within(cell, min, max), OCT_DATA, "its %s is %lld", name, (long long)cell);
    *number = (int32_t)cell;
    return OCT_OK;
}

static oct_status take_step(oct_step *step, const int64_t *row, const float *factors)
{
    OCT_TRY(take_number(row[NUM_INPUTS], 0, OCT_STEP_INPUTS, "num_inputs", &step->num_inputs));
    OCT_TRY(take_number(row[OUTPUT], INT32_MIN, INT32_MAX, "output", &step->output));
    return oct_step_set_fields(step, row + CELLS, factors);
}

static oct_status take_step_inputs(oct_step *step, const int64_t *inputs)
{
    char name[24];
    for (int i = 0; i < step->num_inputs; i++) {
        snprintf(name, sizeof name, "input[%d]", i);
        OCT_TRY(take_number(inputs[i], INT32_MIN, INT32_MAX, name, &step->input[i]));
    }
    return OCT_OK;
}

/* After the table, which says how many there are. */
static oct_status read_step_inputs(oct_h5 *h5, oct_program *program)
{
    oct_status status = OCT_OK;
    int64_t *inputs = NULL, count = 0, at = 0;
    for (int64_t i = 0; i < program->num_steps; i++)
        count += program->steps[i].num_inputs;
    OCT_TRY(oct_h5_read_new(h5, "program/step_inputs", OCT_S64, OCT_SHAPE(count), &inputs));
    for (int64_t i = 0; i < program->num_steps && status == OCT_OK; i++) {
        oct_step *step = &program->steps[i];
        status = take_step_inputs(step, inputs + at);
        if (status != OCT_OK) oct_fail_prefix("step %lld", (long long)i);
        at += step->num_inputs;
    }
    oct_free(&inputs);
    return status;
}

static oct_status read_steps(oct_h5 *h5, oct_program *program)
{
    oct_status status = OCT_OK;
    int64_t *table = NULL;
    float *factors = NULL;
    const int64_t steps = program->num_steps;

    OCT_TRY_OUT(
        oct_h5_read_new(h5, "program/steps", OCT_S64, OCT_SHAPE(steps, STEP_WIDTH), &table));
    OCT_TRY_OUT(oct_h5_read_new(h5, "program/step_factors", OCT_F32,
                                OCT_SHAPE(steps, OCT_STEP_FACTORS), &factors));
    OCT_TRY_OUT(oct_alloc(&program->steps, (size_t)steps, sizeof *program->steps));
    OCT_TRY_OUT(read_lines(h5, "program/step_kinds", steps, take_kind, program));
    for (int64_t i = 0; i < steps && status == OCT_OK; i++) {
        status =
            take_step(&program->steps[i], table + i * STEP_WIDTH, factors + i * OCT_STEP_FACTORS);
        if (status != OCT_OK) oct_fail_prefix("step %lld", (long long)i);
    }
    OCT_TRY_OUT(status);
    OCT_TRY_OUT(read_step_inputs(h5, program));
    status = read_lines(h5, "program/step_names", steps, take_name, program);
out:
    oct_free(&table);
    oct_free(&factors);
    return status;
}

static oct_status read_values(oct_h5 *h5, oct_program *program)
{
    oct_status status = OCT_OK;
    int64_t *table = NULL;
    float *scales = NULL;

    OCT_TRY_OUT(oct_h5_read_new(h5, "program/values", OCT_S64,
                                OCT_SHAPE(program->num_values, VALUE_WIDTH), &table));
    OCT_TRY_OUT(oct_h5_read_new(h5, "program/value_scales", OCT_F32, OCT_SHAPE(program->num_values),
                                &scales));
    OCT_TRY_OUT(oct_alloc(&program->values, (size_t)program->num_values, sizeof *program->values));
    for (int64_t i = 0; i < program->num_values; i++) {
        oct_value *value = &program->values[i];
        const int64_t *cell = table + i * VALUE_WIDTH;
#define X(field, min, max)                                                                         \
    OCT_CHECK_OUT(within(*cell, min, max), OCT_DATA, "value %lld: its " #field " is %lld",         \
                  (long long)i, (long long)*cell);                                                 \
    value->field = (__typeof__(value->field))*cell++;
        VALUE_COLUMNS(X)
#undef X
        value->q.scale = scales[i];
    }
    status = read_lines(h5, "program/value_types", program->num_values, take_dtype, program);
out:
    oct_free(&table);
    oct_free(&scales);
    return status;
}

static oct_status read_arrays(oct_h5 *h5, int64_t i, oct_step *step)
{
    const oct_step_type *type = oct_step_type_of(step->kind);
    char path[64];
    oct_shape shape;
    for (int k = 0; k < type->num_arrays; k++) {
        const oct_step_array *array = &type->arrays[k];
        if (array->shape(step, &shape) != OCT_OK) return oct_fail_prefix("step %lld", (long long)i);
        OCT_TRY(oct_h5_read_new(h5, part_path(path, array->group, i, array->name), array->dtype,
                                shape, oct_step_slot(step, array)));
    }
    return OCT_OK;
}

static oct_status take_array_name(void *user, int64_t i, const char *line)
{
    return oct_strdup(&((oct_fallback *)user)->arrays[i].name, line);
}

static oct_status read_array(oct_h5 *h5, const char *path, const int64_t *row,
                             oct_fallback_array *array)
{
    OCT_CHECK(within(row[ARRAY_DTYPE], OCT_F32, OCT_S64) &&
                  within(row[ARRAY_NDIM], 0, OCT_MAX_DIMS),
              OCT_DATA, "%s is of a type or shape that cannot be", path);
    array->dtype = (oct_dtype)row[ARRAY_DTYPE];
    array->shape = oct_shape_of((int)row[ARRAY_NDIM], row + ARRAY_DIM);
    OCT_CHECK(within(oct_shape_numel(&array->shape), 0, array_numel_max), OCT_DATA,
              "%s is too large", path);
    return oct_h5_read_new(h5, path, array->dtype, array->shape, &array->data);
}

static oct_status read_fallback_arrays(oct_h5 *h5, int64_t i, oct_fallback *fallback)
{
    oct_status status = OCT_OK;
    int64_t *shapes = NULL, count;
    char path[64];
    OCT_TRY(oct_h5_read_i64(h5, part_path(path, "islands", i, "num_arrays"), 0,
                            OCT_FALLBACK_ARRAYS_MAX, &count));
    OCT_TRY(oct_alloc(&fallback->arrays, (size_t)count, sizeof *fallback->arrays));
    fallback->num_arrays = count;
    OCT_TRY_OUT(oct_h5_read_new(h5, part_path(path, "islands", i, "shapes"), OCT_S64,
                                OCT_SHAPE(count, ARRAY_WIDTH), &shapes));
    for (int64_t k = 0; k < count; k++)
        OCT_TRY_OUT(
            read_array(h5, array_path(path, i, k), shapes + k * ARRAY_WIDTH, &fallback->arrays[k]));
    status =
        read_lines(h5, part_path(path, "islands", i, "names"), count, take_array_name, fallback);
out:
    oct_free(&shapes);
    return status;
}

static oct_status read_fallback(oct_h5 *h5, int64_t i, oct_step *step)
{
    char path[64], *type;
    int64_t args, dims[OCT_STEP_INPUTS];
    OCT_TRY(oct_alloc(&step->fallback, 1, sizeof *step->fallback));
    oct_fallback *fallback = step->fallback;
    OCT_TRY(oct_h5_read_text(h5, part_path(path, "islands", i, "type"), sizeof fallback->type - 1,
                             &type));
    snprintf(fallback->type, sizeof fallback->type, "%s", type);
    oct_free(&type);
    OCT_TRY(
        oct_h5_read_i64(h5, part_path(path, "islands", i, "num_args"), 0, OCT_STEP_ARGS, &args));
    fallback->num_args = (int)args;
    OCT_TRY(oct_h5_read(h5, part_path(path, "islands", i, "args"), OCT_F64, OCT_SHAPE(args),
                        fallback->args));
    OCT_TRY(oct_h5_read(h5, part_path(path, "islands", i, "dims"), OCT_S64,
                        OCT_SHAPE(step->num_inputs), dims));
    for (int k = 0; k < step->num_inputs; k++)
        fallback->dims[k] = within(dims[k], 0, OCT_MAX_DIMS) ? (int)dims[k] : -1;
    return read_fallback_arrays(h5, i, fallback);
}

static oct_status read_target(oct_h5 *h5, oct_program *program)
{
    char *target;
    int64_t requantizer;
    OCT_TRY(oct_h5_read_text(h5, "program/target", sizeof program->target - 1, &target));
    snprintf(program->target, sizeof program->target, "%s", target);
    oct_free(&target);
    OCT_CHECK(oct_is_plain_text(program->target), OCT_DATA,
              "the name of the program's target holds control characters");
    OCT_TRY(oct_h5_read_i64(h5, "program/shift", 0, OCT_REQUANTIZERS - 1, &requantizer));
    program->requantizer = (oct_requantizer)requantizer;
    return OCT_OK;
}

static oct_status read_ends(oct_h5 *h5, oct_program *program, int64_t values)
{
    int64_t count, inputs[OCT_PROGRAM_INPUTS], output;
    OCT_TRY(oct_h5_read_i64(h5, "program/num_inputs", 1, OCT_PROGRAM_INPUTS, &count));
    OCT_TRY(oct_h5_read(h5, "program/inputs", OCT_S64, OCT_SHAPE(OCT_PROGRAM_INPUTS), inputs));
    OCT_TRY(oct_h5_read_i64(h5, "program/output", 0, values - 1, &output));
    program->num_inputs = (int)count;
    for (int i = 0; i < count; i++) {
        OCT_CHECK(within(inputs[i], 0, values - 1), OCT_DATA,
                  "input %d is value %lld, outside 0 to %lld", i, (long long)inputs[i],
                  (long long)values - 1);
        program->inputs[i] = (int32_t)inputs[i];
    }
    program->output = (int32_t)output;
    return OCT_OK;
}

oct_status oct_model_read_program(oct_h5 *h5, oct_program *program)
{
    int64_t steps, values;
    OCT_TRY(read_target(h5, program));
    OCT_TRY(oct_h5_read_i64(h5, "program/num_steps", 1, STEPS_MAX, &steps));
    OCT_TRY(oct_h5_read_i64(h5, "program/num_values", 1, VALUES_MAX, &values));
    OCT_TRY(read_ends(h5, program, values));
    program->num_steps = steps;
    program->num_values = values;
    OCT_TRY(read_steps(h5, program));
    OCT_TRY(read_values(h5, program));
    for (int64_t i = 0; i < steps; i++) {
        oct_step *step = &program->steps[i];
        OCT_TRY(read_arrays(h5, i, step));
        if (step->kind == OCT_STEP_FLOAT) OCT_TRY(read_fallback(h5, i, step));
    }
    return OCT_OK;
}
