/* Int8 models as inputs: small ones that hold every kind of step, as images after a good checksum. */
#pragma once

#include "core/base/log.h"
#include "core/base/mem.h"
#include "io/hdf5/hdf5.h"
#include "io/model/model_file.h"
#include "launch/deploy/certificate.h"
#include "tests/fuzz/image.h"
#include "tests/quant/program_maker.h"

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
    m->certificate.num_fallbacks = oct_count_fallbacks(p);
    MAKE(oct_strdup(&m->recipe, "schema: 1\nmodel:\n  name: cnn-small\n"));
    MAKE(oct_strdup(&m->data_format, "idx"));
    MAKE(oct_model_find_bounds(m));
    MAKE(oct_alloc(&m->golden_input, inputs, sizeof(float)));
    for (size_t i = 0; i < inputs; i++)
        m->golden_input[i] = (float)(i * 37 % 41) / 41 - 0.5f;
    MAKE(oct_alloc(&m->golden_digest, values, DIGEST));
    MAKE(oct_golden_digests(p, m->golden_input, 1, m->golden_digest));
}

/* Class numbers of places, mirrored in a frame. */
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
    step->pad.shape = (oct_pad_shape){{3, 2, 3}, {6, 4, 3}, {1, 2, 0}, OCT_PAD_CONSTANT};
    step->pad.fill = 128;
    step = program_step(p, OCT_STEP_MOVE, "move", framed, NONE, mirrored);
    step->move = oct_move_over(3, (const int64_t[]){6, 4, 3});
    step->move.stride[0] = -12;
    step->move.offset = 60;
    program_step(p, OCT_STEP_ARGMAX, "argmax", mirrored, NONE, p->output);
}

void fuzz_seeds(void)
{
    static void (*const makers[])(oct_program *) = {program_small, program_with_fallback,
                                                    program_of_other_kinds, program_of_classes};
    bool seen[OCT_STEP_KINDS] = {false};
    char path[512];
    snprintf(path, sizeof path, "%s/seed.int8.h5", fuzz_folder());
    for (size_t i = 0; i < OCT_COUNT(makers); i++) {
        oct_model m = {0};
        makers[i](&m.program);
        program_scales(&m.program);
        for (int64_t s = 0; s < m.program.num_steps; s++)
            seen[m.program.steps[s].kind] = true;
        fill(&m);
        MAKE(oct_model_write(path, &m));
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
