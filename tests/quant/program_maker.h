/* Small programs for the tests of the runtime: a builder that owns what it makes. */
#pragma once

#include "core/base/mem.h"
#include "quant/program/step.h"
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
    const int32_t most = dtype == OCT_U16 ? 65535 : 255;
    p->values[p->num_values] =
        (oct_value){.dtype = dtype, .h = h, .w = w, .c = c, .q = {scale, zero_point, 0, most}};
    return (int32_t)p->num_values++;
}

static inline int32_t program_input(oct_program *p, int64_t h, int64_t w, int64_t c)
{
    const int32_t value = program_value(p, OCT_F32, h, w, c, 0.0f, 0);
    p->inputs[p->num_inputs++] = value;
    return value;
}

enum { NONE = -1 }; /* no second input */

static inline oct_step *program_step(oct_program *p, oct_step_kind kind, const char *name,
                                     int32_t a, int32_t b, int32_t output)
{
    oct_step *step = &p->steps[p->num_steps++];
    *step = (oct_step){.kind = kind,
                       .num_inputs = b == NONE ? 1 : 2,
                       .input = {a, b == NONE ? 0 : b},
                       .output = output};
    snprintf(step->name, sizeof step->name, "%s", name);
    return step;
}

/* Weights and multipliers by a simple rule of `seed`. */
static inline void program_weights(oct_step *step, oct_conv_shape s, int32_t lo, int32_t hi,
                                   int seed)
{
    const int64_t n = s.out_c * s.kernel_h * s.kernel_w * (s.in_c / s.groups);
    step->conv.shape = s;
    step->conv.lo = lo;
    step->conv.hi = hi;
    cr_assert_eq(oct_alloc(&step->conv.weight, (size_t)n, 1), OCT_OK);
    cr_assert_eq(oct_alloc(&step->conv.bias, (size_t)s.out_c, sizeof *step->conv.bias), OCT_OK);
    cr_assert_eq(oct_alloc(&step->conv.multiplier, (size_t)s.out_c, sizeof *step->conv.multiplier),
                 OCT_OK);
    cr_assert_eq(
        oct_alloc(&step->conv.weight_scale, (size_t)s.out_c, sizeof *step->conv.weight_scale),
        OCT_OK);
    for (int64_t i = 0; i < n; i++)
        step->conv.weight[i] = (int8_t)((i * 31 + seed * 7) % 255 - 127);
    for (int64_t c = 0; c < s.out_c; c++) {
        step->conv.bias[c] = (c * 97 + seed * 13) % 2001 - 1000;
        step->conv.multiplier[c] = 0.001f + 0.0001f * (float)((c + seed) % 7);
        step->conv.weight_scale[c] = 0.01f;
    }
}

/* Makes the multipliers follow from the scales, as model files want them, with scales near the multipliers. */
static inline void program_scales(oct_program *p)
{
    for (int64_t i = 0; i < p->num_steps; i++) {
        oct_step *step = &p->steps[i];
        if (!oct_step_type_of(step->kind)->weights) continue;
        const oct_value *out = oct_step_output(p, step);
        const float x = oct_step_input(p, step, 0)->q.scale;
        const float y = out->dtype == OCT_F32 ? 1.0f : out->q.scale;
        if (step->num_inputs > 1)
            step->conv.addend_multiplier = oct_step_input(p, step, 1)->q.scale / y;
        for (int64_t c = 0; c < step->conv.shape.out_c; c++) {
            step->conv.weight_scale[c] = step->conv.multiplier[c] * y / x;
            step->conv.multiplier[c] = x * step->conv.weight_scale[c] / y;
        }
    }
}

static inline oct_conv_shape program_shape(int64_t h, int64_t w, int64_t in_c, int64_t out_c,
                                           int kernel, int stride, int padding, int groups)
{
    return shape_of(h, w, in_c, out_c, kernel, kernel, stride, padding, groups);
}

/* A float fallback of a type, its arguments and named arrays to be filled in. */
static inline oct_fallback *program_fallback(oct_step *step, const char *type, int dims,
                                             int64_t num_arrays)
{
    cr_assert_eq(oct_alloc(&step->fallback, 1, sizeof *step->fallback), OCT_OK);
    snprintf(step->fallback->type, sizeof step->fallback->type, "%s", type);
    for (int i = 0; i < step->num_inputs; i++)
        step->fallback->dims[i] = dims;
    cr_assert_eq(oct_alloc(&step->fallback->arrays, (size_t)num_arrays, sizeof(oct_fallback_array)),
                 OCT_OK);
    step->fallback->num_arrays = num_arrays;
    return step->fallback;
}

static inline void program_array(oct_fallback *fallback, int64_t i, const char *name,
                                 oct_shape shape, int seed)
{
    oct_fallback_array *array = &fallback->arrays[i];
    const int64_t n = oct_shape_numel(&shape);
    *array = (oct_fallback_array){.dtype = OCT_F32, .shape = shape};
    cr_assert_eq(oct_strdup(&array->name, name), OCT_OK);
    cr_assert_eq(oct_alloc(&array->data, (size_t)n, sizeof(float)), OCT_OK);
    for (int64_t k = 0; k < n; k++)
        ((float *)array->data)[k] = (float)((k * 29 + seed * 5) % 101 - 50) / 64.0f;
}

