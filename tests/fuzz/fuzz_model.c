/* int8 models behind a good seal: read, checked, and what is accepted computes its golden inputs and is
 * saved as the model that it was read as. Without the seal nothing is accepted. */
#include "core/base/log.h"
#include "core/base/mem.h"
#include "io/hdf5.h"
#include "io/model_file.h"
#include "io/file.h"
#include "launch/run/certificate.h"
#include "tests/fuzz/image.h"
#include "tests/quant/program_maker.h"

const char *const fuzz_name = "model";
const char *const *const fuzz_words = NULL;

enum { DIGEST = 32 };

static void fill(oct_model *m)
{
    const oct_program *p = &m->program;
    const oct_value *out = &p->values[p->output];
    const size_t inputs = (size_t)oct_inputs_numel(p), values = (size_t)p->num_values;
    snprintf(m->program.target, sizeof m->program.target, "x86");
    m->classes = (int)(out->h * out->w * out->c);
    for (int i = 0; i < 4; i++)
        m->mean[i] = m->std[i] = 0.5f;
    m->certificate.golden_count = 1;
    m->certificate.num_islands = oct_count_islands(p);
    MAKE(oct_strdup(&m->recipe, "schema: 1\nmodel:\n  name: cnn-small\n"));
    MAKE(oct_strdup(&m->data_format, "idx"));
    MAKE(oct_alloc(&m->overflow_bound, (size_t)p->num_steps, sizeof(int64_t)));
    MAKE(oct_alloc(&m->golden_input, inputs, sizeof(float)));
    for (size_t i = 0; i < inputs; i++)
        m->golden_input[i] = (float)(i * 37 % 41) / 41 - 0.5f;
    MAKE(oct_alloc(&m->golden_digest, values, DIGEST));
    MAKE(oct_golden_digests(p, m->golden_input, 1, m->golden_digest));
}

/* Class numbers of places, which lie mirrored in a frame. */
static void program_of_classes(oct_program *p)
{
    program_begin(p);
    const int32_t image = program_input(p, 3, 2, 3);
    const int32_t x = program_value(p, OCT_U8, 3, 2, 3, 0.02f, 128);
    const int32_t framed = program_value(p, OCT_U8, 6, 4, 3, 0.02f, 128);
    const int32_t mirrored = program_value(p, OCT_U8, 6, 4, 3, 0.02f, 128);
    p->output = program_value(p, OCT_S32, 6, 4, 1, 0.0f, 0);
    program_step(p, OCT_STEP_QUANTIZE, "quant", image, NONE, x);
    oct_step *step = program_step(p, OCT_STEP_PAD, "pad", x, NONE, framed);
    step->pad = (oct_pad_shape){{3, 2, 3}, {6, 4, 3}, {1, 2, 0}, OCT_PAD_CONSTANT};
    step->fill = 128;
    step = program_step(p, OCT_STEP_MOVE, "move", framed, NONE, mirrored);
    step->move = oct_move_over(3, (const int64_t[]){6, 4, 3});
    step->move.stride[0] = -12;
    step->move.offset = 60;
    program_step(p, OCT_STEP_ARGMAX, "argmax", mirrored, NONE, p->output);
}

void fuzz_seeds(void)
{
    static void (*const makers[])(oct_program *) = {program_small, program_with_island,
                                                    program_of_other_kinds, program_of_classes};
    bool seen[OCT_STEP_KINDS] = {false};
    char path[512];
    snprintf(path, sizeof path, "%s/seed.int8.h5", fuzz_folder());
    for (size_t i = 0; i < OCT_COUNT(makers); i++) {
        oct_model m = {0};
        makers[i](&m.program);
        for (int64_t s = 0; s < m.program.num_steps; s++)
            seen[m.program.steps[s].kind] = true;
        fill(&m);
        MAKE(oct_model_save(path, &m));
        fuzz_seed_image(path);
        oct_model_free(&m);
    }
    for (int kind = 0; kind < OCT_STEP_KINDS; kind++)
        FUZZ_REQUIRE(seen[kind], "no seed has a step of kind %d", kind);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    return fuzz_mutate_image(data, size, max, seed);
}

/* Saved again and read again: the same file. */
static void check_saved(const oct_model *m)
{
    oct_model again;
    char first[512], second[512];
    void *a, *b;
    size_t size_a, size_b;
    snprintf(first, sizeof first, "%s/first.int8.h5", fuzz_folder());
    snprintf(second, sizeof second, "%s/second.int8.h5", fuzz_folder());
    MAKE(oct_model_save(first, m));
    MAKE(oct_model_load(&again, first));
    MAKE(oct_model_save(second, &again));
    MAKE(oct_file_read(first, SIZE_MAX / 2, &a, &size_a));
    MAKE(oct_file_read(second, SIZE_MAX / 2, &b, &size_b));
    FUZZ_REQUIRE(size_a == size_b && memcmp(a, b, size_a) == 0, "saved otherwise than it was read");
    oct_free(&a);
    oct_free(&b);
    oct_model_free(&again);
}

static void check_golden(const oct_model *m)
{
    uint8_t *here = NULL;
    const int64_t count = m->certificate.golden_count < 2 ? m->certificate.golden_count : 2;
    MAKE(oct_alloc(&here, (size_t)(count * m->program.num_values), DIGEST));
    oct_status status = oct_golden_digests(&m->program, m->golden_input, count, here);
    fuzz_said(status, FUZZ_BIT(OCT_OK) | FUZZ_BIT(OCT_DATA) | FUZZ_BIT(OCT_RESOURCE), NULL);
    oct_free(&here);
}

static void run(const uint8_t *file, size_t size, bool sealed)
{
    oct_model m;
    unsigned allowed = FUZZ_BIT(OCT_DATA) | (sealed ? FUZZ_BIT(OCT_OK) : 0);
    const char *path = fuzz_file("input.int8.h5", file, size);
    fuzz_call call = fuzz_begin(size);
    oct_status status = oct_model_load(&m, path);
    fuzz_said(status, allowed, path);
    if (status == OCT_OK) check_golden(&m);
    if (status == OCT_OK) check_saved(&m);
    oct_model_free(&m);
    fuzz_end(&call, 64, (size_t)256 << 20);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    oct_log_setup(OCT_LOG_ERROR, false);
    uint8_t *bytes = fuzz_sealed(data, size);
    run(bytes, size + OCT_SEAL_BYTES, true);
    if (size > 0 && data[size / 2] % 16 == 0) { /* one bit behind the seal's back */
        bytes[(size_t)data[size / 3] * size / 256] ^= 4;
        run(bytes, size + OCT_SEAL_BYTES, false);
    }
    oct_free(&bytes);
    return 0;
}
