/* The int8 model file: the program as one text (quant/program/program_text.c) with the arrays of steps beside it, how to
 * feed it, golden vectors, certificate. A file is read in the order in which each part bounds the next: the shapes of
 * arrays follow from the text. oct_model_check has the last word, before saving too. */
#include "io/model/model_file.h"

#include "core/base/cpu.h"
#include "core/base/mem.h"
#include "io/file/file.h"
#include "io/model/class_names.h"
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

/* An HDF5 file that a model is written to or read from: what it holds is listed once, for both. */
typedef struct model_file {
    oct_h5 *h5;
    bool writes;
} model_file;

static oct_status transfer_array(const model_file *f, const char *path, oct_dtype dtype,
                                 oct_shape shape, void *data)
{
    return f->writes ? oct_h5_write(f->h5, path, dtype, shape, data)
                     : oct_h5_read(f->h5, path, dtype, shape, data);
}

/* Writes an array, or reads it into memory that is allocated for it; block: a T **. */
static oct_status transfer_new_array(const model_file *f, const char *path, oct_dtype dtype,
                                     oct_shape shape, void *block)
{
    void *data;
    memcpy(&data, block, sizeof data);
    return f->writes ? oct_h5_write(f->h5, path, dtype, shape, data)
                     : oct_h5_read_new(f->h5, path, dtype, shape, block);
}

static oct_status transfer_number(const model_file *f, const char *path, int64_t min, int64_t max,
                                  int64_t *value)
{
    return f->writes ? oct_h5_write_i64(f->h5, path, *value)
                     : oct_h5_read_i64(f->h5, path, min, max, value);
}

/* An optional text is NULL in the model where the file has none; another one is empty there. */
static oct_status transfer_text(const model_file *f, const char *path, size_t most, bool optional,
                                char **text)
{
    if (optional && !(f->writes ? *text != NULL : oct_h5_has(f->h5, path))) return OCT_OK;
    return f->writes ? oct_h5_write_text(f->h5, path, *text ? *text : "")
                     : oct_h5_read_text(f->h5, path, most, text);
}

/* Writes or reads the arrays of a step, whose shapes follow from the program's text. */
static oct_status transfer_step_arrays(const model_file *f, int64_t number, oct_step *step)
{
    const oct_step_type *type = oct_step_type_of(step->kind);
    char path[64];
    oct_shape shape;
    for (int k = 0; k < type->num_arrays; k++) {
        const oct_step_array *array = &type->arrays[k];
        snprintf(path, sizeof path, "program/%s/%lld/%s", array->group, (long long)number,
                 array->name);
        if (array->shape(step, &shape) != OCT_OK)
            return oct_fail_prefix("step %lld", (long long)number);
        OCT_TRY(transfer_new_array(f, path, array->dtype, shape, oct_step_slot(step, array)));
    }
    for (int64_t k = 0; step->kind == OCT_STEP_FLOAT && k < step->fallback->num_arrays; k++) {
        oct_fallback_array *array = &step->fallback->arrays[k];
        const int64_t numel = oct_shape_numel(&array->shape);
        snprintf(path, sizeof path, "program/fallbacks/%lld/%lld", (long long)number, (long long)k);
        OCT_CHECK(numel >= 0 && numel <= array_numel_max, OCT_DATA, "%s is too large", path);
        OCT_TRY(transfer_new_array(f, path, array->dtype, array->shape, &array->data));
    }
    return OCT_OK;
}

/* Writes or reads the text of the program, then the arrays of its steps. */
static oct_status transfer_program(const model_file *f, oct_program *program)
{
    OCT_OWNED(oct_text_free) oct_text text = {0};
    if (f->writes) OCT_TRY(oct_program_write_text(program, &text));
    OCT_TRY(transfer_text(f, "program/text", text_bytes_max, false, &text.data));
    if (!f->writes) OCT_TRY(oct_program_read_text(program, text.data, strlen(text.data)));
    for (int64_t i = 0; i < program->num_steps; i++)
        OCT_TRY(transfer_step_arrays(f, i, &program->steps[i]));
    return OCT_OK;
}

