/* The int8 model file.
 *
 * Steps and values are tables of integers with one row each, whose columns the lists below name
 * together with their ranges; weights and the like are arrays of their own. A file is taken apart in
 * the order in which each part bounds the next: counts, tables, then arrays whose shapes follow from
 * the tables. oct_program_check has the last word on all of it, before saving too.
 */
#include "io/model_file.h"

#include "core/base/mem.h"
#include "core/base/text.h"
#include "io/file.h"
#include "io/hdf5.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    FORMAT = 1,
    STEPS_MAX = 4096,
    VALUES_MAX = 8192,
    DIM_MAX = 65536,
    GOLDEN_MAX = 65536,
    DIGEST = 32,
    CHANNELS_MAX = 4, /* of an input, as mean and std have room for */
};
static const int64_t weights_max = (int64_t)1 << 31;
static const size_t file_bytes_max = (size_t)1 << 34, text_bytes_max = (size_t)1 << 20;

/* Columns of program/steps: field, smallest, largest. */
#define STEP_COLUMNS(X)                                                                            \
    X(input[0], INT32_MIN, INT32_MAX)                                                              \
    X(input[1], INT32_MIN, INT32_MAX)                                                              \
    X(output, INT32_MIN, INT32_MAX)                                                                \
    X(conv.in_h, 0, DIM_MAX)                                                                       \
    X(conv.in_w, 0, DIM_MAX)                                                                       \
    X(conv.in_c, 0, DIM_MAX)                                                                       \
    X(conv.out_h, 0, DIM_MAX)                                                                      \
    X(conv.out_w, 0, DIM_MAX)                                                                      \
    X(conv.out_c, 0, DIM_MAX)                                                                      \
    X(conv.kernel_h, 0, DIM_MAX)                                                                   \
    X(conv.kernel_w, 0, DIM_MAX)                                                                   \
    X(conv.stride, 0, DIM_MAX)                                                                     \
    X(conv.padding, 0, DIM_MAX)                                                                    \
    X(conv.groups, 0, DIM_MAX)                                                                     \
    X(lo, INT32_MIN, INT32_MAX)                                                                    \
    X(hi, INT32_MIN, INT32_MAX)                                                                    \
    X(add.ma, INT32_MIN, INT32_MAX)                                                                \
    X(add.mb, INT32_MIN, INT32_MAX)                                                                \
    X(add.shift, 0, 31)                                                                            \
    X(add.za, INT32_MIN, INT32_MAX)                                                                \
    X(add.zb, INT32_MIN, INT32_MAX)                                                                \
    X(add.lo, INT32_MIN, INT32_MAX)                                                                \
    X(add.hi, INT32_MIN, INT32_MAX)                                                                \
    X(add.zero_point, INT32_MIN, INT32_MAX)                                                        \
    X(add.relu, 0, 1)

/* Columns of program/values; the types and scales are beside it. */
#define VALUE_COLUMNS(X)                                                                           \
    X(h, 1, DIM_MAX)                                                                               \
    X(w, 1, DIM_MAX)                                                                               \
    X(c, 1, DIM_MAX)                                                                               \
    X(q.zero_point, INT32_MIN, INT32_MAX)                                                          \
    X(q.qmin, INT32_MIN, INT32_MAX)                                                                \
    X(q.qmax, INT32_MIN, INT32_MAX)

#define COUNT_COLUMN(field, min, max) +1
enum { STEP_WIDTH = 0 STEP_COLUMNS(COUNT_COLUMN), VALUE_WIDTH = 0 VALUE_COLUMNS(COUNT_COLUMN) };

static const char *const kind_names[] = {
#define X(name, text) text,
    OCT_STEP_LIST(X)
#undef X
};

static bool is_conv(const oct_step *step)
{
    return step->kind == OCT_STEP_CONV || step->kind == OCT_STEP_CONV_FLOAT;
}

/* Texts are shown on terminals: no control characters but those of plain lines. */
static bool is_plain(const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if ((c < ' ' && c != '\n' && c != '\t') || c == 0x7f) return false;
    }
    return true;
}

/* What an array of a step is called: "program/weights/12/bias". */
static const char *array_path(char path[64], int64_t step, const char *name)
{
    snprintf(path, 64, "program/weights/%lld/%s", (long long)step, name);
    return path;
}

