/* A model as a flat file (quant/program/flat.h), written and read. A model that is read has copies of what the file
 * has, so that it is owned as any other. What the file says twice, for programs that map it and for commands, must agree:
 * pixels with mean and standard deviation, golden outputs with the digests of golden values. */
#include "io/model/model_file.h"

#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "io/batch/normalise.h"
#include "io/file/file.h"
#include "quant/program/flat.h"

#include <string.h>

/* The texts of the section TEXTS, in their order there. */
static char **flat_text(oct_model *m, int i)
{
    char **const texts[OCT_FLAT_TEXT_COUNT] = {
        [OCT_FLAT_RECIPE] = &m->recipe,         [OCT_FLAT_DATA_FORMAT] = &m->data_format,
        [OCT_FLAT_PLUGINS] = &m->plugins,       [OCT_FLAT_FALLBACKS] = &m->certificate.fallbacks,
        [OCT_FLAT_PORT_NAMES] = &m->port_names,
    };
    return texts[i];
}

void oct_model_pixels(const oct_model *m, int64_t channel, float values[OCT_PIXEL_VALUES])
{
    uint8_t pixels[OCT_PIXEL_VALUES];
    for (int i = 0; i < OCT_PIXEL_VALUES; i++)
        pixels[i] = (uint8_t)i;
    oct_normalise(pixels, OCT_PIXEL_VALUES, 1, &m->mean[channel], &m->std[channel], values);
}

int64_t oct_model_pixel_tables(const oct_model *m)
{
    const int64_t channels = m->program.values[m->program.inputs[0]].c;
    return channels > OCT_REALS_MAX ? 1 : channels;
}

bool oct_model_is_flat(const void *bytes, size_t size)
{
    return size >= sizeof OCT_FLAT_MAGIC &&
           memcmp(bytes, OCT_FLAT_MAGIC, sizeof OCT_FLAT_MAGIC) == 0;
}

/* Reading. */

static oct_status copy_array(void *to /* T ** */, const void *from, size_t count, size_t size)
{
    void *own;
    OCT_TRY(oct_alloc(&own, count, size));
    memcpy(own, from, count * size);
    memcpy(to, &own, sizeof own);
    return OCT_OK;
}

static oct_status copy_texts(oct_model *m, const oct_flat *flat)
{
    uint64_t name_bytes, bytes;
    const char *names = oct_flat_items(flat, OCT_FLAT_CLASS_NAMES, &name_bytes);
    const char *text = oct_flat_items(flat, OCT_FLAT_TEXTS, &bytes);
    for (int i = 0; i < OCT_FLAT_TEXT_COUNT; text += strlen(text) + 1, i++)
        if (*text) OCT_TRY(oct_strdup(flat_text(m, i), text));
    if (name_bytes == 0) return OCT_OK;
    return oct_format(&m->class_names, "%.*s", (int)name_bytes, names);
}

/* Copies means and standard deviations; *at: where they lie, then what lies after them. */
static oct_status copy_means(oct_model *m, const oct_flat *flat, const uint8_t **at)
{
    uint64_t numbers;
    const float *pixels = oct_flat_items(flat, OCT_FLAT_PIXELS, &numbers);
    const size_t channels = (size_t)numbers / OCT_PIXEL_VALUES;
    float values[OCT_PIXEL_VALUES];
    OCT_CHECK(channels <= OCT_REALS_MAX, OCT_DATA, "has pixels for more than %d channels",
              OCT_REALS_MAX);
    memcpy(m->mean, *at, channels * sizeof(float));
    memcpy(m->std, *at + channels * sizeof(float), channels * sizeof(float));
    *at += 2 * channels * sizeof(float);
    for (size_t c = 0; c < channels; c++) {
        oct_model_pixels(m, (int64_t)c, values);
        OCT_CHECK(memcmp(values, pixels + c * OCT_PIXEL_VALUES, sizeof values) == 0, OCT_DATA,
                  "its pixels are not those of its mean and standard deviation");
    }
    return OCT_OK;
}