static oct_status transfer_certificate(const model_file *f, oct_certificate *c)
{
    const oct_shape scalar = {.ndim = 0}, digest = OCT_SHAPE(DIGEST);
    OCT_TRY(transfer_number(f, "certificate/images", 0, INT64_MAX, &c->images));
    OCT_TRY(transfer_number(f, "certificate/logits_differ", 0, INT64_MAX, &c->logits_differ));
    if (!f->writes) { /* rows bound what is correct; files without them have a row for each image */
        c->rows = c->images;
        if (oct_h5_has(f->h5, "certificate/rows"))
            OCT_TRY(oct_h5_read_i64(f->h5, "certificate/rows", 0, INT64_MAX, &c->rows));
    }
    OCT_TRY(transfer_number(f, "certificate/correct", 0, oct_certificate_rows(c), &c->correct));
    if (f->writes && oct_certificate_rows(c) != c->images)
        OCT_TRY(oct_h5_write_i64(f->h5, "certificate/rows", c->rows));
    OCT_TRY(transfer_array(f, "certificate/qat_accuracy", OCT_F64, scalar, &c->qat_accuracy));
    OCT_TRY(transfer_array(f, "certificate/logits_digest", OCT_U8, digest, c->logits_digest));
    OCT_TRY(transfer_array(f, "certificate/data_digest", OCT_U8, digest, c->data_digest));
    OCT_TRY(
        transfer_number(f, "certificate/golden_count", 0, OCT_MODEL_GOLDEN_MAX, &c->golden_count));
    OCT_TRY(
        transfer_number(f, "certificate/num_fallbacks", 0, OCT_MODEL_STEPS_MAX, &c->num_fallbacks));
    return transfer_text(f, "certificate/fallbacks", OCT_MODEL_TEXT_MAX, true, &c->fallbacks);
}

/* Writes the number of the format, or reads it and refuses that of another Octet with the remedy. */
static oct_status transfer_format(const model_file *f)
{
    int64_t format = FORMAT;
    OCT_CHECK(f->writes || oct_h5_is_group(f->h5, "program"), OCT_DATA, "is not an int8 model");
    OCT_TRY(transfer_number(f, "info/format", 1, INT64_MAX, &format));
    OCT_CHECK(
        format >= FORMAT, OCT_DATA,
        "has model format %lld, which this Octet no longer reads (it knows format %d); convert "
        "its checkpoint again, or save it again with the program that made it",
        (long long)format, FORMAT);
    OCT_CHECK(format <= FORMAT, OCT_DATA,
              "has model format %lld and this Octet knows format %d; use a newer Octet",
              (long long)format, FORMAT);
    return OCT_OK;
}

/* Writes or reads means and standard deviations of the first input's channels. */
static oct_status transfer_means(const model_file *f, oct_model *model)
{
    const oct_program *program = &model->program;
    const int64_t first = program->num_inputs > 0 ? program->inputs[0] : -1;
    OCT_CHECK(first >= 0 && first < program->num_values, OCT_DATA, "the program has no input");
    const bool few = program->values[first].c <= FEWEST_CHANNELS;
    const oct_shape means = OCT_SHAPE(few ? FEWEST_CHANNELS : OCT_REALS_MAX);
    OCT_TRY(transfer_array(f, "info/mean", OCT_F32, means, model->mean));
    return transfer_array(f, "info/std", OCT_F32, means, model->std);
}

/* Writes in the order of the file. Reads in the same order, except that the program comes before the means, whose number
 * depends on it, and that the model is checked before the golden data are sized by it. */
