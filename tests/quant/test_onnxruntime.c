/* The arithmetic of target onnxruntime against what ONNX Runtime itself computed (tests/golden/make_ort_golden.py):
 * programs of one layer, run by the runtime, and each value by a scalar reference of its own. */
#include "quant/qparams.h"
#include "quant/target/target.h"
#include "tests/golden/ort_golden.h"
#include "tests/quant/program_maker.h"
#include "tests/support/check_status.h"

#include <math.h>
#include <stdlib.h>

static float real(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static oct_qparams qparams(uint32_t scale, int32_t zero_point)
{
    return (oct_qparams){real(scale), zero_point, 0, 255};
}

/* The reference: ONNX Runtime's formulas as they stand in quant/target/README.md. */

static uint8_t code_of(float steps, int32_t zero_point, int32_t lowest, int32_t highest)
{
    const double code = (double)nearbyintf(steps) + zero_point;
    return (uint8_t)fmin(fmax(code, lowest), highest);
}

static int32_t sum_of(const ort_conv *k, const int8_t *weight, int64_t y, int64_t x, int64_t o)
{
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
                sum += (value - k->input_zero_point) * weight[tap];
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
static void begin(layer *l, oct_step_kind kind, const oct_value *x, int inputs, oct_value y)
{
    oct_program *p = &l->program;
    program_begin(p);
    snprintf(p->target, sizeof p->target, "onnxruntime");
    for (int i = 0; i < inputs; i++) {
        const int32_t values = program_input(p, x[i].h, x[i].w, x[i].c);
        l->x[i] = program_value(p, OCT_U8, x[i].h, x[i].w, x[i].c, x[i].q.scale, x[i].q.zero_point);
        program_step(p, OCT_STEP_QUANTIZE, "quant", values, NONE, l->x[i])->quotient = true;
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
typedef struct made {
    int32_t value;
    void *data;
} made;

static void keep(void *user, int64_t value, const oct_step *step, const void *data, size_t bytes)
{
    const made *m = user;
    (void)step;
    if (value == m->value) memcpy(m->data, data, bytes);
}

/* Runs the program on samples of these codes, and takes the layer's own output. */
static void run(layer *l, int64_t samples, const uint8_t *const *codes, void *output)
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
    MUST(oct_runtime_create(&runtime, p, samples, NULL));
    MUST(oct_runtime_watch(runtime, samples, (const float *const *)x, y, keep,
                           &(made){l->y, output}));
    oct_runtime_destroy(&runtime);
    oct_program_free(&l->program);
    free(x[0]);
    free(x[1]);
    free(y);
}

Test(onnxruntime, quotients_are_its_codes)
{
    for (size_t i = 0; i < OCT_COUNT(ort_quantize_cases); i++) {
        const ort_quantize *k = &ort_quantize_cases[i];
        float x[256];
        uint8_t codes[256], products[256];
        int apart = 0;
        for (int e = 0; e < k->count; e++)
            x[e] = real(k->x[e]);
        oct_quantize_quotient(x, k->count, qparams(k->scale, k->zero_point), codes, NULL, NULL);
        oct_quantize(x, k->count, qparams(k->scale, k->zero_point), products, NULL, NULL);
        for (int e = 0; e < k->count; e++) {
            cr_assert_eq(codes[e], k->y[e], "%s, %.9g: %d, not %d", k->name, (double)x[e], codes[e],
                         k->y[e]);
            cr_assert_eq(
                code_of(fminf(fmaxf(x[e] / real(k->scale), -1e6f), 1e6f), k->zero_point, 0, 255),
                k->y[e]);
            apart += products[e] != k->y[e];
        }
        cr_assert(k->zero_point == 0 || k->zero_point == 255 || apart > 5,
                  "products give the same codes");
    }
    check_nothing_held();
}

/* In a program the bias has the input's zero_point taken off. */
static int64_t bias_of(const int8_t *weight, int64_t depth, int32_t bias, int32_t zero_point)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < depth; i++)
        sum += weight[i];
    return bias - zero_point * sum;
}

static void take_weights(layer *l, const int8_t *weight, const int32_t *bias, const uint32_t *scale,
                         oct_qparams in, float output_scale)
{
    oct_step *step = l->step;
    const int64_t depth = oct_conv_depth(&step->conv);
    memcpy(step->weight, weight, (size_t)(step->conv.out_c * depth));
    for (int64_t o = 0; o < step->conv.out_c; o++) {
        step->bias[o] = bias_of(weight + o * depth, depth, bias[o], in.zero_point);
        step->weight_scale[o] = real(scale[o]);
        step->multiplier[o] = in.scale * real(scale[o]) / output_scale;
    }
}

Test(onnxruntime, convolutions_are_its_codes)
{
    for (size_t i = 0; i < OCT_COUNT(ort_conv_cases); i++) {
        const ort_conv *k = &ort_conv_cases[i];
        const oct_qparams in = qparams(k->input_scale, k->input_zero_point);
        const oct_qparams out = qparams(k->output_scale, k->output_zero_point);
        layer l;
        uint8_t codes[1024];
        begin(&l, OCT_STEP_CONV, &(oct_value){.h = k->in_h, .w = k->in_w, .c = k->in_c, .q = in}, 1,
              (oct_value){.h = k->out_h, .w = k->out_w, .c = k->out_c, .q = out});
        program_weights(l.step,
                        program_shape(k->in_h, k->in_w, k->in_c, k->out_c, k->kernel, k->stride,
                                      k->padding, k->groups),
                        k->lowest - out.zero_point, k->highest - out.zero_point, 0);
        take_weights(&l, k->weight, k->bias, k->weight_scale, in, out.scale);
        run(&l, 1, &k->x, codes);
        for (int64_t e = 0; e < (int64_t)k->out_h * k->out_w * k->out_c; e++) {
            const int64_t o = e % k->out_c, at = e / k->out_c;
            const int32_t sum = sum_of(k, k->weight, at / k->out_w, at % k->out_w, o);
            const float steps = (float)sum * (in.scale * real(k->weight_scale[o]) / out.scale);
            cr_assert_eq(codes[e], k->y[e], "%s: code %d is %d, not %d", k->name, (int)e, codes[e],
                         k->y[e]);
            cr_assert_eq(code_of(steps, out.zero_point, k->lowest, k->highest), k->y[e]);
        }
    }
    check_nothing_held();
}

Test(onnxruntime, averages_are_its_codes_of_convolutions)
{
    int apart = 0, means = 0;
    for (size_t i = 0; i < OCT_COUNT(ort_conv_cases); i++) {
        const ort_conv *k = &ort_conv_cases[i];
        const oct_qparams q = qparams(k->input_scale, k->input_zero_point);
        if (strncmp(k->name, "mean", 4) != 0) continue;
        layer l;
        uint8_t codes[1024], divided[1024];
        means++;
        begin(&l, OCT_STEP_AVG_POOL, &(oct_value){.h = k->in_h, .w = k->in_w, .c = k->in_c, .q = q},
              1, (oct_value){.h = k->out_h, .w = k->out_w, .c = k->out_c, .q = q});
        l.step->conv = program_shape(k->in_h, k->in_w, k->in_c, k->out_c, k->kernel, k->stride,
                                     k->padding, k->in_c);
        l.step->factor = oct_qavg_factor(q.scale, (int64_t)k->kernel * k->kernel);
        oct_qavg_pool(1, &l.step->conv, false, 0.0f, (oct_qcodes){q, k->x}, divided);
        run(&l, 1, &k->x, codes);
        for (int64_t e = 0; e < (int64_t)k->out_h * k->out_w * k->out_c; e++) {
            cr_assert_eq(codes[e], k->y[e], "%s: code %d is %d, not %d", k->name, (int)e, codes[e],
                         k->y[e]);
            apart += divided[e] != k->y[e];
        }
    }
    cr_assert(means > 1 && apart > 0, "sums that are divided give the same codes");
    check_nothing_held();
}

Test(onnxruntime, a_last_linear_layer_has_its_floats)
{
    for (size_t i = 0; i < OCT_COUNT(ort_linear_cases); i++) {
        const ort_linear *k = &ort_linear_cases[i];
        const oct_qparams in = qparams(k->input_scale, k->input_zero_point);
        layer l;
        float y[256];
        begin(&l, OCT_STEP_CONV_FLOAT, &(oct_value){.h = 1, .w = 1, .c = k->in, .q = in}, 1,
              (oct_value){.h = 1, .w = 1, .c = k->out});
        program_weights(l.step, program_shape(1, 1, k->in, k->out, 1, 1, 0, 1), 0, 0, 0);
        take_weights(&l, k->weight, k->bias, k->weight_scale, in, 1.0f);
        run(&l, k->rows, &k->x, y);
        for (int e = 0; e < k->rows * k->out; e++)
            cr_assert(y[e] == real(k->y[e]), "%s: value %d is %.9g, not %.9g", k->name, e,
                      (double)y[e], (double)real(k->y[e]));
    }
    check_nothing_held();
}

/* Runs a step of two inputs on the values of a case. */
static void run_binary(layer *l, const ort_binary *k, uint8_t *codes)
{
    const uint8_t *const x[] = {k->a, k->b};
    run(l, k->count, x, codes);
    for (int e = 0; e < k->count; e++)
        cr_assert_eq(codes[e], k->y[e], "%s: code %d of %d and %d is %d, not %d", k->name, e,
                     k->a[e], k->b[e], codes[e], k->y[e]);
}

static void begin_binary(layer *l, oct_step_kind kind, const ort_binary *k)
{
    oct_value v[3];
    for (int i = 0; i < 3; i++)
        v[i] = (oct_value){.h = 1, .w = 1, .c = 1, .q = qparams(k->scale[i], k->zero_point[i])};
    begin(l, kind, v, 2, v[2]);
}

Test(onnxruntime, sums_of_one_scale_are_its_codes)
{
    for (size_t i = 0; i < OCT_COUNT(ort_add_cases); i++) {
        const ort_binary *k = &ort_add_cases[i];
        layer l;
        uint8_t codes[1024];
        begin_binary(&l, OCT_STEP_ADD, k);
        const oct_value *v = l.program.values;
        l.step->add = oct_qadd_of(v[l.x[0]].q, v[l.x[1]].q, v[l.y].q, k->relu);
        run_binary(&l, k, codes);
        for (int e = 0; e < k->count; e++) {
            const int32_t sum = k->a[e] - k->zero_point[0] + k->b[e] - k->zero_point[1];
            cr_assert_eq(code_of((float)sum, k->zero_point[2], k->relu ? k->zero_point[2] : 0, 255),
                         k->y[e]);
        }
    }
    check_nothing_held();
}

Test(onnxruntime, products_are_its_codes)
{
    int apart = 0;
    for (size_t i = 0; i < OCT_COUNT(ort_mul_cases); i++) {
        const ort_binary *k = &ort_mul_cases[i];
        layer l;
        uint8_t codes[1024], plain[1024];
        begin_binary(&l, OCT_STEP_MUL, k);
        const oct_qparams a = l.program.values[l.x[0]].q, b = l.program.values[l.x[1]].q;
        const oct_qparams y = l.program.values[l.y].q;
        l.step->offset_first = true;
        l.step->factor = oct_qmul_factor_float(a, b, y);
        run_binary(&l, k, codes);
        oct_qmul_forward(k->count, (oct_qcodes){a, k->a}, (oct_qcodes){b, k->b},
                         oct_qmul_factor(a, b, y), OCT_QMUL_EVEN, &(oct_qoutput){y, plain, 0, 0});
        for (int e = 0; e < k->count; e++) {
            const int32_t p = (k->a[e] - a.zero_point) * (k->b[e] - b.zero_point);
            const float steps = (float)p * (a.scale * b.scale / y.scale);
            cr_assert_eq(code_of(steps + (float)y.zero_point, 0, 0, 255), k->y[e]);
            apart += plain[e] != k->y[e];
        }
    }
    cr_assert(apart > 5, "products rounded before the zero_point give the same codes");
    check_nothing_held();
}
