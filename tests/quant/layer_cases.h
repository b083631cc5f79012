/* Single layers with the codes that another runtime or another program computed of them (tests/golden/
 * make_ort_golden.py, make_tflite_golden.py, make_hardware_golden.py), and what runs such a layer as a program. Floats
 * are their bits; codes are unsigned, images (H, W, C), weights (O, kh, kw, I). */
#pragma once

#include "quant/rounding/qparams.h"
#include "quant/target/target.h"
#include "tests/quant/program_maker.h"
#include "tests/support/check_status.h"

#include <math.h>
#include <stdlib.h>

typedef struct layer_quantize {
    const char *name;
    uint32_t scale;
    int32_t zero_point;
    int count;
    const uint32_t *x;
    const uint8_t *y;
} layer_quantize;

typedef struct layer_conv {
    const char *name;
    int in_h, in_w, in_c, out_h, out_w, out_c, kernel, stride, padding, groups;
    uint32_t input_scale, output_scale;
    int32_t input_zero_point, output_zero_point, lowest, highest;
    const uint8_t *x;
    const int8_t *weight;
    const int32_t *bias;
    const uint32_t *weight_scale;
    const uint8_t *y;
} layer_conv;

typedef struct layer_linear {
    const char *name;
    int rows, in, out;
    uint32_t input_scale;
    int32_t input_zero_point;
    const uint8_t *x;
    const int8_t *weight;
    const int32_t *bias;
    const uint32_t *weight_scale;
    const uint32_t *y;
} layer_linear;

typedef struct layer_binary {
    const char *name;
    int relu, count;
    uint32_t scale[3]; /* of both inputs and the output */
    int32_t zero_point[3];
    const uint8_t *a, *b, *y;
} layer_binary;

typedef struct layer_pool {
    const char *name;
    int in_h, in_w, c, out_h, out_w, kernel, stride, padding, include_pad;
    int32_t zero_point;
    const uint8_t *x, *y;
} layer_pool;

typedef struct layer_resize {
    const char *name;
    int mode, in_h, in_w, c, out_h, out_w; /* mode: an oct_interpolation */
    const uint8_t *x, *y;
} layer_resize;

static inline float layer_real(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline oct_qparams layer_qparams(uint32_t scale, int32_t zero_point)
{
    return (oct_qparams){layer_real(scale), zero_point, 0, 255};
}

/* These compute by themselves what a layer's codes should be. */

static inline uint8_t layer_code(double whole, int32_t zero_point, int32_t lowest, int32_t highest)
{
    return (uint8_t)fmin(fmax(whole + zero_point, lowest), highest);
}

static inline int32_t layer_sum(const layer_conv *k, int64_t e)
{
    const int64_t o = e % k->out_c, y = e / k->out_c / k->out_w, x = e / k->out_c % k->out_w;
    const int each = k->in_c / k->groups;
    const int64_t first = o / (k->out_c / k->groups) * each;
    int32_t sum = k->bias[o];
    for (int ky = 0; ky < k->kernel; ky++)
        for (int kx = 0; kx < k->kernel; kx++)
            for (int i = 0; i < each; i++) {
                const int64_t iy = y * k->stride - k->padding + ky;
                const int64_t ix = x * k->stride - k->padding + kx;
                if (iy < 0 || ix < 0 || iy >= k->in_h || ix >= k->in_w) continue;
                const int64_t tap = ((o * k->kernel + ky) * k->kernel + kx) * each + i;
                const int32_t value = k->x[(iy * k->in_w + ix) * k->in_c + first + i];
                sum += (value - k->input_zero_point) * k->weight[tap];
            }
    return sum;
}

/* One layer between a quantize and a dequantize. */
typedef struct layer {
    oct_program program;
    oct_step *step;
    int32_t x[2], y;
} layer;

/* x and y are one sample of c channels in h x w positions; y.scale 0: a float output. */
static inline void layer_begin(layer *l, const char *target, oct_step_kind kind, const oct_value *x,
                               int inputs, oct_value y)
{
    oct_program *p = &l->program;
    const bool quotient = oct_target_find(target)->quotient;
    program_begin(p);
    snprintf(p->target, sizeof p->target, "%s", target);
    p->requantizer = oct_target_find(target)->requantizer;
    for (int i = 0; i < inputs; i++) {
        const int32_t values = program_input(p, x[i].h, x[i].w, x[i].c);
        l->x[i] = program_value(p, OCT_U8, x[i].h, x[i].w, x[i].c, x[i].q.scale, x[i].q.zero_point);
        program_step(p, OCT_STEP_QUANTIZE, "quant", values, NONE, l->x[i])->quantize.quotient =
            quotient;
    }
    const bool codes = y.q.scale > 0;
    l->y = program_value(p, codes ? OCT_U8 : OCT_F32, y.h, y.w, y.c, y.q.scale, y.q.zero_point);
    l->step = program_step(p, kind, "layer", l->x[0], inputs > 1 ? l->x[1] : NONE, l->y);
    p->output = l->y;
    if (!codes) return;
    p->output = program_value(p, OCT_F32, y.h, y.w, y.c, 0, 0);
    program_step(p, OCT_STEP_DEQUANTIZE, "dequant", l->y, NONE, p->output);
}

/* Keeps what the layer made. */
typedef struct layer_made {
    int32_t value;
    void *data;
} layer_made;

static inline void layer_keep(void *user, int64_t value, const oct_step *step, const void *data,
                              size_t bytes)
{
    const layer_made *m = user;
    (void)step;
    if (value == m->value) memcpy(m->data, data, bytes);
}

/* Runs the program on samples of these codes, and takes the layer's own output. */
static inline void layer_run(layer *l, int64_t samples, const uint8_t *const *codes, void *output)
{
    oct_runtime *runtime = NULL;
    const oct_program *p = &l->program;
    float *x[2] = {NULL}, *y = calloc((size_t)samples * 4096, sizeof(float));
    for (int i = 0; i < p->num_inputs; i++) {
        const int64_t n = samples * oct_value_numel(&p->values[l->x[i]]);
        x[i] = calloc((size_t)n, sizeof(float));
        oct_dequantize(codes[i], n, p->values[l->x[i]].q, x[i]);
    }
    MUST(oct_program_check(p));
    MUST(oct_runtime_create(&runtime, p, &(oct_runtime_options){.max_batch = samples}));
    MUST(oct_runtime_watch(runtime, samples, (const float *const *)x, y, layer_keep,
                           &(layer_made){l->y, output}));
    oct_runtime_destroy(&runtime);
    oct_program_free(&l->program);
    free(x[0]);
    free(x[1]);
    free(y);
}

/* In a program the bias has the input's zero_point taken off. */
static inline int64_t layer_bias(const int8_t *weight, int64_t depth, int32_t bias,
                                 int32_t zero_point)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < depth; i++)
        sum += weight[i];
    return bias - zero_point * sum;
}

