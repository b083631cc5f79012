/* The model takes copies of what the flat file has, so that it is owned as any other. What the file says twice, for
 * programs that map it and for commands, must agree: pixels with mean and standard deviation, golden outputs with the
 * digests of golden values. */
#include "io/model/model_file.h"

#include "core/base/mem.h"
#include "io/file/file.h"
#include "io/batch/normalise.h"
#include "quant/program/flat.h"
#include "quant/program/flat_layout.h"

#include <string.h>

bool oct_model_is_flat(const void *bytes, size_t size)
{
    return size >= sizeof OCT_FLAT_MAGIC &&
           memcmp(bytes, OCT_FLAT_MAGIC, sizeof OCT_FLAT_MAGIC) == 0;
}

static oct_status copy_array(void *to /* T ** */, const void *from, size_t count, size_t size)
{
    void *own;
    OCT_TRY(oct_alloc(&own, count, size));
    memcpy(own, from, count * size);
    memcpy(to, &own, sizeof own);
    return OCT_OK;
}

/* Reads the text once more, for a program that owns itself, and copies the arrays that it lacks. */
static oct_status copy_program(oct_program *to, const oct_flat *flat)
{
    uint64_t bytes;
    const char *text = oct_flat_items(flat, OCT_FLAT_PROGRAM, &bytes);
    OCT_TRY(oct_program_read_text(to, text, (size_t)bytes));
    for (int64_t i = 0; i < to->num_steps; i++) {
        const oct_step *from = &oct_flat_program(flat)->steps[i];
        const oct_step_type *type = oct_step_type_of(from->kind);
        for (int k = 0; k < type->num_arrays; k++)
            OCT_TRY(copy_array(oct_step_slot(&to->steps[i], &type->arrays[k]),
                               oct_step_data(from, &type->arrays[k]),
                               (size_t)oct_step_array_numel(from, &type->arrays[k]),
                               oct_dtype_bytes(type->arrays[k].dtype)));
    }
    return OCT_OK;
}

static oct_status take_text(const char **text, char **to)
{
    const char *from = *text;
    *text += strlen(from) + 1;
    return *from ? oct_strdup(to, from) : OCT_OK;
}

static oct_status take_texts(oct_model *m, const oct_flat *flat)
{
    size_t names;
    uint64_t bytes;
    const char *name = oct_flat_class_names(flat, &names);
    const char *text = oct_flat_items(flat, OCT_FLAT_TEXTS, &bytes);
    char **const to[OCT_FLAT_TEXT_COUNT] = {
        [OCT_FLAT_RECIPE] = &m->recipe,
        [OCT_FLAT_DATA_FORMAT] = &m->data_format,
        [OCT_FLAT_PLUGINS] = &m->plugins,
        [OCT_FLAT_FALLBACKS] = &m->certificate.fallbacks,
    };
    for (int i = 0; i < OCT_FLAT_TEXT_COUNT; i++)
        OCT_TRY(take_text(&text, to[i]));
    if (names == 0) return OCT_OK;
    return oct_format(&m->class_names, "%.*s", (int)names, name);
}

/* Takes mean and deviation, after which the digests of golden values stand. */
static oct_status take_means(oct_model *m, const oct_flat *flat, const uint8_t **at)
{
    uint64_t numbers;
    const float *pixels = oct_flat_items(flat, OCT_FLAT_PIXELS, &numbers);
    const size_t channels = (size_t)numbers / 256;
    uint8_t byte[256];
    float value[256];
    OCT_CHECK(channels <= OCT_REALS_MAX, OCT_DATA, "has pixels for more than %d channels",
              OCT_REALS_MAX);
    memcpy(m->mean, *at, channels * sizeof(float));
    memcpy(m->std, *at + channels * sizeof(float), channels * sizeof(float));
    *at += 2 * channels * sizeof(float);
    for (int i = 0; i < 256; i++)
        byte[i] = (uint8_t)i;
    for (size_t c = 0; c < channels; c++) {
        oct_normalise(byte, 256, 1, &m->mean[c], &m->std[c], value);
        OCT_CHECK(memcmp(value, pixels + c * 256, sizeof value) == 0, OCT_DATA,
                  "its pixels are not those of its mean and standard deviation");
    }
    return OCT_OK;
}

static oct_status take_golden(oct_model *m, const oct_flat *flat, const uint8_t *digests)
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

static oct_status take_model(oct_model *m, const oct_flat *flat, const oct_flat_header *header)
{
    uint64_t count;
    OCT_TRY(copy_program(&m->program, flat));
    m->classes = oct_flat_classes(flat);
    memcpy(m->checkpoint_digest, header->model_digest, sizeof m->checkpoint_digest);
    OCT_TRY(take_texts(m, flat));
    const oct_flat_model *from = oct_flat_items(flat, OCT_FLAT_MODEL, &count);
    const uint8_t *after = (const uint8_t *)(from + 1);
    oct_certificate *c = &m->certificate;
    c->images = from->images;
    c->logits_differ = from->logits_differ;
    c->correct = from->correct;
    c->rows = from->rows;
    c->qat_accuracy = from->qat_accuracy;
    memcpy(c->logits_digest, from->logits_digest, sizeof c->logits_digest);
    memcpy(c->data_digest, from->data_digest, sizeof c->data_digest);
    OCT_TRY(take_means(m, flat, &after));
    OCT_TRY(take_golden(m, flat, after));
    return oct_model_find_bounds(m);
}

oct_status oct_model_read_flat(oct_model *model, const void *bytes, size_t size)
{
    oct_flat *flat;
    *model = (oct_model){0};
    OCT_TRY(oct_flat_take_any(&flat, bytes, size));
    const oct_status status = take_model(model, flat, bytes);
    oct_flat_close(&flat);
    return status;
}
