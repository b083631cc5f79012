/* The int8 model file: the program as one text (quant/program/program_text.c) with the arrays of steps beside it, how to
 * feed it, golden vectors, certificate. A file is read in the order in which each part bounds the next: the shapes of
 * arrays follow from the text. oct_model_check has the last word, before saving too. */
#include "io/model/model_file.h"

#include "core/base/mem.h"
#include "io/model/class_names.h"
#include "io/file/file.h"
#include "io/hdf5/hdf5.h"
#include "quant/convert/convert.h"
#include "quant/program/step.h"

#include <stdio.h>
#include <string.h>

enum {
    FORMAT = 4,
    DIM_MAX = 65536,
    DIGEST = 32,
    FEWEST_CHANNELS = 4, /* a file has room for this many means, even where it has fewer channels */
};
static const size_t file_bytes_max = (size_t)1 << 34, text_bytes_max = (size_t)1 << 26;
static const int64_t array_numel_max = (int64_t)1 << 28;

/* The path of an array of a step: "program/weights/12/bias". */
static const char *array_path(char path[64], int64_t step, const oct_step_array *array)
{
    snprintf(path, 64, "program/%s/%lld/%s", array->group, (long long)step, array->name);
    return path;
}

static const char *fallback_path(char path[64], int64_t step, int64_t array)
{
    snprintf(path, 64, "program/fallbacks/%lld/%lld", (long long)step, (long long)array);
    return path;
}

static oct_status write_arrays(oct_h5 *h5, int64_t i, const oct_step *step)
{
    const oct_step_type *type = oct_step_type_of(step->kind);
    char path[64];
    oct_shape shape;
    for (int k = 0; k < type->num_arrays; k++) {
        const oct_step_array *array = &type->arrays[k];
        OCT_TRY(array->shape(step, &shape));
        OCT_TRY(oct_h5_write(h5, array_path(path, i, array), array->dtype, shape,
                             oct_step_data(step, array)));
    }
    for (int64_t k = 0; step->kind == OCT_STEP_FLOAT && k < step->fallback->num_arrays; k++) {
        const oct_fallback_array *array = &step->fallback->arrays[k];
        OCT_TRY(
            oct_h5_write(h5, fallback_path(path, i, k), array->dtype, array->shape, array->data));
    }
    return OCT_OK;
}

static oct_status write_program(oct_h5 *h5, const oct_program *program)
{
    oct_text text = {0};
    oct_status status;
    OCT_TRY_OUT(oct_program_write_text(program, &text));
    OCT_TRY_OUT(oct_h5_write_text(h5, "program/text", text.data));
    for (int64_t i = 0; i < program->num_steps; i++)
        OCT_TRY_OUT(write_arrays(h5, i, &program->steps[i]));
out:
    oct_text_free(&text);
    return status;
}

static oct_status write_certificate(oct_h5 *h5, const oct_certificate *c)
{
    const oct_shape scalar = {.ndim = 0};
    OCT_TRY(oct_h5_write_i64(h5, "certificate/images", c->images));
    OCT_TRY(oct_h5_write_i64(h5, "certificate/logits_differ", c->logits_differ));
    OCT_TRY(oct_h5_write_i64(h5, "certificate/correct", c->correct));
    if (oct_certificate_rows(c) != c->images)
        OCT_TRY(oct_h5_write_i64(h5, "certificate/rows", c->rows));
    OCT_TRY(oct_h5_write(h5, "certificate/qat_accuracy", OCT_F64, scalar, &c->qat_accuracy));
    OCT_TRY(
        oct_h5_write(h5, "certificate/logits_digest", OCT_U8, OCT_SHAPE(DIGEST), c->logits_digest));
    OCT_TRY(oct_h5_write(h5, "certificate/data_digest", OCT_U8, OCT_SHAPE(DIGEST), c->data_digest));
    OCT_TRY(oct_h5_write_i64(h5, "certificate/golden_count", c->golden_count));
    OCT_TRY(oct_h5_write_i64(h5, "certificate/num_fallbacks", c->num_fallbacks));
    return c->fallbacks ? oct_h5_write_text(h5, "certificate/fallbacks", c->fallbacks) : OCT_OK;
}