/* Copies golden inputs and digests, and checks that the outputs are those of the digests. */
static oct_status copy_golden(oct_model *m, const oct_flat *flat, const uint8_t *digests)
{
    const oct_program *p = &m->program;
    const int64_t values = p->num_values;
    const size_t bytes = oct_value_bytes(&p->values[p->output]);
    uint64_t inputs, outputs;
    const float *input = oct_flat_items(flat, OCT_FLAT_GOLDEN_INPUT, &inputs);
    const uint8_t *output = oct_flat_items(flat, OCT_FLAT_GOLDEN_OUTPUT, &outputs);
    const int64_t count = (int64_t)inputs / oct_inputs_numel(p);
    m->certificate.golden_count = count;
    OCT_TRY(copy_array(&m->golden_input, input, (size_t)inputs, sizeof *input));
    OCT_TRY(copy_array(&m->golden_digest, digests, (size_t)(count * values), OCT_FLAT_DIGEST));
    for (int64_t i = 0; i < count; i++, output += bytes) {
        uint8_t digest[OCT_FLAT_DIGEST];
        oct_sha256(output, bytes, digest);
        OCT_CHECK(memcmp(digest, digests + (i * values + p->output) * OCT_FLAT_DIGEST,
                         sizeof digest) == 0,
                  OCT_DATA, "golden output %lld is not the one of its digest", (long long)i);
    }
    return OCT_OK;
}

/* The members of a certificate that both oct_certificate and oct_flat_model have. */
#define CERTIFICATE_NUMBERS(X)                                                                     \
    X(images)                                                                                      \
    X(logits_differ)                                                                               \
    X(correct)                                                                                     \
    X(rows)                                                                                        \
    X(qat_accuracy)

static oct_status copy_model(oct_model *m, const oct_flat *flat, const oct_flat_header *header)
{
    uint64_t count;
    OCT_TRY(oct_program_copy(&m->program, oct_flat_program(flat)));
    memcpy(m->checkpoint_digest, header->model_digest, sizeof m->checkpoint_digest);
    OCT_TRY(copy_texts(m, flat));
    const oct_flat_model *from = oct_flat_items(flat, OCT_FLAT_MODEL, &count);
    const uint8_t *after = (const uint8_t *)(from + 1);
    oct_certificate *c = &m->certificate;
    m->classes = (int)from->classes;
#define X(name) c->name = from->name;
    CERTIFICATE_NUMBERS(X)
#undef X
    memcpy(c->logits_digest, from->logits_digest, sizeof c->logits_digest);
    memcpy(c->data_digest, from->data_digest, sizeof c->data_digest);
    OCT_TRY(copy_means(m, flat, &after));
    OCT_TRY(copy_golden(m, flat, after));
    return oct_model_find_bounds(m);
}

oct_status oct_model_read_flat(oct_model *model, const void *bytes, size_t size)
{
    OCT_OWNED(oct_flat_close) oct_flat *flat = NULL;
    *model = (oct_model){0};
    OCT_TRY(oct_flat_take(&flat, bytes, size));
    return copy_model(model, flat, bytes);
}

/* Writing. */

/* The file that is written. */
typedef struct flat_writer {
    oct_model model; /* borrows all from the one that is written */
    const oct_program *program;
    oct_text text; /* of the program */
    uint64_t count[OCT_FLAT_SECTION_COUNT], offset[OCT_FLAT_SECTION_COUNT];
    uint8_t *bytes;
    size_t size;
} flat_writer;

static uint64_t aligned(uint64_t bytes)
{
    return (uint64_t)oct_round_up((int64_t)bytes, OCT_FLAT_ALIGN);
}

static void *section(const flat_writer *f, int kind)
{
    return f->bytes + f->offset[kind];
}

static uint64_t array_bytes(const oct_step *step, const oct_step_array *array)
{
    return (uint64_t)oct_step_array_numel(step, array) * oct_dtype_bytes(array->dtype);
}

/* Counts the items of each section, and refuses what a flat file has no form for. */
static oct_status count_items(flat_writer *f)
{
    const oct_program *p = f->program;
    const int64_t golden = f->model.certificate.golden_count;
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
    if (oct_error_count() > 0) return OCT_PREPARE;
    OCT_TRY(oct_program_write_text(p, &f->text));
    const int64_t tables = oct_model_pixel_tables(&f->model);
    count[OCT_FLAT_PROGRAM] = f->text.length;
    count[OCT_FLAT_PIXELS] = OCT_PIXEL_VALUES * (uint64_t)tables;
    count[OCT_FLAT_CLASS_NAMES] = f->model.class_names ? strlen(f->model.class_names) : 0;
    count[OCT_FLAT_GOLDEN_INPUT] = (uint64_t)(golden * oct_inputs_numel(p));
    count[OCT_FLAT_GOLDEN_OUTPUT] = (uint64_t)(golden * oct_value_numel(&p->values[p->output]));
    count[OCT_FLAT_MODEL] = oct_flat_model_bytes(tables, golden * p->num_values);
    for (int i = 0; i < OCT_FLAT_TEXT_COUNT; i++) {
        const char *text = *flat_text(&f->model, i);
        count[OCT_FLAT_TEXTS] += (text ? strlen(text) : 0) + 1;
    }
    return OCT_OK;
}