/* Overflow cannot happen: each factor is at most DIM_MAX and the first product at most weights_max. */
static bool weight_shape(const oct_conv_shape *s, oct_shape *shape)
{
    if (s->out_c < 1 || s->kernel_h < 1 || s->kernel_w < 1 || s->in_c < 1 || s->groups < 1 ||
        s->out_c > DIM_MAX || s->kernel_h > DIM_MAX || s->kernel_w > DIM_MAX || s->in_c > DIM_MAX ||
        s->in_c % s->groups != 0)
        return false;
    *shape = OCT_SHAPE(s->out_c, s->kernel_h, s->kernel_w, s->in_c / s->groups);
    int64_t numel = oct_shape_numel(shape);
    return numel > 0 && numel <= weights_max;
}

static int64_t input_numel(const oct_program *program)
{
    const oct_value *value = &program->values[program->input];
    return value->h * value->w * value->c;
}

/* Saving. */

static oct_status write_steps(oct_h5 *h5, const oct_program *program)
{
    oct_status status = OCT_OK;
    oct_text kinds = {0}, names = {0};
    int64_t *table = NULL;

    OCT_TRY_OUT(oct_alloc(&table, (size_t)program->num_steps * STEP_WIDTH, sizeof *table));
    for (int64_t i = 0; i < program->num_steps; i++) {
        const oct_step *step = &program->steps[i];
        int64_t *cell = table + i * STEP_WIDTH;
#define X(field, min, max) *cell++ = step->field;
        STEP_COLUMNS(X)
#undef X
        OCT_TRY_OUT(oct_text_add(&kinds, "%s\n", kind_names[step->kind]));
        OCT_TRY_OUT(oct_text_add(&names, "%s\n", step->name));
    }
    OCT_TRY_OUT(oct_h5_write(h5, "program/steps", OCT_S64,
                             OCT_SHAPE(program->num_steps, STEP_WIDTH), table));
    OCT_TRY_OUT(oct_h5_write_text(h5, "program/step_kinds", kinds.data));
    status = oct_h5_write_text(h5, "program/step_names", names.data);
out:
    oct_free(&table);
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
        if (value.dtype != OCT_U8) value.q = (oct_qparams){0}; /* undefined: it must not matter */
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

static oct_status write_program(oct_h5 *h5, const oct_program *program)
{
    char path[64];
    OCT_TRY(oct_h5_write_i64(h5, "program/num_steps", program->num_steps));
    OCT_TRY(oct_h5_write_i64(h5, "program/num_values", program->num_values));
    OCT_TRY(oct_h5_write_i64(h5, "program/input", program->input));
    OCT_TRY(oct_h5_write_i64(h5, "program/output", program->output));
    OCT_TRY(write_steps(h5, program));
    OCT_TRY(write_values(h5, program));
    for (int64_t i = 0; i < program->num_steps; i++) {
        const oct_step *step = &program->steps[i];
        oct_shape shape;
        if (!is_conv(step)) continue;
        OCT_CHECK(weight_shape(&step->conv, &shape), OCT_RESOURCE,
                  "layer %s has more than 2^31 weights, which a model file cannot hold",
                  step->name);
        oct_shape channels = OCT_SHAPE(step->conv.out_c);
        OCT_TRY(oct_h5_write(h5, array_path(path, i, "codes"), OCT_S8, shape, step->weight));
        OCT_TRY(oct_h5_write(h5, array_path(path, i, "bias"), OCT_S32, channels, step->bias));
        OCT_TRY(oct_h5_write(h5, array_path(path, i, "multiplier"), OCT_F32, channels,
                             step->multiplier));
        OCT_TRY(
            oct_h5_write(h5, array_path(path, i, "scale"), OCT_F32, channels, step->weight_scale));
    }
    return OCT_OK;
}

static oct_status write_certificate(oct_h5 *h5, const oct_certificate *c)
{
    const oct_shape scalar = {.ndim = 0};
    OCT_TRY(oct_h5_write_i64(h5, "certificate/images", c->images));
    OCT_TRY(oct_h5_write_i64(h5, "certificate/logits_differ", c->logits_differ));
    OCT_TRY(oct_h5_write_i64(h5, "certificate/correct", c->correct));
    OCT_TRY(oct_h5_write(h5, "certificate/float_accuracy", OCT_F64, scalar, &c->float_accuracy));
    OCT_TRY(oct_h5_write(h5, "certificate/qat_accuracy", OCT_F64, scalar, &c->qat_accuracy));
    OCT_TRY(
        oct_h5_write(h5, "certificate/logits_digest", OCT_U8, OCT_SHAPE(DIGEST), c->logits_digest));
    OCT_TRY(oct_h5_write(h5, "certificate/data_digest", OCT_U8, OCT_SHAPE(DIGEST), c->data_digest));
    OCT_TRY(oct_h5_write_i64(h5, "certificate/golden_count", c->golden_count));
    OCT_TRY(oct_h5_write_i64(h5, "certificate/num_islands", c->num_islands));
    return c->islands ? oct_h5_write_text(h5, "certificate/islands", c->islands) : OCT_OK;
}

static oct_status write_model(oct_h5 *h5, const oct_model *model)
{
    const oct_program *program = &model->program;
    const int64_t golden = model->certificate.golden_count;
    OCT_TRY(oct_h5_write_i64(h5, "info/format", FORMAT));
    OCT_TRY(oct_h5_write_text(h5, "info/recipe", model->recipe ? model->recipe : ""));
    OCT_TRY(
        oct_h5_write_text(h5, "info/data_format", model->data_format ? model->data_format : ""));
    OCT_TRY(oct_h5_write(h5, "info/mean", OCT_F32, OCT_SHAPE(CHANNELS_MAX), model->mean));
    OCT_TRY(oct_h5_write(h5, "info/std", OCT_F32, OCT_SHAPE(CHANNELS_MAX), model->std));
    OCT_TRY(oct_h5_write_i64(h5, "info/classes", model->classes));
    OCT_TRY(oct_h5_write(h5, "info/checkpoint_digest", OCT_U8, OCT_SHAPE(DIGEST),
                         model->checkpoint_digest));
    OCT_TRY(write_program(h5, program));
    OCT_TRY(oct_h5_write(h5, "program/overflow_bound", OCT_S64, OCT_SHAPE(program->num_steps),
                         model->overflow_bound));
    OCT_TRY(write_certificate(h5, &model->certificate));
    OCT_TRY(oct_h5_write(h5, "golden/input", OCT_F32, OCT_SHAPE(golden, input_numel(program)),
                         model->golden_input));
    return oct_h5_write(h5, "golden/digest", OCT_U8, OCT_SHAPE(golden, program->num_values, DIGEST),
                        model->golden_digest);
}

/* What holds of every model beyond oct_program_check, saved or loaded. */
static oct_status check_model(const oct_model *model)
{
    const oct_program *program = &model->program;
    const oct_certificate *c = &model->certificate;
    const char *texts[] = {model->recipe, model->data_format, c->islands};

    OCT_CHECK(program->num_steps >= 1 && program->num_steps <= STEPS_MAX &&
                  program->num_values >= 1 && program->num_values <= VALUES_MAX,
              OCT_DATA,
              "the program has %lld steps and %lld values; 1 to %d and 1 to %d are allowed",
              (long long)program->num_steps, (long long)program->num_values, STEPS_MAX, VALUES_MAX);
    OCT_TRY(oct_program_check(program));
    for (size_t i = 0; i < OCT_COUNT(texts); i++)
        OCT_CHECK(!texts[i] || (is_plain(texts[i]) && strlen(texts[i]) <= text_bytes_max), OCT_DATA,
                  "a text holds control characters or more than 1 MiB");
    for (int64_t i = 0; i < program->num_steps; i++) {
        const oct_step *step = &program->steps[i];
        OCT_CHECK(memchr(step->name, '\0', sizeof step->name) && is_plain(step->name) &&
                      !strchr(step->name, '\n'),
                  OCT_DATA, "the name of step %lld is not a line of text", (long long)i);
        OCT_CHECK(model->overflow_bound[i] >= 0 && model->overflow_bound[i] <= INT32_MAX, OCT_DATA,
                  "the overflow bound of step %lld is outside 32 bits", (long long)i);
    }
    int64_t channels = program->values[program->input].c;
    OCT_CHECK(channels <= CHANNELS_MAX, OCT_DATA,
              "the input has %lld channels; at most %d are allowed", (long long)channels,
              CHANNELS_MAX);
    for (int64_t i = 0; i < channels; i++)
        OCT_CHECK(isfinite(model->mean[i]) && isfinite(model->std[i]) && model->std[i] > 0.0f,
                  OCT_DATA, "mean or std of input channel %lld is not a usable number",
                  (long long)i);
    const oct_value *output = &program->values[program->output];
    OCT_CHECK(model->classes == output->h * output->w * output->c, OCT_DATA,
              "%d classes, but the output has %lld numbers", model->classes,
              (long long)(output->h * output->w * output->c));
    OCT_CHECK(c->golden_count >= 0 && c->golden_count <= GOLDEN_MAX, OCT_DATA,
              "%lld golden inputs; 0 to %d are allowed", (long long)c->golden_count, GOLDEN_MAX);
    OCT_CHECK(c->images >= 0 && c->logits_differ >= 0 && c->correct >= 0 &&
                  c->correct <= c->images && c->num_islands >= 0 && c->num_islands <= STEPS_MAX &&
                  c->float_accuracy >= -1.0 && c->float_accuracy <= 100.0 &&
                  c->qat_accuracy >= -1.0 && c->qat_accuracy <= 100.0,
              OCT_DATA, "the figures of the certificate contradict each other");
    return OCT_OK;
}

oct_status oct_model_save(const char *path, const oct_model *model)
{
    oct_status status = OCT_OK;
    oct_h5 *h5 = NULL;
    void *bytes = NULL;
    size_t size;

    status = check_model(model);
    if (status != OCT_OK) {
        oct_fail_prefix("%s", path);
        goto out;
    }
    OCT_TRY_OUT(oct_h5_create(&h5));
    OCT_TRY_OUT(write_model(h5, model));
    OCT_TRY_OUT(oct_h5_seal(h5, &bytes, &size));
    status = oct_file_write(path, bytes, size);
out:
    oct_h5_close(&h5);
    oct_free(&bytes);
    return status;
}

/* Loading. */

/* Cuts a text of exactly `count` lines, each ended by a newline; visit gets line after line. */
static oct_status read_lines(oct_h5 *h5, const char *path, int64_t count,
                             oct_status (*visit)(oct_program *, int64_t, const char *),
                             oct_program *program)
{
    oct_status status = OCT_OK;
    char *text = NULL;
    int64_t i = 0;

    OCT_TRY_OUT(oct_h5_read_text(h5, path, text_bytes_max, &text));
    for (char *line = text, *end; i < count && (end = strchr(line, '\n')); line = end + 1, i++) {
        *end = '\0';
        OCT_TRY_OUT(visit(program, i, line));
        if (i + 1 == count && end[1] != '\0') i = count; /* text behind the last line */
    }
    OCT_CHECK_OUT(i == count, OCT_DATA, "%s does not have %lld lines", path, (long long)count);
out:
    oct_free(&text);
    return status;
}

static oct_status take_kind(oct_program *program, int64_t i, const char *line)
{
    for (int kind = 0; kind < OCT_STEP_KINDS; kind++) {
        if (strcmp(kind_names[kind], line) != 0) continue;
        program->steps[i].kind = (oct_step_kind)kind;
        return OCT_OK;
    }
    return oct_fail(OCT_DATA, "step %lld is of a kind that this Octet does not know", (long long)i);
}

static oct_status take_name(oct_program *program, int64_t i, const char *line)
{
    oct_step *step = &program->steps[i];
    OCT_CHECK(strlen(line) < sizeof step->name && is_plain(line), OCT_DATA,
              "the name of step %lld is too long or holds control characters", (long long)i);
    snprintf(step->name, sizeof step->name, "%s", line);
    return OCT_OK;
}

static oct_status take_dtype(oct_program *program, int64_t i, const char *line)
{
    bool codes = strcmp(line, oct_dtype_name(OCT_U8)) == 0;
    OCT_CHECK(codes || strcmp(line, oct_dtype_name(OCT_F32)) == 0, OCT_DATA,
              "value %lld is neither u8 nor f32", (long long)i);
    program->values[i].dtype = codes ? OCT_U8 : OCT_F32;
    return OCT_OK;
}

static bool within(int64_t value, int64_t min, int64_t max)
{
    return value >= min && value <= max;
}

static oct_status read_steps(oct_h5 *h5, oct_program *program)
{
    oct_status status = OCT_OK;
    int64_t *table = NULL;

    OCT_TRY_OUT(oct_h5_read_new(h5, "program/steps", OCT_S64,
                                OCT_SHAPE(program->num_steps, STEP_WIDTH), &table));
    for (int64_t i = 0; i < program->num_steps; i++) {
        oct_step *step = &program->steps[i];
        const int64_t *cell = table + i * STEP_WIDTH;
#define X(field, min, max)                                                                         \
    OCT_CHECK_OUT(within(*cell, min, max), OCT_DATA, "step %lld: its " #field " is %lld",          \
                  (long long)i, (long long)*cell);                                                 \
    step->field = (__typeof__(step->field))*cell++;
        STEP_COLUMNS(X)
#undef X
    }
    OCT_TRY_OUT(read_lines(h5, "program/step_kinds", program->num_steps, take_kind, program));
    status = read_lines(h5, "program/step_names", program->num_steps, take_name, program);
out:
    oct_free(&table);
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
    char path[64];
    oct_shape shape;
    OCT_CHECK(weight_shape(&step->conv, &shape), OCT_DATA,
              "step %lld: its sizes are not those of a convolution", (long long)i);
    oct_shape channels = OCT_SHAPE(step->conv.out_c);
    OCT_TRY(oct_h5_read_new(h5, array_path(path, i, "codes"), OCT_S8, shape, &step->weight));
    OCT_TRY(oct_h5_read_new(h5, array_path(path, i, "bias"), OCT_S32, channels, &step->bias));
    OCT_TRY(oct_h5_read_new(h5, array_path(path, i, "multiplier"), OCT_F32, channels,
                            &step->multiplier));
    return oct_h5_read_new(h5, array_path(path, i, "scale"), OCT_F32, channels,
                           &step->weight_scale);
}

static oct_status read_program(oct_h5 *h5, oct_program *program)
{
    int64_t steps, values, input, output;
    OCT_TRY(oct_h5_read_i64(h5, "program/num_steps", 1, STEPS_MAX, &steps));
    OCT_TRY(oct_h5_read_i64(h5, "program/num_values", 1, VALUES_MAX, &values));
    OCT_TRY(oct_h5_read_i64(h5, "program/input", 0, values - 1, &input));
    OCT_TRY(oct_h5_read_i64(h5, "program/output", 0, values - 1, &output));
    OCT_TRY(oct_alloc(&program->steps, (size_t)steps, sizeof *program->steps));
    program->num_steps = steps;
    OCT_TRY(oct_alloc(&program->values, (size_t)values, sizeof *program->values));
    program->num_values = values;
    program->input = (int32_t)input;
    program->output = (int32_t)output;
    OCT_TRY(read_steps(h5, program));
    OCT_TRY(read_values(h5, program));
    for (int64_t i = 0; i < steps; i++) {
        if (is_conv(&program->steps[i])) OCT_TRY(read_arrays(h5, i, &program->steps[i]));
    }
    return OCT_OK;
}

static oct_status read_certificate(oct_h5 *h5, oct_certificate *c)
{
    const oct_shape scalar = {.ndim = 0};
    OCT_TRY(oct_h5_read_i64(h5, "certificate/images", 0, INT64_MAX, &c->images));
    OCT_TRY(oct_h5_read_i64(h5, "certificate/logits_differ", 0, INT64_MAX, &c->logits_differ));
    OCT_TRY(oct_h5_read_i64(h5, "certificate/correct", 0, c->images, &c->correct));
    OCT_TRY(oct_h5_read(h5, "certificate/float_accuracy", OCT_F64, scalar, &c->float_accuracy));
    OCT_TRY(oct_h5_read(h5, "certificate/qat_accuracy", OCT_F64, scalar, &c->qat_accuracy));
    OCT_TRY(
        oct_h5_read(h5, "certificate/logits_digest", OCT_U8, OCT_SHAPE(DIGEST), c->logits_digest));
    OCT_TRY(oct_h5_read(h5, "certificate/data_digest", OCT_U8, OCT_SHAPE(DIGEST), c->data_digest));
    OCT_TRY(oct_h5_read_i64(h5, "certificate/golden_count", 0, GOLDEN_MAX, &c->golden_count));
    OCT_TRY(oct_h5_read_i64(h5, "certificate/num_islands", 0, STEPS_MAX, &c->num_islands));
    if (!oct_h5_has(h5, "certificate/islands")) return OCT_OK;
    return oct_h5_read_text(h5, "certificate/islands", text_bytes_max, &c->islands);
}

static oct_status read_format(oct_h5 *h5)
{
    int64_t format;
    OCT_CHECK(oct_h5_is_group(h5, "program"), OCT_DATA, "is not an int8 model");
    OCT_TRY(oct_h5_read_i64(h5, "info/format", 1, INT64_MAX, &format));
    OCT_CHECK(format <= FORMAT, OCT_DATA,
              "has model format %lld and this Octet knows format %d; use a newer Octet",
              (long long)format, FORMAT);
    return OCT_OK;
}

static oct_status read_model(oct_h5 *h5, oct_model *model)
{
    const oct_program *program = &model->program;
    int64_t classes;
    OCT_TRY(read_format(h5));
    OCT_TRY(oct_h5_read_text(h5, "info/recipe", text_bytes_max, &model->recipe));
    OCT_TRY(oct_h5_read_text(h5, "info/data_format", text_bytes_max, &model->data_format));
    OCT_TRY(oct_h5_read(h5, "info/mean", OCT_F32, OCT_SHAPE(CHANNELS_MAX), model->mean));
    OCT_TRY(oct_h5_read(h5, "info/std", OCT_F32, OCT_SHAPE(CHANNELS_MAX), model->std));
    OCT_TRY(oct_h5_read_i64(h5, "info/classes", 1, DIM_MAX, &classes));
    model->classes = (int)classes;
    OCT_TRY(oct_h5_read(h5, "info/checkpoint_digest", OCT_U8, OCT_SHAPE(DIGEST),
                        model->checkpoint_digest));
    OCT_TRY(read_program(h5, &model->program));
    OCT_TRY(oct_h5_read_new(h5, "program/overflow_bound", OCT_S64, OCT_SHAPE(program->num_steps),
                            &model->overflow_bound));
    OCT_TRY(read_certificate(h5, &model->certificate));
    OCT_TRY(check_model(model));
    const int64_t golden = model->certificate.golden_count;
    OCT_TRY(oct_h5_read_new(h5, "golden/input", OCT_F32, OCT_SHAPE(golden, input_numel(program)),
                            &model->golden_input));
    return oct_h5_read_new(h5, "golden/digest", OCT_U8,
                           OCT_SHAPE(golden, program->num_values, DIGEST), &model->golden_digest);
}

oct_status oct_model_load(oct_model *model, const char *path)
{
    oct_status status = OCT_OK;
    oct_h5 *h5 = NULL;
    void *bytes = NULL;
    size_t size;

    *model = (oct_model){0};
    OCT_TRY(oct_file_read(path, file_bytes_max, &bytes, &size));
    /* All that is said from here on lacks the path, which is put in front at the end. */
    if (!oct_h5_sealed(bytes, size))
        status = oct_fail(OCT_DATA, "is damaged: its SHA-256 differs");
    else
        status = oct_h5_open(&h5, bytes, size - OCT_SEAL_BYTES, "int8 model");
    if (status == OCT_OK) status = read_model(h5, model);
    if (status != OCT_OK) {
        oct_fail_prefix("%s", path);
        oct_model_free(model);
    }
    oct_h5_close(&h5);
    oct_free(&bytes);
    return status;
}

void oct_model_free(oct_model *model)
{
    oct_program_free(&model->program);
    oct_free(&model->recipe);
    oct_free(&model->data_format);
    oct_free(&model->overflow_bound);
    oct_free(&model->golden_input);
    oct_free(&model->golden_digest);
    oct_free(&model->certificate.islands);
    *model = (oct_model){0};
}

bool oct_model_is(const char *path)
{
    oct_h5 *h5 = NULL;
    void *bytes = NULL;
    size_t size;

    bool is = oct_file_read(path, file_bytes_max, &bytes, &size) == OCT_OK &&
              oct_h5_open_sealed(&h5, bytes, size, path) == OCT_OK &&
              oct_h5_is_group(h5, "program");
    oct_h5_close(&h5);
    oct_free(&bytes);
    if (!is) oct_fail_clear();
    return is;
}
