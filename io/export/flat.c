/* The format flat: an int8 model as one file that programs map into memory (quant/program/flat_layout.h). */
#include "io/export/format.h"

#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "io/batch/normalise.h"
#include "io/model/model_file.h"
#include "quant/program/flat.h"
#include "quant/program/flat_layout.h"

#include <stdio.h>
#include <string.h>

/* The file that is written. */
typedef struct flat {
    const oct_model *model;
    const oct_program *program;
    oct_text text; /* of the program */
    uint64_t count[OCT_FLAT_SECTION_COUNT], offset[OCT_FLAT_SECTION_COUNT];
    uint8_t *bytes;
    size_t size;
} flat;

static uint64_t aligned(uint64_t bytes)
{
    return (uint64_t)oct_round_up((int64_t)bytes, OCT_FLAT_ALIGN);
}

static void *section(const flat *f, int kind)
{
    return f->bytes + f->offset[kind];
}

static uint64_t array_bytes(const oct_step *step, const oct_step_array *array)
{
    return (uint64_t)oct_step_array_numel(step, array) * oct_dtype_bytes(array->dtype);
}

static const char *text_of(const oct_model *model, int i)
{
    const char *const texts[OCT_FLAT_TEXT_COUNT] = {
        [OCT_FLAT_RECIPE] = model->recipe,
        [OCT_FLAT_DATA_FORMAT] = model->data_format,
        [OCT_FLAT_PLUGINS] = model->plugins,
        [OCT_FLAT_FALLBACKS] = model->certificate.fallbacks,
    };
    return texts[i] ? texts[i] : "";
}

/* Counts the items of each section. */
static oct_status count_items(flat *f)
{
    const oct_program *p = f->program;
    const int64_t channels = p->values[p->inputs[0]].c, golden = f->model->certificate.golden_count;
    uint64_t *count = f->count;
    for (int64_t i = 0; i < p->num_steps; i++) {
        const oct_step *step = &p->steps[i];
        const oct_step_type *type = oct_step_type_of(step->kind);
        if (step->kind == OCT_STEP_FLOAT) {
            (void)oct_fail_add(OCT_PREPARE,
                               "%s: a flat file has no float layers (%s), which only Octet's "
                               "modules compute",
                               step->name, step->fallback->type);
            continue;
        }
        count[OCT_FLAT_ARRAYS] += (uint64_t)type->num_arrays;
        for (int k = 0; k < type->num_arrays; k++)
            count[OCT_FLAT_DATA] += aligned(array_bytes(step, &type->arrays[k]));
    }
    if (oct_fail_count() > 0) return OCT_PREPARE;
    OCT_TRY(oct_program_write_text(p, &f->text));
    count[OCT_FLAT_PROGRAM] = f->text.length;
    count[OCT_FLAT_PIXELS] = 256 * (uint64_t)(channels > OCT_REALS_MAX ? 1 : channels);
    count[OCT_FLAT_CLASS_NAMES] = f->model->class_names ? strlen(f->model->class_names) : 0;
    count[OCT_FLAT_GOLDEN_INPUT] = (uint64_t)(golden * oct_inputs_numel(p));
    count[OCT_FLAT_GOLDEN_OUTPUT] = (uint64_t)(golden * oct_value_numel(&p->values[p->output]));
    count[OCT_FLAT_MODEL] =
        oct_flat_model_bytes((int64_t)count[OCT_FLAT_PIXELS] / 256, golden * p->num_values);
    for (int i = 0; i < OCT_FLAT_TEXT_COUNT; i++)
        count[OCT_FLAT_TEXTS] += strlen(text_of(f->model, i)) + 1;
    return OCT_OK;
}

static void write_arrays(const flat *f)
{
    oct_flat_array *array = section(f, OCT_FLAT_ARRAYS);
    uint64_t at = 0;
    for (int64_t i = 0; i < f->program->num_steps; i++) {
        const oct_step *step = &f->program->steps[i];
        const oct_step_type *type = oct_step_type_of(step->kind);
        for (int k = 0; k < type->num_arrays; k++, array++) {
            const uint64_t bytes = array_bytes(step, &type->arrays[k]);
            array->offset = at;
            array->count = (uint64_t)oct_step_array_numel(step, &type->arrays[k]);
            memcpy((uint8_t *)section(f, OCT_FLAT_DATA) + at, oct_step_data(step, &type->arrays[k]),
                   (size_t)bytes);
            at += aligned(bytes);
        }
    }
}