/* A stem, a residual block with a depthwise filter, both pools, a flattening, a linear layer out of the
 * integer domain. Steps, in order: quantize, stem, depthwise, add, pool, mean, classifier. */
static inline void program_small(oct_program *p)
{
    program_begin(p);
    const int32_t image = program_input(p, 9, 8, 3);
    const int32_t x = program_value(p, OCT_U8, 9, 8, 3, 0.02f, 128);
    const int32_t stem = program_value(p, OCT_U8, 9, 8, 7, 0.03f, 0);
    const int32_t deep = program_value(p, OCT_U8, 9, 8, 7, 0.05f, 128);
    const int32_t sum = program_value(p, OCT_U8, 9, 8, 7, 0.04f, 0);
    const int32_t pooled = program_value(p, OCT_U8, 4, 4, 7, 0.04f, 0);
    const int32_t mean = program_value(p, OCT_U8, 1, 1, 7, 0.04f, 0);
    p->output = program_value(p, OCT_F32, 1, 1, 10, 0.0f, 0);
    program_step(p, OCT_STEP_QUANTIZE, "quant", image, NONE, x);
    program_weights(program_step(p, OCT_STEP_CONV, "stem", x, NONE, stem),
                    program_shape(9, 8, 3, 7, 3, 1, 1, 1), 0, 255, 1);
    program_weights(program_step(p, OCT_STEP_CONV, "block.deep", stem, NONE, deep),
                    program_shape(9, 8, 7, 7, 3, 1, 1, 7), -128, 127, 2);
    program_step(p, OCT_STEP_ADD, "block.add", stem, deep, sum)->add =
        oct_qadd_of(p->values[stem].q, p->values[deep].q, p->values[sum].q, true);
    program_step(p, OCT_STEP_MAX_POOL, "pool", sum, NONE, pooled)->pool.shape =
        program_shape(9, 8, 7, 7, 2, 2, 0, 1);
    program_step(p, OCT_STEP_AVG_POOL, "mean", pooled, NONE, mean)->pool.shape =
        program_shape(4, 4, 7, 7, 4, 1, 0, 1);
    program_weights(program_step(p, OCT_STEP_CONV_FLOAT, "classifier", mean, NONE, p->output),
                    program_shape(1, 1, 7, 10, 1, 1, 0, 1), 0, 0, 3);
}

/* Two inputs, 16-bit and 8-bit codes, a reshape, and a float convolution between them. Steps, in order:
 * quant_a, quant_b, dequant, float fallback, requant, sum, flat, out. */
