/* The int8 model file: the program (model_program.h), how to feed it, golden vectors, certificate.
 * oct_program_check has the last word on the program, before saving too. */
#include "io/model/model_file.h"

#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "io/model/class_names.h"
#include "io/file/file.h"
#include "io/model/model_flat.h"
#include "io/model/model_program.h"
#include "quant/kernel/qconv.h"
#include "quant/convert/convert.h"
#include "quant/program/step.h"

#include <math.h>
#include <string.h>

enum {
    FORMAT = 3,
    DIM_MAX = 65536,
    GOLDEN_MAX = 65536,
    DIGEST = 32,
    FEWEST_CHANNELS = 4, /* that a file has room for, and files of up to so many have */
};
static const size_t file_bytes_max = (size_t)1 << 34, text_bytes_max = (size_t)1 << 20;

/* That correct counts. */
static int64_t rows_of(const oct_certificate *c)
{
    return c->rows > 0 ? c->rows : c->images;
}

static oct_status write_certificate(oct_h5 *h5, const oct_certificate *c)
{
    const oct_shape scalar = {.ndim = 0};
    OCT_TRY(oct_h5_write_i64(h5, "certificate/images", c->images));
    OCT_TRY(oct_h5_write_i64(h5, "certificate/logits_differ", c->logits_differ));
    OCT_TRY(oct_h5_write_i64(h5, "certificate/correct", c->correct));
    if (rows_of(c) != c->images) OCT_TRY(oct_h5_write_i64(h5, "certificate/rows", c->rows));
    OCT_TRY(oct_h5_write(h5, "certificate/qat_accuracy", OCT_F64, scalar, &c->qat_accuracy));
    OCT_TRY(
        oct_h5_write(h5, "certificate/logits_digest", OCT_U8, OCT_SHAPE(DIGEST), c->logits_digest));
    OCT_TRY(oct_h5_write(h5, "certificate/data_digest", OCT_U8, OCT_SHAPE(DIGEST), c->data_digest));
    OCT_TRY(oct_h5_write_i64(h5, "certificate/golden_count", c->golden_count));
    OCT_TRY(oct_h5_write_i64(h5, "certificate/num_islands", c->num_fallbacks));
    return c->fallbacks ? oct_h5_write_text(h5, "certificate/islands", c->fallbacks) : OCT_OK;
}

/* How many means and stds a file has for so many channels. */
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
    OCT_TRY(oct_model_write_program(h5, program));
    OCT_TRY(oct_h5_write(h5, "program/overflow_bound", OCT_S64, OCT_SHAPE(program->num_steps),
                         model->overflow_bound));
    OCT_TRY(write_certificate(h5, &model->certificate));
    OCT_TRY(oct_h5_write(h5, "golden/input", OCT_F32, OCT_SHAPE(golden, oct_inputs_numel(program)),
                         model->golden_input));
    return oct_h5_write(h5, "golden/digest", OCT_U8, OCT_SHAPE(golden, program->num_values, DIGEST),
                        model->golden_digest);
}

/* The largest |accumulator| of a step, 0 where it has none. */
static int64_t bound_of(const oct_program *program, const oct_step *step)
{
    int64_t most = 0;
    if (!oct_step_type_of(step->kind)->weights) return 0;
    const oct_qparams x = oct_step_input(program, step, 0)->q;
    for (int64_t c = 0; c < step->conv.out_c; c++)
        most = oct_max_i64(
            most, oct_qconv_bound(&step->conv, step->weight, c, step->bias[c], x.qmin, x.qmax));
    return most;
}

oct_status oct_model_find_bounds(oct_model *model)
{
    const oct_program *program = &model->program;
    OCT_TRY(oct_alloc(&model->overflow_bound, (size_t)program->num_steps, sizeof(int64_t)));
    for (int64_t i = 0; i < program->num_steps; i++)
        model->overflow_bound[i] = bound_of(program, &program->steps[i]);
    return OCT_OK;
}