static oct_status write_golden(const flat *f)
{
    const oct_program *p = f->program;
    const int64_t samples = f->model->certificate.golden_count;
    const float *input[OCT_PROGRAM_INPUTS], *at = f->model->golden_input;
    uint8_t *output = section(f, OCT_FLAT_GOLDEN_OUTPUT);
    oct_runtime *runtime;
    oct_status status = OCT_OK;
    if (samples == 0) return OCT_OK;
    memcpy(section(f, OCT_FLAT_GOLDEN_INPUT), at,
           (size_t)f->count[OCT_FLAT_GOLDEN_INPUT] * sizeof *at);
    OCT_TRY(oct_runtime_create(&runtime, p, 1, NULL));
    for (int64_t n = 0; n < samples && status == OCT_OK; n++) {
        for (int i = 0; i < p->num_inputs; i++) {
            input[i] = at;
            at += oct_value_numel(&p->values[p->inputs[i]]);
        }
        status = oct_runtime_run(runtime, 1, input, output);
        output += oct_value_bytes(&p->values[p->output]);
    }
    oct_runtime_destroy(&runtime);
    return status;
}

/* Writes what only commands read (io/model/model_flat.c). */
static void write_rest(const flat *f)
{
    const oct_model *m = f->model;
    const oct_certificate *c = &m->certificate;
    const size_t means = (size_t)f->count[OCT_FLAT_PIXELS] / 256 * sizeof *m->mean;
    oct_flat_model *to = section(f, OCT_FLAT_MODEL);
    uint8_t *after = (uint8_t *)(to + 1);
    char *text = section(f, OCT_FLAT_TEXTS);
    to->classes = m->classes;
    to->images = c->images;
    to->logits_differ = c->logits_differ;
    to->correct = c->correct;
    to->rows = c->rows;
    to->qat_accuracy = c->qat_accuracy;
    memcpy(to->logits_digest, c->logits_digest, sizeof to->logits_digest);
    memcpy(to->data_digest, c->data_digest, sizeof to->data_digest);
    memcpy(after, m->mean, means);
    memcpy(after + means, m->std, means);
    if (m->golden_digest)
        memcpy(after + 2 * means, m->golden_digest,
               (size_t)(c->golden_count * f->program->num_values) * OCT_FLAT_DIGEST);
    for (int i = 0; i < OCT_FLAT_TEXT_COUNT; i++)
        text = stpcpy(text, text_of(m, i)) + 1;
}

static void write_header(const flat *f)
{
    oct_flat_header *h = (oct_flat_header *)(void *)f->bytes;
    memcpy(h->magic, OCT_FLAT_MAGIC, sizeof h->magic);
    h->version = OCT_FLAT_VERSION;
    h->order = OCT_FLAT_ORDER;
    h->bytes = f->size;
    memcpy(h->model_digest, f->model->checkpoint_digest, sizeof h->model_digest);
    for (int i = 0; i < OCT_FLAT_SECTION_COUNT; i++)
        h->section[i] = (oct_flat_section){f->offset[i], f->count[i]};
    h->digest = oct_flat_digest(f->bytes, f->size);
}

/* Programs read such files by rules of their own, which are stricter than those of models. */
static oct_status read_back(const flat *f)
{
    oct_model model = {0};
    const oct_status status = oct_model_read_flat(&model, f->bytes, f->size);
    oct_model_free(&model);
    if (status != OCT_DATA) return status;
    oct_fail_prefix("has no flat file, whose readers would refuse it");
    return OCT_PREPARE;
}

static oct_status write_model(const oct_export *job, oct_exported *out)
{
    flat f = {.model = job->model, .program = &job->model->program};
    oct_status status;
    oct_fail_clear();
    OCT_TRY_OUT(count_items(&f));
    if (job->tries) goto out;
    uint64_t end = aligned(sizeof(oct_flat_header));
    for (int i = 0; i < OCT_FLAT_SECTION_COUNT; i++) {
        f.offset[i] = end;
        end = aligned(end + f.count[i] * oct_flat_item_bytes[i]);
    }
    f.size = (size_t)end;
    OCT_TRY_OUT(oct_alloc(&f.bytes, f.size, 1));

    memcpy(section(&f, OCT_FLAT_PROGRAM), f.text.data, f.text.length);
    write_arrays(&f);

    /* What normalising makes of each pixel. */
    float *to = section(&f, OCT_FLAT_PIXELS);
    uint8_t pixels[256];
    for (int i = 0; i < 256; i++)
        pixels[i] = (uint8_t)i;
    for (uint64_t c = 0; c < f.count[OCT_FLAT_PIXELS] / 256; c++)
        oct_normalise(pixels, 256, 1, &f.model->mean[c], &f.model->std[c], to + c * 256);
    if (f.model->class_names)
        memcpy(section(&f, OCT_FLAT_CLASS_NAMES), f.model->class_names,
               (size_t)f.count[OCT_FLAT_CLASS_NAMES]);
    OCT_TRY_OUT(write_golden(&f));
    write_rest(&f);
    write_header(&f);
    OCT_TRY_OUT(read_back(&f));
    out->bytes = f.bytes;
    out->size = f.size;
    f.bytes = NULL;
out:
    oct_free(&f.bytes);
    oct_text_free(&f.text);
    return status;
}

const oct_export_format oct_export_format_flat = {
    .name = "flat",
    .help = "one file that a C program maps into memory, without HDF5",
    .suffix = ".flat",
    .write_model = write_model,
};