static inline void program_with_fallback(oct_program *p)
{
    program_begin(p);
    const int32_t a = program_input(p, 4, 5, 2), b = program_input(p, 4, 5, 3);
    const int32_t qa = program_value(p, OCT_U16, 4, 5, 2, 0.001f, 32768);
    const int32_t qb = program_value(p, OCT_U8, 4, 5, 3, 0.02f, 128);
    const int32_t fa = program_value(p, OCT_F32, 4, 5, 2, 0.0f, 0);
    const int32_t y = program_value(p, OCT_F32, 4, 5, 3, 0.0f, 0);
    const int32_t qy = program_value(p, OCT_U8, 4, 5, 3, 0.03f, 128);
    const int32_t sum = program_value(p, OCT_U8, 4, 5, 3, 0.04f, 0);
    const int32_t flat = program_value(p, OCT_U8, 1, 1, 60, 0.04f, 0);
    p->output = program_value(p, OCT_F32, 1, 1, 60, 0.0f, 0);
    program_step(p, OCT_STEP_QUANTIZE, "quant_a", a, NONE, qa);
    program_step(p, OCT_STEP_QUANTIZE, "quant_b", b, NONE, qb);
    program_step(p, OCT_STEP_DEQUANTIZE, "dequant", qa, NONE, fa);
    oct_fallback *fallback =
        program_fallback(program_step(p, OCT_STEP_FLOAT, "fallback", fa, NONE, y), "conv2d", 4, 2);
    const double args[] = {2, 3, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    memcpy(fallback->args.value, args, sizeof args);
    fallback->args.count = (int)OCT_COUNT(args);
    program_array(fallback, 0, "weight", OCT_SHAPE(3, 3, 3, 2), 1);
    program_array(fallback, 1, "bias", OCT_SHAPE(3), 2);
    program_step(p, OCT_STEP_QUANTIZE, "requant", y, NONE, qy);
    program_step(p, OCT_STEP_ADD, "sum", qy, qb, sum)->add =
        oct_qadd_of(p->values[qy].q, p->values[qb].q, p->values[sum].q, true);
    program_step(p, OCT_STEP_RESHAPE, "flat", sum, NONE, flat);
    program_step(p, OCT_STEP_DEQUANTIZE, "out", flat, NONE, p->output);
}

static inline void program_factors(oct_step *step, float factor)
{
    for (int64_t c = 0; c < step->conv.shape.out_c; c++)
        step->conv.multiplier[c] *= factor;
}

/* The kinds that the other two lack, on codes of 8 and 16 bits. The step that makes value v is step
 * v - 1: quant, conv16, residual, mul, lut, relu, concat, interpolate, affine, transposed, softmax, mean,
 * out. */
static inline void program_of_other_kinds(oct_program *p)
{
    program_begin(p);
    const int32_t image = program_input(p, 6, 5, 2);
    const int32_t x16 = program_value(p, OCT_U16, 6, 5, 2, 0.001f, 32768);
    const int32_t c8 = program_value(p, OCT_U8, 6, 5, 4, 0.03f, 128);
    const int32_t c16 = program_value(p, OCT_U16, 6, 5, 4, 0.0002f, 32768);
    const int32_t mul = program_value(p, OCT_U8, 6, 5, 4, 0.05f, 128);
    const int32_t lut = program_value(p, OCT_U8, 6, 5, 4, 0.02f, 128);
    const int32_t relu = program_value(p, OCT_U8, 6, 5, 4, 0.02f, 128);
    const int32_t cat = program_value(p, OCT_U8, 6, 5, 12, 0.04f, 128);
    const int32_t inter = program_value(p, OCT_U8, 7, 9, 12, 0.04f, 128);
    const int32_t affine = program_value(p, OCT_U8, 7, 9, 12, 0.03f, 128);
    const int32_t trans = program_value(p, OCT_U8, 13, 17, 3, 0.05f, 128);
    const int32_t soft = program_value(p, OCT_U8, 13, 17, 3, 1.0f / 256, 0);
    const int32_t mean = program_value(p, OCT_U8, 1, 1, 3, 1.0f / 256, 0);
    p->output = program_value(p, OCT_F32, 1, 1, 3, 0.0f, 0);
    oct_value *v = p->values;
    program_step(p, OCT_STEP_QUANTIZE, "quant", image, NONE, x16);
    oct_step *step = program_step(p, OCT_STEP_CONV, "conv16", x16, NONE, c8);
    program_weights(step, program_shape(6, 5, 2, 4, 3, 1, 1, 1), -128, 127, 1);
    program_factors(step, 0.02f);
    step = program_step(p, OCT_STEP_CONV, "residual", c8, c8, c16);
    program_weights(step, program_shape(6, 5, 4, 4, 1, 1, 0, 1), 0, 32767, 2);
    step->conv.addend_multiplier = 20.0f;
    program_step(p, OCT_STEP_MUL, "mul", c8, c16, mul)->mul.factor =
        oct_qmul_factor(v[c8].q, v[c16].q, v[mul].q);
    step = program_step(p, OCT_STEP_LUT, "lut", mul, NONE, lut);
    step->lut.size = 256;
    cr_assert_eq(oct_alloc(&step->lut.table, 256, sizeof *step->lut.table), OCT_OK);
    for (int i = 0; i < 256; i++)
        step->lut.table[i] = (uint16_t)(255 - i * i / 256);
    step = program_step(p, OCT_STEP_RELU, "relu", lut, NONE, relu);
    step->relu.hi = 100;
    step = program_step(p, OCT_STEP_CONCAT, "concat", c8, relu, cat);
    step->input[step->num_inputs++] = c16;
    step = program_step(p, OCT_STEP_INTERPOLATE, "interpolate", cat, NONE, inter);
    step->interpolate.shape =
        (oct_conv_shape){.in_h = 6, .in_w = 5, .in_c = 12, .out_h = 7, .out_w = 9};
    step->interpolate.shape.out_c = 12;
    step->interpolate.mode = OCT_BILINEAR;
    step = program_step(p, OCT_STEP_AFFINE, "affine", inter, NONE, affine);
    program_weights(step, program_shape(7, 9, 12, 12, 1, 1, 0, 12), -128, 127, 3);
    for (int c = 0; c < 12; c++)
        step->conv.weight[c] = (int8_t)(c % 3 - 1);
    program_factors(step, 0.03f);
    step = program_step(p, OCT_STEP_CONV, "transposed", affine, NONE, trans);
    program_weights(step, program_shape(13, 17, 12, 3, 3, 1, 1, 1), -128, 127, 4);
    step->conv.input_step_h = step->conv.input_step_w = 2;
    step = program_step(p, OCT_STEP_SOFTMAX, "softmax", trans, NONE, soft);
    step->softmax.size = 256;
    cr_assert_eq(oct_alloc(&step->softmax.exponential, 256, sizeof *step->softmax.exponential),
                 OCT_OK);
    oct_qsoftmax_exponential(v[trans].q, step->softmax.exponential);
    program_step(p, OCT_STEP_AVG_POOL, "mean", soft, NONE, mean)->pool.shape =
        shape_of(13, 17, 3, 3, 13, 17, 1, 0, 1);
    program_step(p, OCT_STEP_DEQUANTIZE, "out", mean, NONE, p->output);
}
