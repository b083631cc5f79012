/* Small programs for the tests of the runtime: a builder that owns what it makes. */
#pragma once

#include "core/base/mem.h"
#include "quant/runtime/program.h"
#include "tests/quant/shapes.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { MAKER_STEPS = 16 };

static inline void program_begin(oct_program *p)
{
    *p = (oct_program){0};
    cr_assert_eq(oct_alloc(&p->steps, MAKER_STEPS, sizeof *p->steps), OCT_OK);
    cr_assert_eq(oct_alloc(&p->values, MAKER_STEPS + 1, sizeof *p->values), OCT_OK);
}

static inline int32_t program_value(oct_program *p, oct_dtype dtype, int64_t h, int64_t w,
                                    int64_t c, float scale, int32_t zero_point)
{
    p->values[p->num_values] =
        (oct_value){.dtype = dtype, .h = h, .w = w, .c = c, .q = {scale, zero_point, 0, 255}};
    return (int32_t)p->num_values++;
}

static inline oct_step *program_step(oct_program *p, oct_step_kind kind, const char *name,
                                     int32_t a, int32_t b, int32_t output)
{
    oct_step *step = &p->steps[p->num_steps++];
    *step = (oct_step){.kind = kind, .input = {a, b}, .output = output};
    snprintf(step->name, sizeof step->name, "%s", name);
    return step;
}

/* Weights and multipliers by a simple rule of `seed`. */
static inline void program_weights(oct_step *step, oct_conv_shape s, int32_t lo, int32_t hi,
                                   int seed)
{
    const int64_t n = s.out_c * s.kernel_h * s.kernel_w * (s.in_c / s.groups);
    step->conv = s;
    step->lo = lo;
    step->hi = hi;
    cr_assert_eq(oct_alloc(&step->weight, (size_t)n, 1), OCT_OK);
    cr_assert_eq(oct_alloc(&step->bias, (size_t)s.out_c, sizeof *step->bias), OCT_OK);
    cr_assert_eq(oct_alloc(&step->multiplier, (size_t)s.out_c, sizeof *step->multiplier), OCT_OK);
    cr_assert_eq(oct_alloc(&step->weight_scale, (size_t)s.out_c, sizeof *step->weight_scale),
                 OCT_OK);
    for (int64_t i = 0; i < n; i++)
        step->weight[i] = (int8_t)((i * 31 + seed * 7) % 255 - 127);
    for (int64_t c = 0; c < s.out_c; c++) {
        step->bias[c] = (int32_t)((c * 97 + seed * 13) % 2001 - 1000);
        step->multiplier[c] = 0.001f + 0.0001f * (float)((c + seed) % 7);
        step->weight_scale[c] = 0.01f;
    }
}

static inline oct_conv_shape program_shape(int64_t h, int64_t w, int64_t in_c, int64_t out_c,
                                           int kernel, int stride, int padding, int groups)
{
    return shape_of(h, w, in_c, out_c, kernel, kernel, stride, padding, groups);
}

/* Every kind of step: a stem, a residual block with a depthwise filter, both pools, a linear layer out
 * of the integer domain. Steps, in order: quantize, stem, depthwise, add, pool, mean, classifier. */
static inline void program_of_every_kind(oct_program *p)
{
    program_begin(p);
    p->input = program_value(p, OCT_F32, 9, 8, 3, 0.0f, 0);
    const int32_t x = program_value(p, OCT_U8, 9, 8, 3, 0.02f, 128);
    const int32_t stem = program_value(p, OCT_U8, 9, 8, 7, 0.03f, 0);
    const int32_t deep = program_value(p, OCT_U8, 9, 8, 7, 0.05f, 128);
    const int32_t sum = program_value(p, OCT_U8, 9, 8, 7, 0.04f, 0);
    const int32_t pooled = program_value(p, OCT_U8, 4, 4, 7, 0.04f, 0);
    const int32_t mean = program_value(p, OCT_U8, 1, 1, 7, 0.04f, 0);
    p->output = program_value(p, OCT_F32, 1, 1, 10, 0.0f, 0);
    program_step(p, OCT_STEP_QUANTIZE, "quant", p->input, 0, x);
    program_weights(program_step(p, OCT_STEP_CONV, "stem", x, 0, stem),
                    program_shape(9, 8, 3, 7, 3, 1, 1, 1), 0, 255, 1);
    program_weights(program_step(p, OCT_STEP_CONV, "block.deep", stem, 0, deep),
                    program_shape(9, 8, 7, 7, 3, 1, 1, 7), -128, 127, 2);
    program_step(p, OCT_STEP_ADD, "block.add", stem, deep, sum)->add =
        oct_qadd_of(p->values[stem].q, p->values[deep].q, p->values[sum].q, true);
    program_step(p, OCT_STEP_MAX_POOL, "pool", sum, 0, pooled)->conv =
        program_shape(9, 8, 7, 7, 2, 2, 0, 1);
    program_step(p, OCT_STEP_AVG_POOL, "mean", pooled, 0, mean)->conv =
        program_shape(4, 4, 7, 7, 4, 1, 0, 1);
    program_weights(program_step(p, OCT_STEP_CONV_FLOAT, "classifier", mean, 0, p->output),
                    program_shape(1, 1, 7, 10, 1, 1, 0, 1), 0, 0, 3);
}