/* How many means and stds a file of `channels` has. */
static int64_t means_of(int64_t channels)
{
    return channels <= FEWEST_CHANNELS ? FEWEST_CHANNELS : OCT_REALS_MAX;
}

static oct_status write_model(oct_h5 *h5, const oct_model *model)
{
    const oct_program *program = &model->program;
    const int64_t golden = model->certificate.golden_count;
    OCT_TRY(oct_h5_write_i64(h5, "info/format", FORMAT));
    OCT_TRY(oct_h5_write_text(h5, "info/recipe", model->recipe ? model->recipe : ""));
    OCT_TRY(
        oct_h5_write_text(h5, "info/data_format", model->data_format ? model->data_format : ""));
    if (model->plugins) OCT_TRY(oct_h5_write_text(h5, "info/plugins", model->plugins));
    if (model->class_names) OCT_TRY(oct_h5_write_text(h5, "info/class_names", model->class_names));
    if (model->port_names) OCT_TRY(oct_h5_write_text(h5, "info/port_names", model->port_names));
    const oct_shape means = OCT_SHAPE(means_of(program->values[program->inputs[0]].c));
    OCT_TRY(oct_h5_write(h5, "info/mean", OCT_F32, means, model->mean));
    OCT_TRY(oct_h5_write(h5, "info/std", OCT_F32, means, model->std));
    OCT_TRY(oct_h5_write_i64(h5, "info/classes", model->classes));
    OCT_TRY(oct_h5_write(h5, "info/checkpoint_digest", OCT_U8, OCT_SHAPE(DIGEST),
                         model->checkpoint_digest));
    OCT_TRY(write_program(h5, program));
    OCT_TRY(oct_h5_write(h5, "program/overflow_bound", OCT_S64, OCT_SHAPE(program->num_steps),
                         model->overflow_bound));
    OCT_TRY(write_certificate(h5, &model->certificate));
    OCT_TRY(oct_h5_write(h5, "golden/input", OCT_F32, OCT_SHAPE(golden, oct_inputs_numel(program)),
                         model->golden_input));
    return oct_h5_write(h5, "golden/digest", OCT_U8, OCT_SHAPE(golden, program->num_values, DIGEST),
                        model->golden_digest);
}

oct_status oct_model_save(const char *path, const oct_model *model)
{
    oct_status status = OCT_OK;
    oct_h5 *h5 = NULL;
    void *bytes = NULL;
    size_t size;

    status = oct_model_check(model);
    if (status != OCT_OK) {
        oct_fail_prefix("%s", path);
        goto out;
    }
    OCT_TRY_OUT(oct_h5_create(&h5));
    OCT_TRY_OUT(write_model(h5, model));
    OCT_TRY_OUT(oct_h5_image_with_checksum(h5, &bytes, &size));
    status = oct_file_write(path, bytes, size);
out:
    oct_h5_close(&h5);
    oct_free(&bytes);
    return status;
}

/* Loading. */

static oct_status read_arrays(oct_h5 *h5, int64_t i, oct_step *step)
{
    const oct_step_type *type = oct_step_type_of(step->kind);
    char path[64];
    oct_shape shape;
    for (int k = 0; k < type->num_arrays; k++) {
        const oct_step_array *array = &type->arrays[k];
        if (array->shape(step, &shape) != OCT_OK) return oct_fail_prefix("step %lld", (long long)i);
        OCT_TRY(oct_h5_read_new(h5, array_path(path, i, array), array->dtype, shape,
                                oct_step_slot(step, array)));
    }
    for (int64_t k = 0; step->kind == OCT_STEP_FLOAT && k < step->fallback->num_arrays; k++) {
        oct_fallback_array *array = &step->fallback->arrays[k];
        const int64_t numel = oct_shape_numel(&array->shape);
        fallback_path(path, i, k);
        OCT_CHECK(numel >= 0 && numel <= array_numel_max, OCT_DATA, "%s is too large", path);
        OCT_TRY(oct_h5_read_new(h5, path, array->dtype, array->shape, &array->data));
    }
    return OCT_OK;
}