oct_status oct_model_transfer(oct_h5 *h5, bool writes, oct_model *model)
{
    const model_file *f = &(model_file){.h5 = h5, .writes = writes};
    const oct_program *program = &model->program;
    int64_t classes = model->classes;
    OCT_TRY(transfer_format(f));
    OCT_TRY(transfer_text(f, "info/recipe", OCT_MODEL_TEXT_MAX, false, &model->recipe));
    OCT_TRY(transfer_text(f, "info/data_format", OCT_MODEL_TEXT_MAX, false, &model->data_format));
    OCT_TRY(transfer_text(f, "info/plugins", OCT_MODEL_TEXT_MAX, true, &model->plugins));
    OCT_TRY(
        transfer_text(f, "info/class_names", OCT_CLASS_NAMES_BYTES_MAX, true, &model->class_names));
    OCT_TRY(
        transfer_text(f, "info/port_names", OCT_PORT_NAMES_BYTES_MAX, true, &model->port_names));
    if (f->writes) OCT_TRY(transfer_means(f, model));
    OCT_TRY(transfer_number(f, "info/classes", 1, DIM_MAX, &classes));
    model->classes = (int)classes;
    OCT_TRY(transfer_array(f, "info/checkpoint_digest", OCT_U8, OCT_SHAPE(DIGEST),
                           model->checkpoint_digest));
    OCT_TRY(transfer_program(f, &model->program));
    if (!f->writes) OCT_TRY(transfer_means(f, model));
    OCT_TRY(transfer_new_array(f, "program/overflow_bound", OCT_S64, OCT_SHAPE(program->num_steps),
                               &model->overflow_bound));
    OCT_TRY(transfer_certificate(f, &model->certificate));
    if (!f->writes) OCT_TRY(oct_model_check(model));
    const int64_t golden = model->certificate.golden_count;
    OCT_TRY(transfer_new_array(f, "golden/input", OCT_F32,
                               OCT_SHAPE(golden, oct_inputs_numel(program)), &model->golden_input));
    return transfer_new_array(f, "golden/digest", OCT_U8,
                              OCT_SHAPE(golden, program->num_values, DIGEST),
                              &model->golden_digest);
}

static oct_status read_checksummed(oct_model *model, const void *bytes, size_t size)
{
    OCT_OWNED(oct_h5_close) oct_h5 *h5 = NULL;
    OCT_CHECK(oct_h5_begins(bytes, size), OCT_DATA,
              "is no model of Octet: it is neither an HDF5 file nor a flat file");
    OCT_TRY(oct_h5_check_checksum(bytes, size));
    OCT_TRY(oct_h5_open(&h5, -1, bytes, size - OCT_CHECKSUM_BYTES, "int8 model"));
    OCT_TRY(oct_model_transfer(h5, false, model));
    return oct_h5_check_all_read(h5);
}

static oct_status read_any(oct_model *model, const char *path)
{
    OCT_OWNED(oct_free) void *bytes = NULL;
    size_t size;
    OCT_TRY(oct_file_read(path, file_bytes_max, &bytes, &size));
    /* All that is said from here on lacks the path, which is put in front at the end. */
    const bool flat = oct_model_is_flat(bytes, size);
    oct_status status =
        flat ? oct_model_read_flat(model, bytes, size) : read_checksummed(model, bytes, size);
    if (status == OCT_OK && flat) status = oct_model_check(model);
    if (status != OCT_OK) {
        (void)oct_fail_prefix("%s", path);
        oct_model_free(model);
    }
    return status;
}

oct_status oct_model_read(oct_model *model, const char *path)
{
    fenv_t rounding;
    OCT_CHECK(model && path, OCT_USAGE, "a model is loaded from a path; NULL is none");
    *model = (oct_model){0};
    oct_round_to_nearest(&rounding);
    const oct_status status = read_any(model, path);
    oct_round_as_before(&rounding);
    return status;
}

oct_status oct_model_probe(const char *path, bool *is)
{
    OCT_OWNED(oct_free) void *bytes = NULL;
    OCT_OWNED(oct_h5_close) oct_h5 *h5 = NULL;
    size_t size;
    oct_status status = oct_file_read(path, file_bytes_max, &bytes, &size);
    if (status == OCT_OK) status = oct_h5_open_checked(&h5, bytes, size, path);
    *is = status == OCT_OK && oct_h5_is_group(h5, "program");
    if (status == OCT_RESOURCE) return status;
    if (!*is) oct_fail_clear();
    return OCT_OK;
}