/* The constants of a layer follow from its scales, which exported files have. */
static bool fits_scales(const oct_program *program, const oct_step *step)
{
    if (!oct_step_type_of(step->kind)->weights) return true;
    const oct_value *out = oct_step_output(program, step);
    const float in_scale = oct_step_input(program, step, 0)->q.scale;
    const float out_scale = out->dtype == OCT_F32 ? 1.0f : out->q.scale;
    const float addend =
        step->num_inputs > 1 ? oct_step_input(program, step, 1)->q.scale / out_scale : 0;
    bool fits = step->addend_multiplier == addend;
    for (int64_t c = 0; c < step->conv.out_c; c++)
        fits = fits && step->multiplier[c] == in_scale * step->weight_scale[c] / out_scale;
    return fits;
}

/* Checks what the file says of a step beside the program. */
static oct_status check_step(const oct_model *model, int64_t i)
{
    const oct_program *program = &model->program;
    const oct_step *step = &program->steps[i];
    OCT_CHECK(memchr(step->name, '\0', sizeof step->name) && oct_is_plain_text(step->name) &&
                  !strchr(step->name, '\n'),
              OCT_DATA, "the name of step %lld is not a line of text", (long long)i);
    OCT_CHECK(model->overflow_bound[i] == bound_of(program, step), OCT_DATA,
              "the overflow bound of step %lld is not that of its weights", (long long)i);
    OCT_CHECK(fits_scales(program, step), OCT_DATA,
              "the multipliers of step %lld are not those of its scales", (long long)i);
    return OCT_OK;
}

/* The figures follow from each other; which of them are true shows on the test set (octet verify). */
static oct_status check_certificate(const oct_model *model)
{
    const oct_certificate *c = &model->certificate;
    const double rows = (double)rows_of(c);
    int64_t fallbacks = 0;
    for (int64_t i = 0; i < model->program.num_steps; i++)
        fallbacks += model->program.steps[i].kind == OCT_STEP_FLOAT;
    OCT_CHECK(c->golden_count >= 0 && c->golden_count <= GOLDEN_MAX, OCT_DATA,
              "%lld golden inputs; 0 to %d are allowed", (long long)c->golden_count, GOLDEN_MAX);
    const double accuracy = rows > 0 ? 100.0 * (double)c->correct / rows : 0;
    OCT_CHECK(c->images >= 0 && c->rows >= 0 && c->logits_differ == 0 && c->correct >= 0 &&
                  c->correct <= rows_of(c) && c->num_fallbacks == fallbacks &&
                  (c->qat_accuracy == accuracy || (c->qat_accuracy == -1 && c->correct == 0)),
              OCT_DATA,
              "the figures of the certificate contradict each other: %lld images, %lld rows, %lld "
              "right, an accuracy of %g %%, %lld logits that differ, %lld float layers of %lld",
              (long long)c->images, (long long)c->rows, (long long)c->correct, c->qat_accuracy,
              (long long)c->logits_differ, (long long)c->num_fallbacks, (long long)fallbacks);
    return OCT_OK;
}