static oct_status read_program(oct_h5 *h5, oct_program *program)
{
    char *text;
    OCT_TRY(oct_h5_read_text(h5, "program/text", text_bytes_max, &text));
    oct_status status = oct_program_read_text(program, text, strlen(text));
    oct_free(&text);
    for (int64_t i = 0; i < program->num_steps && status == OCT_OK; i++)
        status = read_arrays(h5, i, &program->steps[i]);
    return status;
}

static oct_status read_certificate(oct_h5 *h5, oct_certificate *c)
{
    const oct_shape scalar = {.ndim = 0};
    OCT_TRY(oct_h5_read_i64(h5, "certificate/images", 0, INT64_MAX, &c->images));
    OCT_TRY(oct_h5_read_i64(h5, "certificate/logits_differ", 0, INT64_MAX, &c->logits_differ));
    c->rows = c->images;
    if (oct_h5_has(h5, "certificate/rows"))
        OCT_TRY(oct_h5_read_i64(h5, "certificate/rows", 0, INT64_MAX, &c->rows));
    OCT_TRY(oct_h5_read_i64(h5, "certificate/correct", 0, c->rows, &c->correct));
    OCT_TRY(oct_h5_read(h5, "certificate/qat_accuracy", OCT_F64, scalar, &c->qat_accuracy));
    OCT_TRY(
        oct_h5_read(h5, "certificate/logits_digest", OCT_U8, OCT_SHAPE(DIGEST), c->logits_digest));
    OCT_TRY(oct_h5_read(h5, "certificate/data_digest", OCT_U8, OCT_SHAPE(DIGEST), c->data_digest));
    OCT_TRY(
        oct_h5_read_i64(h5, "certificate/golden_count", 0, OCT_MODEL_GOLDEN_MAX, &c->golden_count));
    OCT_TRY(oct_h5_read_i64(h5, "certificate/num_fallbacks", 0, OCT_MODEL_STEPS_MAX,
                            &c->num_fallbacks));
    if (!oct_h5_has(h5, "certificate/fallbacks")) return OCT_OK;
    return oct_h5_read_text(h5, "certificate/fallbacks", OCT_MODEL_TEXT_MAX, &c->fallbacks);
}

static oct_status read_format(oct_h5 *h5)
{
    int64_t format;
    OCT_CHECK(oct_h5_is_group(h5, "program"), OCT_DATA, "is not an int8 model");
    OCT_TRY(oct_h5_read_i64(h5, "info/format", 1, INT64_MAX, &format));
    OCT_CHECK(
        format >= FORMAT, OCT_DATA,
        "has model format %lld, which this Octet no longer reads (it knows format %d); convert "
        "its checkpoint again",
        (long long)format, FORMAT);
    OCT_CHECK(format <= FORMAT, OCT_DATA,
              "has model format %lld and this Octet knows format %d; use a newer Octet",
              (long long)format, FORMAT);
    return OCT_OK;
}

static oct_status read_means(oct_h5 *h5, oct_model *model)
{
    const oct_program *program = &model->program;
    const int64_t first = program->num_inputs > 0 ? program->inputs[0] : -1;
    OCT_CHECK(first >= 0 && first < program->num_values, OCT_DATA, "the program has no input");
    const oct_shape means = OCT_SHAPE(means_of(program->values[first].c));
    OCT_TRY(oct_h5_read(h5, "info/mean", OCT_F32, means, model->mean));
    return oct_h5_read(h5, "info/std", OCT_F32, means, model->std);
}