/* Writes the arrays of all steps, and where each begins. */
static void write_arrays(const flat_writer *f)
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

/* Writes what only commands read. */
static void write_model_section(flat_writer *f)
{
    oct_model *m = &f->model;
    const oct_certificate *c = &m->certificate;
    const size_t means = (size_t)f->count[OCT_FLAT_PIXELS] / OCT_PIXEL_VALUES * sizeof *m->mean;
    oct_flat_model *to = section(f, OCT_FLAT_MODEL);
    uint8_t *after = (uint8_t *)(to + 1);
    char *end = section(f, OCT_FLAT_TEXTS);
    to->classes = m->classes;
#define X(name) to->name = c->name;
    CERTIFICATE_NUMBERS(X)
#undef X
    memcpy(to->logits_digest, c->logits_digest, sizeof to->logits_digest);
    memcpy(to->data_digest, c->data_digest, sizeof to->data_digest);
    memcpy(after, m->mean, means);
    memcpy(after + means, m->std, means);
    if (m->golden_digest)
        memcpy(after + 2 * means, m->golden_digest,
               (size_t)(c->golden_count * f->program->num_values) * OCT_FLAT_DIGEST);
    for (int i = 0; i < OCT_FLAT_TEXT_COUNT; i++) {
        const char *text = *flat_text(m, i);
        end = stpcpy(end, text ? text : "") + 1;
    }
}

/* Writes the header, after all else, whose digest it has. */
static void write_header(const flat_writer *f)
{
    oct_flat_header *h = (oct_flat_header *)(void *)f->bytes;
    memcpy(h->magic, OCT_FLAT_MAGIC, sizeof h->magic);
    h->version = OCT_FLAT_VERSION;
    h->order = OCT_FLAT_ORDER;
    h->bytes = f->size;
    memcpy(h->model_digest, f->model.checkpoint_digest, sizeof h->model_digest);
    for (int i = 0; i < OCT_FLAT_SECTION_COUNT; i++)
        h->section[i] = (oct_flat_section){f->offset[i], f->count[i]};
    h->digest = oct_flat_digest(f->bytes, f->size);
}

/* Programs read flat files by rules of their own, which are stricter than those of models. */
static oct_status check_written(const flat_writer *f)
{
    OCT_OWNED(oct_model_free) oct_model model = {0};
    const oct_status status = oct_model_read_flat(&model, f->bytes, f->size);
    if (status != OCT_DATA) return status;
    (void)oct_fail_prefix("has no flat file, whose readers would refuse it");
    return OCT_PREPARE;
}

oct_status oct_model_write_flat(const oct_model *model, void **bytes, size_t *size)
{
    flat_writer f = {.model = *model, .program = &model->program};
    oct_status status;
    OCT_TRY_OUT(count_items(&f));
    if (!bytes) goto out;
    uint64_t end = aligned(sizeof(oct_flat_header));
    for (int i = 0; i < OCT_FLAT_SECTION_COUNT; i++) {
        f.offset[i] = end;
        end = aligned(end + f.count[i] * oct_flat_item_bytes[i]);
    }
    f.size = (size_t)end;
    OCT_TRY_OUT(oct_alloc(&f.bytes, f.size, 1));
    memcpy(section(&f, OCT_FLAT_PROGRAM), f.text.data, f.text.length);
    write_arrays(&f);
    float *pixels = section(&f, OCT_FLAT_PIXELS);
    for (uint64_t c = 0; c < f.count[OCT_FLAT_PIXELS] / OCT_PIXEL_VALUES; c++)
        oct_model_pixels(model, (int64_t)c, pixels + c * OCT_PIXEL_VALUES);
    if (model->class_names)
        memcpy(section(&f, OCT_FLAT_CLASS_NAMES), model->class_names,
               (size_t)f.count[OCT_FLAT_CLASS_NAMES]);
    if (model->certificate.golden_count > 0)
        memcpy(section(&f, OCT_FLAT_GOLDEN_INPUT), model->golden_input,
               (size_t)f.count[OCT_FLAT_GOLDEN_INPUT] * sizeof(float));
    OCT_TRY_OUT(oct_model_run_golden(&model->program, model->golden_input,
                                     model->certificate.golden_count,
                                     section(&f, OCT_FLAT_GOLDEN_OUTPUT)));
    write_model_section(&f);
    write_header(&f);
    OCT_TRY_OUT(check_written(&f));
    *bytes = f.bytes;
    *size = f.size;
    f.bytes = NULL;
out:
    oct_free(&f.bytes);
    oct_text_free(&f.text);
    return status;
}