/* Checks what holds of every model beyond oct_program_check, saved or loaded. */
static oct_status check_model(const oct_model *model)
{
    const oct_program *program = &model->program;
    const char *texts[] = {model->recipe, model->data_format, model->plugins,
                           model->certificate.fallbacks};

    OCT_CHECK(program->num_steps >= 1 && program->num_steps <= OCT_MODEL_STEPS_MAX &&
                  program->num_values >= 1 && program->num_values <= OCT_MODEL_VALUES_MAX,
              OCT_DATA,
              "the program has %lld steps and %lld values; 1 to %d and 1 to %d are allowed",
              (long long)program->num_steps, (long long)program->num_values, OCT_MODEL_STEPS_MAX,
              OCT_MODEL_VALUES_MAX);
    OCT_TRY(oct_program_check(program));
    for (size_t i = 0; i < OCT_COUNT(texts); i++)
        OCT_CHECK(!texts[i] || (oct_is_plain_text(texts[i]) && strlen(texts[i]) <= text_bytes_max),
                  OCT_DATA, "a text holds control characters or more than 1 MiB");
    OCT_CHECK(!model->class_names || oct_class_names_fit(model->class_names, model->classes),
              OCT_DATA, "the names of the classes are not %d lines of plain text", model->classes);
    OCT_CHECK(!model->port_names ||
                  (program->num_inputs == 1 && oct_class_names_fit(model->port_names, 2)),
              OCT_DATA, "the names of the input and the output are not 2 lines of plain text");
    for (int64_t i = 0; i < program->num_steps; i++)
        OCT_TRY(check_step(model, i));
    int64_t channels = program->values[program->inputs[0]].c;
    for (int64_t i = 0; i < (channels <= OCT_REALS_MAX ? channels : 1); i++)
        OCT_CHECK(isfinite(model->mean[i]) && isfinite(model->std[i]) && model->std[i] > 0.0f,
                  OCT_DATA, "mean or std of input channel %lld is not a usable number",
                  (long long)i);
    const oct_value *output = &program->values[program->output];
    OCT_CHECK(output->dtype == OCT_S32 ? model->classes >= 1
                                       : model->classes == output->h * output->w * output->c ||
                                             model->classes == output->c,
              OCT_DATA, "%d classes, but the output has %lld numbers", model->classes,
              (long long)(output->h * output->w * output->c));
    return check_certificate(model);
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
    OCT_TRY(oct_h5_read_i64(h5, "certificate/golden_count", 0, GOLDEN_MAX, &c->golden_count));
    OCT_TRY(
        oct_h5_read_i64(h5, "certificate/num_islands", 0, OCT_MODEL_STEPS_MAX, &c->num_fallbacks));
    if (!oct_h5_has(h5, "certificate/islands")) return OCT_OK;
    return oct_h5_read_text(h5, "certificate/islands", text_bytes_max, &c->fallbacks);
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
    OCT_TRY(oct_h5_read_text(h5, "info/recipe", text_bytes_max, &model->recipe));
    OCT_TRY(oct_h5_read_text(h5, "info/data_format", text_bytes_max, &model->data_format));
    if (oct_h5_has(h5, "info/plugins"))
        OCT_TRY(oct_h5_read_text(h5, "info/plugins", text_bytes_max, &model->plugins));
    if (oct_h5_has(h5, "info/class_names"))
        OCT_TRY(oct_h5_read_text(h5, "info/class_names", OCT_CLASS_NAMES_BYTES_MAX,
                                 &model->class_names));
    if (oct_h5_has(h5, "info/port_names"))
        OCT_TRY(oct_h5_read_text(h5, "info/port_names", 2 * 256, &model->port_names));
    OCT_TRY(oct_h5_read_i64(h5, "info/classes", 1, DIM_MAX, &classes));
    model->classes = (int)classes;
    OCT_TRY(oct_h5_read(h5, "info/checkpoint_digest", OCT_U8, OCT_SHAPE(DIGEST),
                        model->checkpoint_digest));
    OCT_TRY(oct_model_read_program(h5, &model->program));
    OCT_TRY(read_means(h5, model));
    OCT_TRY(oct_h5_read_new(h5, "program/overflow_bound", OCT_S64, OCT_SHAPE(program->num_steps),
                            &model->overflow_bound));
    OCT_TRY(read_certificate(h5, &model->certificate));
    OCT_TRY(check_model(model));
    const int64_t golden = model->certificate.golden_count;
    OCT_TRY(oct_h5_read_new(h5, "golden/input", OCT_F32,
                            OCT_SHAPE(golden, oct_inputs_numel(program)), &model->golden_input));
    OCT_TRY(oct_h5_read_new(h5, "golden/digest", OCT_U8,
                            OCT_SHAPE(golden, program->num_values, DIGEST), &model->golden_digest));
    return oct_h5_check_all_read(h5);
}

static bool large_allowed;

void oct_model_allow_large(void)
{
    large_allowed = true;
}

#define ALLOW "; if you trust it, --allow-large runs it all the same"