static oct_status read_model(oct_h5 *h5, oct_model *model)
{
    const oct_program *program = &model->program;
    int64_t classes;
    OCT_TRY(read_format(h5));
    OCT_TRY(oct_h5_read_text(h5, "info/recipe", OCT_MODEL_TEXT_MAX, &model->recipe));
    OCT_TRY(oct_h5_read_text(h5, "info/data_format", OCT_MODEL_TEXT_MAX, &model->data_format));
    if (oct_h5_has(h5, "info/plugins"))
        OCT_TRY(oct_h5_read_text(h5, "info/plugins", OCT_MODEL_TEXT_MAX, &model->plugins));
    if (oct_h5_has(h5, "info/class_names"))
        OCT_TRY(oct_h5_read_text(h5, "info/class_names", OCT_CLASS_NAMES_BYTES_MAX,
                                 &model->class_names));
    if (oct_h5_has(h5, "info/port_names"))
        OCT_TRY(oct_h5_read_text(h5, "info/port_names", 2 * 256, &model->port_names));
    OCT_TRY(oct_h5_read_i64(h5, "info/classes", 1, DIM_MAX, &classes));
    model->classes = (int)classes;
    OCT_TRY(oct_h5_read(h5, "info/checkpoint_digest", OCT_U8, OCT_SHAPE(DIGEST),
                        model->checkpoint_digest));
    OCT_TRY(read_program(h5, &model->program));
    OCT_TRY(read_means(h5, model));
    OCT_TRY(oct_h5_read_new(h5, "program/overflow_bound", OCT_S64, OCT_SHAPE(program->num_steps),
                            &model->overflow_bound));
    OCT_TRY(read_certificate(h5, &model->certificate));
    OCT_TRY(oct_model_check(model));
    const int64_t golden = model->certificate.golden_count;
    OCT_TRY(oct_h5_read_new(h5, "golden/input", OCT_F32,
                            OCT_SHAPE(golden, oct_inputs_numel(program)), &model->golden_input));
    OCT_TRY(oct_h5_read_new(h5, "golden/digest", OCT_U8,
                            OCT_SHAPE(golden, program->num_values, DIGEST), &model->golden_digest));
    return oct_h5_check_all_read(h5);
}

static oct_status read_checksummed(oct_model *model, const void *bytes, size_t size)
{
    oct_h5 *h5 = NULL;
    OCT_TRY(oct_h5_check_checksum(bytes, size));
    OCT_TRY(oct_h5_open(&h5, bytes, size - OCT_CHECKSUM_BYTES, "int8 model"));
    const oct_status status = read_model(h5, model);
    oct_h5_close(&h5);
    return status;
}

oct_status oct_model_load(oct_model *model, const char *path)
{
    void *bytes = NULL;
    size_t size;

    *model = (oct_model){0};
    OCT_TRY(oct_file_read(path, file_bytes_max, &bytes, &size));
    /* All that is said from here on lacks the path, which is put in front at the end. */
    const bool flat = oct_model_is_flat(bytes, size);
    oct_status status =
        flat ? oct_model_read_flat(model, bytes, size) : read_checksummed(model, bytes, size);
    if (status == OCT_OK && flat) status = oct_model_check(model);
    if (status == OCT_OK) status = oct_model_check_costs(model);
    if (status == OCT_OK) status = oct_fallbacks_check(&model->program, false);
    if (status != OCT_OK) {
        oct_fail_prefix("%s", path);
        oct_model_free(model);
    }
    oct_free(&bytes);
    return status;
}

oct_status oct_model_is(const char *path, bool *is)
{
    oct_h5 *h5 = NULL;
    void *bytes = NULL;
    size_t size;

    oct_status status = oct_file_read(path, file_bytes_max, &bytes, &size);
    if (status == OCT_OK) status = oct_h5_open_checked(&h5, bytes, size, path);
    *is = status == OCT_OK && oct_h5_is_group(h5, "program");
    oct_h5_close(&h5);
    oct_free(&bytes);
    if (status == OCT_RESOURCE) return status;
    if (!*is) oct_fail_clear();
    return OCT_OK;
}
