/* The arithmetic of target onnxruntime against what ONNX Runtime itself computed (tests/golden/make_ort_golden.py):
 * programs of one layer, run by the runtime, and each value by a scalar reference of its own. */
#include "tests/golden/ort_golden.h"

/* The formulas of quant/target/README.md. */
static uint8_t code_of(float steps, int32_t zero_point, int32_t lowest, int32_t highest)
{
    return layer_code((double)nearbyintf(steps), zero_point, lowest, highest);
}

Test(onnxruntime, quotients_are_its_codes)
{
    for (size_t i = 0; i < OCT_COUNT(ort_quantize_cases); i++) {
        const layer_quantize *k = &ort_quantize_cases[i];
        float x[256];
        uint8_t codes[256], products[256];
        int apart = 0;
        for (int e = 0; e < k->count; e++)
            x[e] = layer_real(k->x[e]);
        oct_quantize_quotient(x, k->count, layer_qparams(k->scale, k->zero_point), codes, NULL,
                              NULL);
        oct_quantize_codes(x, k->count, layer_qparams(k->scale, k->zero_point), products, NULL,
                           NULL);
        for (int e = 0; e < k->count; e++) {
            cr_assert_eq(codes[e], k->y[e], "%s, %.9g: %d, not %d", k->name, (double)x[e], codes[e],
                         k->y[e]);
            cr_assert_eq(code_of(fminf(fmaxf(x[e] / layer_real(k->scale), -1e6f), 1e6f),
                                 k->zero_point, 0, 255),
                         k->y[e]);
            apart += products[e] != k->y[e];
        }
        cr_assert(k->zero_point == 0 || k->zero_point == 255 || apart > 5,
                  "products give the same codes");
    }
    check_nothing_held();
}

Test(onnxruntime, convolutions_are_its_codes)
{
    for (size_t i = 0; i < OCT_COUNT(ort_conv_cases); i++)
        layer_check_conv("onnxruntime", &ort_conv_cases[i]);
    check_nothing_held();
}

Test(onnxruntime, averages_are_its_codes_of_convolutions)
{
    int apart = 0, means = 0;
    for (size_t i = 0; i < OCT_COUNT(ort_conv_cases); i++) {
        const layer_conv *k = &ort_conv_cases[i];
        const oct_qparams q = layer_qparams(k->input_scale, k->input_zero_point);
        if (strncmp(k->name, "mean", 4) != 0) continue;
        layer l;
        uint8_t codes[1024], divided[1024];
        means++;
        layer_begin(&l, "onnxruntime", OCT_STEP_AVG_POOL,
                    &(oct_value){.h = k->in_h, .w = k->in_w, .c = k->in_c, .q = q}, 1,
                    (oct_value){.h = k->out_h, .w = k->out_w, .c = k->out_c, .q = q});
        l.step->pool.shape = program_shape(k->in_h, k->in_w, k->in_c, k->out_c, k->kernel,
                                           k->stride, k->padding, k->in_c);
        l.step->pool.factor = oct_qavg_factor(q.scale, (int64_t)k->kernel * k->kernel);
        oct_qavg_pool(1, &l.step->pool.shape, &(oct_qavg){0}, (oct_qcodes){q, k->x}, divided);
        layer_run(&l, 1, &k->x, codes);
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
        const layer_linear *k = &ort_linear_cases[i];
        const oct_qparams in = layer_qparams(k->input_scale, k->input_zero_point);
        layer l;
        float y[256];
        layer_begin(&l, "onnxruntime", OCT_STEP_CONV_FLOAT,
                    &(oct_value){.h = 1, .w = 1, .c = k->in, .q = in}, 1,
                    (oct_value){.h = 1, .w = 1, .c = k->out});
        program_weights(l.step, program_shape(1, 1, k->in, k->out, 1, 1, 0, 1), 0, 0, 0);
        layer_take_weights(&l, k->weight, k->bias, k->weight_scale, in, 1.0f);
        layer_run(&l, k->rows, &k->x, y);
        for (int e = 0; e < k->rows * k->out; e++)
            cr_assert(y[e] == layer_real(k->y[e]), "%s: value %d is %.9g, not %.9g", k->name, e,
                      (double)y[e], (double)layer_real(k->y[e]));
    }
    check_nothing_held();
}

Test(onnxruntime, sums_of_one_scale_are_its_codes)
{
    for (size_t i = 0; i < OCT_COUNT(ort_add_cases); i++) {
        const layer_binary *k = &ort_add_cases[i];
        layer l;
        uint8_t codes[1024];
        layer_begin_binary(&l, "onnxruntime", OCT_STEP_ADD, k);
        const oct_value *v = l.program.values;
        l.step->add = oct_qadd_of(v[l.x[0]].q, v[l.x[1]].q, v[l.y].q, k->relu);
        layer_run_binary(&l, k, codes);
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
        const layer_binary *k = &ort_mul_cases[i];
        layer l;
        uint8_t codes[1024], plain[1024];
        layer_begin_binary(&l, "onnxruntime", OCT_STEP_MUL, k);
        const oct_qparams a = l.program.values[l.x[0]].q, b = l.program.values[l.x[1]].q;
        const oct_qparams y = l.program.values[l.y].q;
        l.step->mul.offset_first = true;
        l.step->mul.factor = oct_qmul_factor_float(a, b, y);
        layer_run_binary(&l, k, codes);
        oct_qmul_forward(k->count, (oct_qcodes){a, k->a}, (oct_qcodes){b, k->b},
                         &(oct_qmul){oct_qmul_factor(a, b, y), OCT_REQUANT_FLOAT, false},
                         &(oct_qoutput){y, plain, 0, 0});
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

/* 255 * 255 * 33025 is the last that is below 2^31. */
Test(onnxruntime, products_beyond_its_whole_numbers_are_found)
{
    const oct_qparams q = {.scale = 1, .qmax = 255},
                      middle = {.scale = 1, .zero_point = 128, .qmax = 255};
    cr_assert(!oct_qmul_overflows(q, q, 33025.0f) && oct_qmul_overflows(q, q, 33026.0f));
    cr_assert(!oct_qmul_overflows(middle, middle, 131071.0f) &&
              oct_qmul_overflows(middle, middle, 131072.0f));
}