static inline void layer_take_weights(layer *l, const int8_t *weight, const int32_t *bias,
                                      const uint32_t *scale, oct_qparams in, float output_scale)
{
    oct_step *step = l->step;
    const int64_t depth = oct_conv_depth(&step->conv.shape);
    memcpy(step->conv.weight, weight, (size_t)(step->conv.shape.out_c * depth));
    for (int64_t o = 0; o < step->conv.shape.out_c; o++) {
        step->conv.bias[o] = layer_bias(weight + o * depth, depth, bias[o], in.zero_point);
        step->conv.weight_scale[o] = layer_real(scale[o]);
        step->conv.multiplier[o] = in.scale * layer_real(scale[o]) / output_scale;
    }
}

/* Runs a convolution, whose codes are those of the case. */
static inline void layer_run_conv(const char *target, const layer_conv *k, uint8_t *codes)
{
    const oct_qparams in = layer_qparams(k->input_scale, k->input_zero_point);
    const oct_qparams out = layer_qparams(k->output_scale, k->output_zero_point);
    layer l;
    layer_begin(&l, target, OCT_STEP_CONV,
                &(oct_value){.h = k->in_h, .w = k->in_w, .c = k->in_c, .q = in}, 1,
                (oct_value){.h = k->out_h, .w = k->out_w, .c = k->out_c, .q = out});
    program_weights(l.step,
                    program_shape(k->in_h, k->in_w, k->in_c, k->out_c, k->kernel, k->stride,
                                  k->padding, k->groups),
                    k->lowest - out.zero_point, k->highest - out.zero_point, 0);
    layer_take_weights(&l, k->weight, k->bias, k->weight_scale, in, out.scale);
    layer_run(&l, 1, &k->x, codes);
    for (int64_t e = 0; e < (int64_t)k->out_h * k->out_w * k->out_c; e++)
        cr_assert_eq(codes[e], k->y[e], "%s, %s: code %d is %d, not %d", target, k->name, (int)e,
                     codes[e], k->y[e]);
}

/* The same of a target whose multipliers are floats; the codes are also those of the reference. */
static inline void layer_check_conv(const char *target, const layer_conv *k)
{
    const oct_qparams in = layer_qparams(k->input_scale, k->input_zero_point);
    const oct_qparams out = layer_qparams(k->output_scale, k->output_zero_point);
    uint8_t codes[1024];
    layer_run_conv(target, k, codes);
    for (int64_t e = 0; e < (int64_t)k->out_h * k->out_w * k->out_c; e++) {
        const float scale = in.scale * layer_real(k->weight_scale[e % k->out_c]);
        const float steps = (float)layer_sum(k, e) * (scale / out.scale);
        cr_assert_eq(layer_code((double)nearbyintf(steps), out.zero_point, k->lowest, k->highest),
                     k->y[e]);
    }
}

/* Begins a step of two inputs with the qparams of a case, and runs it on its codes. */
static inline void layer_begin_binary(layer *l, const char *target, oct_step_kind kind,
                                      const layer_binary *k)
{
    oct_value v[3];
    for (int i = 0; i < 3; i++)
        v[i] =
            (oct_value){.h = 1, .w = 1, .c = 1, .q = layer_qparams(k->scale[i], k->zero_point[i])};
    layer_begin(l, target, kind, v, 2, v[2]);
}

static inline void layer_run_binary(layer *l, const layer_binary *k, uint8_t *codes)
{
    const uint8_t *const x[] = {k->a, k->b};
    layer_run(l, k->count, x, codes);
    for (int e = 0; e < k->count; e++)
        cr_assert_eq(codes[e], k->y[e], "%s: code %d of %d and %d is %d, not %d", k->name, e,
                     k->a[e], k->b[e], codes[e], k->y[e]);
}