/* A small file can ask for a lot: values are described, not stored. */
static oct_status check_costs(const oct_model *model)
{
    const oct_program *program = &model->program;
    const int64_t golden = model->certificate.golden_count;
    oct_program_cost cost;
    if (large_allowed) return OCT_OK;
    OCT_TRY(oct_program_costs(program, &cost));
    OCT_CHECK(cost.bytes <= OCT_MODEL_BYTES, OCT_DATA,
              "the values of one sample take %s, more than %s" ALLOW,
              oct_text_size(cost.bytes).text, oct_text_size(OCT_MODEL_BYTES).text);
    const double all = cost.work * (double)(golden > 0 ? golden : 1);
    OCT_CHECK(cost.work <= OCT_MODEL_WORK && all <= 2 * OCT_MODEL_WORK, OCT_DATA,
              "one sample takes as long as %.3g multiply-adds and %lld golden inputs as long as "
              "%.3g, more than %.3g and %.3g" ALLOW,
              cost.work, (long long)golden, all, OCT_MODEL_WORK, 2 * OCT_MODEL_WORK);
    return OCT_OK;
}

oct_status oct_model_check_work(const oct_model *model, int64_t samples, const char *path)
{
    oct_program_cost cost;
    OCT_TRY(oct_program_costs(&model->program, &cost));
    const double all = cost.work * (double)samples;
    OCT_CHECK(large_allowed || all <= OCT_MODEL_SET_WORK, OCT_DATA,
              "%s: %lld samples take as long as %.3g multiply-adds, more than %.3g" ALLOW, path,
              (long long)samples, all, OCT_MODEL_SET_WORK);
    return OCT_OK;
}

static oct_status read_checksummed(oct_model *model, const void *bytes, size_t size)
{
    oct_h5 *h5 = NULL;
    OCT_TRY(oct_h5_check_seal(bytes, size));
    OCT_TRY(oct_h5_open(&h5, bytes, size - OCT_CHECKSUM_BYTES, "int8 model"));
    const oct_status status = read_model(h5, model);
    oct_h5_close(&h5);
    return status;
}

static oct_status read_flat(oct_model *model, const void *bytes, size_t size)
{
    OCT_TRY(oct_model_read_flat(model, bytes, size));
    return check_model(model);
}

oct_status oct_model_load(oct_model *model, const char *path)
{
    void *bytes = NULL;
    size_t size;

    *model = (oct_model){0};
    OCT_TRY(oct_file_read(path, file_bytes_max, &bytes, &size));
    /* All that is said from here on lacks the path, which is put in front at the end. */
    oct_status status = oct_model_is_flat(bytes, size) ? read_flat(model, bytes, size)
                                                       : read_checksummed(model, bytes, size);
    if (status == OCT_OK) status = check_costs(model);
    if (status == OCT_OK) status = oct_fallbacks_check(&model->program, false);
    if (status != OCT_OK) {
        oct_fail_prefix("%s", path);
        oct_model_free(model);
    }
    oct_free(&bytes);
    return status;
}

void oct_model_free(oct_model *model)
{
    oct_program_free(&model->program);
    oct_free(&model->recipe);
    oct_free(&model->plugins);
    oct_free(&model->data_format);
    oct_free(&model->class_names);
    oct_free(&model->port_names);
    oct_free(&model->overflow_bound);
    oct_free(&model->golden_input);
    oct_free(&model->golden_digest);
    oct_free(&model->certificate.fallbacks);
    *model = (oct_model){0};
}

oct_status oct_model_is(const char *path, bool *is)
{
    oct_h5 *h5 = NULL;
    void *bytes = NULL;
    size_t size;

    oct_status status = oct_file_read(path, file_bytes_max, &bytes, &size);
    if (status == OCT_OK) status = oct_h5_open_sealed(&h5, bytes, size, path);
    *is = status == OCT_OK && oct_h5_is_group(h5, "program");
    oct_h5_close(&h5);
    oct_free(&bytes);
    if (status == OCT_RESOURCE) return status;
    if (!*is) oct_fail_clear();
    return OCT_OK;
}
