/* A flat file is read from the outside in: header, places of sections, text of the program, arrays. Each part bounds the
 * next; allocated are the tables of values and steps and, while it is read, a copy of the text. */
#include "quant/program/flat.h"

#include "core/base/mem.h"

#include <string.h>

const size_t oct_flat_item_bytes[OCT_FLAT_SECTION_COUNT] = {
#define X(name, bytes) bytes,
    OCT_FLAT_SECTIONS(X)
#undef X
};

struct oct_flat {
    const uint8_t *bytes;
    size_t size;
    oct_program program; /* tables are its own, arrays the file's */
};

static const oct_flat_header *header_of(const oct_flat *f)
{
    return (const oct_flat_header *)(const void *)f->bytes;
}

static const void *section(const oct_flat *f, int kind)
{
    return f->bytes + header_of(f)->section[kind].offset;
}

static uint64_t count_of(const oct_flat *f, int kind)
{
    return header_of(f)->section[kind].count;
}

uint64_t oct_flat_digest(const void *bytes, size_t size)
{
    const size_t after = offsetof(oct_flat_header, model_digest);
    return oct_digest((const char *)bytes + after, size - after);
}

uint64_t oct_flat_model_bytes(int64_t channels, int64_t digests)
{
    return sizeof(oct_flat_model) + 2 * sizeof(float) * (uint64_t)channels +
           OCT_FLAT_DIGEST * (uint64_t)digests;
}

/* Checks what the file says of itself, and its digest. */
static oct_status check_header(const oct_flat *f)
{
    const oct_flat_header *h = header_of(f);
    OCT_CHECK(f->size >= sizeof *h && memcmp(h->magic, OCT_FLAT_MAGIC, sizeof h->magic) == 0,
              OCT_DATA, "is no flat file of an int8 model");
    OCT_CHECK(h->order == OCT_FLAT_ORDER, OCT_DATA,
              "was written by a processor with another order of bytes");
    OCT_CHECK(h->version == OCT_FLAT_VERSION, OCT_DATA,
              "has version %u and this Octet reads version %d; export the model again",
              (unsigned)h->version, OCT_FLAT_VERSION);
    OCT_CHECK(h->bytes == f->size, OCT_DATA, "has %llu bytes, but was written with %llu",
              (unsigned long long)f->size, (unsigned long long)h->bytes);
    OCT_CHECK(h->digest == oct_flat_digest(f->bytes, f->size), OCT_DATA,
              "is damaged: its digest differs");
    return OCT_OK;
}

/* Checks that each section is inside the file and after the one before. */
static oct_status check_sections(const oct_flat *f)
{
    uint64_t end = sizeof(oct_flat_header);
    for (int i = 0; i < OCT_FLAT_SECTION_COUNT; i++) {
        const oct_flat_section *s = &header_of(f)->section[i];
        const uint64_t room = s->offset <= f->size ? f->size - s->offset : 0;
        OCT_CHECK(s->offset % OCT_FLAT_ALIGN == 0 && s->offset >= end && s->offset <= f->size &&
                      s->count <= room / oct_flat_item_bytes[i],
                  OCT_DATA, "its section %d lies outside of it", i);
        end = s->offset + s->count * oct_flat_item_bytes[i];
    }
    return OCT_OK;
}

/* Points an array of a step at its data in the file. Arrays are numbered through all steps: *next is the next one. */
static oct_status read_array(const oct_flat *f, const oct_step_array *array, uint64_t *next,
                             oct_step *step)
{
    oct_shape shape;
    OCT_CHECK(*next < count_of(f, OCT_FLAT_ARRAYS), OCT_DATA, "its %s is missing", array->name);
    const oct_flat_array *a = (const oct_flat_array *)section(f, OCT_FLAT_ARRAYS) + (*next)++;
    const uint64_t data = count_of(f, OCT_FLAT_DATA), bytes = oct_dtype_bytes(array->dtype);
    OCT_TRY(array->shape(step, &shape));
    const int64_t numel = oct_shape_numel(&shape);
    OCT_CHECK(a->offset % OCT_FLAT_ALIGN == 0 && a->offset <= data &&
                  a->count <= (data - a->offset) / bytes,
              OCT_DATA, "its %s lies outside of the file", array->name);
    OCT_CHECK(numel >= 0 && a->count == (uint64_t)numel, OCT_DATA,
              "its %s has %llu numbers and should have %lld", array->name,
              (unsigned long long)a->count, (long long)numel);
    /* The program only reads what it does not own here. */
    void *place = (void *)((uintptr_t)section(f, OCT_FLAT_DATA) + a->offset);
    memcpy(oct_step_slot(step, array), &place, sizeof place);
    return OCT_OK;
}

static oct_status read_arrays(oct_flat *f)
{
    uint64_t next = 0;
    for (int64_t i = 0; i < f->program.num_steps; i++) {
        oct_step *step = &f->program.steps[i];
        const oct_step_type *type = oct_step_type_of(step->kind);
        OCT_CHECK(step->kind != OCT_STEP_FLOAT, OCT_DATA,
                  "step %lld is a float layer, which flat files do not have", (long long)i);
        for (int k = 0; k < type->num_arrays; k++)
            if (read_array(f, &type->arrays[k], &next, step) != OCT_OK)
                return oct_fail_prefix("step %lld", (long long)i);
    }
    OCT_CHECK(next == count_of(f, OCT_FLAT_ARRAYS), OCT_DATA, "has more arrays than its steps");
    return OCT_OK;
}

/* Checks what a file holds besides its program, which has passed its check: also the length of what programs of users do
 * not read. */
static oct_status check_rest(const oct_flat *f)
{
    const oct_program *p = &f->program;
    const oct_value *in = &p->values[p->inputs[0]], *out = &p->values[p->output];
    const uint64_t tables = count_of(f, OCT_FLAT_PIXELS) / OCT_PIXEL_VALUES;
    const uint64_t inputs = count_of(f, OCT_FLAT_GOLDEN_INPUT),
                   sample = (uint64_t)oct_inputs_numel(p);
    const float *pixels = section(f, OCT_FLAT_PIXELS);
    OCT_CHECK(count_of(f, OCT_FLAT_PIXELS) % OCT_PIXEL_VALUES == 0 &&
                  (tables == 1 || tables == (uint64_t)in->c),
              OCT_DATA, "has pixels for another number of channels");
    OCT_CHECK(oct_all_finite(pixels, (int64_t)tables * OCT_PIXEL_VALUES), OCT_DATA,
              "has a pixel that is no finite number");
    OCT_CHECK(inputs % sample == 0 && count_of(f, OCT_FLAT_GOLDEN_OUTPUT) ==
                                          inputs / sample * (uint64_t)oct_value_numel(out),
              OCT_DATA, "has golden inputs without outputs, or outputs without inputs");
    const char *text = section(f, OCT_FLAT_TEXTS);
    const int64_t digests = (int64_t)(inputs / sample) * p->num_values;
    OCT_CHECK(count_of(f, OCT_FLAT_MODEL) == oct_flat_model_bytes((int64_t)tables, digests),
              OCT_DATA, "its certificate is cut short");
    const uint64_t texts = count_of(f, OCT_FLAT_TEXTS);
    int ends = 0;
    for (uint64_t i = 0; i < texts; i++)
        ends += text[i] == '\0';
    OCT_CHECK(ends == OCT_FLAT_TEXT_COUNT && text[texts - 1] == '\0', OCT_DATA,
              "its texts are not as many as they should be");
    const int64_t classes = ((const oct_flat_model *)section(f, OCT_FLAT_MODEL))->classes;
    OCT_CHECK(classes >= 1 && classes <= INT32_MAX &&
                  (out->dtype == OCT_S32 || classes == oct_value_numel(out) || classes == out->c),
              OCT_DATA, "%lld classes, but the output has %lld numbers", (long long)classes,
              (long long)oct_value_numel(out));
    return OCT_OK;
}

static oct_status read_and_check(oct_flat *f)
{
    OCT_TRY(check_header(f));
    OCT_TRY(check_sections(f));
    OCT_TRY(oct_program_read_text(&f->program, section(f, OCT_FLAT_PROGRAM),
                                  (size_t)count_of(f, OCT_FLAT_PROGRAM)));
    OCT_TRY(read_arrays(f));
    OCT_TRY(oct_program_check(&f->program));
    return check_rest(f);
}

oct_status oct_flat_take(oct_flat **flat, const void *bytes, size_t size)
{
    oct_flat *f = NULL;
    *flat = NULL;
    OCT_CHECK((uintptr_t)bytes % OCT_FLAT_ALIGN == 0, OCT_USAGE,
              "a flat file must lie at a multiple of %d bytes", OCT_FLAT_ALIGN);
    OCT_TRY(oct_alloc(&f, 1, sizeof *f));
    f->bytes = bytes;
    f->size = size;
    const oct_status status = read_and_check(f);
    if (status == OCT_OK)
        *flat = f;
    else
        oct_flat_close(&f);
    return status;
}

void oct_flat_close(oct_flat **flat)
{
    oct_flat *f = *flat;
    if (!f) return;
    for (int64_t i = 0; i < f->program.num_steps; i++) {
        const oct_step_type *type = oct_step_type_of(f->program.steps[i].kind);
        for (int k = 0; k < type->num_arrays; k++) /* the file's own, not to be freed */
            memset(oct_step_slot(&f->program.steps[i], &type->arrays[k]), 0, sizeof(void *));
    }
    oct_program_free(&f->program);
    oct_free(flat);
}

const void *oct_flat_items(const oct_flat *flat, int kind, uint64_t *count)
{
    *count = count_of(flat, kind);
    return section(flat, kind);
}

const oct_program *oct_flat_program(const oct_flat *flat)
{
    return &flat->program;
}
