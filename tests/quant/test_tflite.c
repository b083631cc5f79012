/* The arithmetic of target tflite against what TFLite with XNNPACK itself computed (tests/golden/make_tflite_golden.py):
 * programs of one layer, run by the runtime, and each value by a scalar reference of its own. */
#include "tests/golden/tflite_golden.h"

static void check_codes(const char *name, const uint8_t *codes, const uint8_t *expected, int n)
{
    for (int e = 0; e < n; e++)
        cr_assert_eq(codes[e], expected[e], "%s: code %d is %d, not %d", name, e, codes[e],
                     expected[e]);
}

Test(tflite, values_become_its_codes)
{
    for (size_t i = 0; i < OCT_COUNT(tflite_quantize_cases); i++) {
        const layer_quantize *k = &tflite_quantize_cases[i];
        float x[512];
        uint8_t codes[512];
        for (int e = 0; e < k->count; e++)
            x[e] = layer_real(k->x[e]);
        oct_quantize_codes(x, k->count, layer_qparams(k->scale, k->zero_point), codes, NULL, NULL);
        check_codes(k->name, codes, k->y, k->count);
    }
    check_nothing_held();
}

Test(tflite, convolutions_are_its_codes)
{
    for (size_t i = 0; i < OCT_COUNT(tflite_conv_cases); i++)
        layer_check_conv("tflite", &tflite_conv_cases[i]);
    check_nothing_held();
}

/* The formula of quant/target/README.md, of codes in their layout there. */
static uint8_t sum_of(const layer_binary *k, int e)
{
    const float y = layer_real(k->scale[2]);
    const float a = layer_real(k->scale[0]) / y, b = layer_real(k->scale[1]) / y;
    int exponent;
    (void)frexpf(fmaxf(a, b), &exponent);
    const int shift = 21 - exponent;
    const int64_t t = (int64_t)nearbyintf(ldexpf(a, shift)) * (k->a[e] - k->zero_point[0]) +
                      (int64_t)nearbyintf(ldexpf(b, shift)) * (k->b[e] - k->zero_point[1]);
    return layer_code(floor(ldexp((double)t, -shift) + 0.5), k->zero_point[2],
                      k->relu ? k->zero_point[2] : 0, 255);
}

Test(tflite, sums_are_its_codes)
{
    int apart = 0;
    for (size_t i = 0; i < OCT_COUNT(tflite_add_cases); i++) {
        const layer_binary *k = &tflite_add_cases[i];
        layer l;
        uint8_t codes[1024], double_ratios[1024];
        layer_begin_binary(&l, "tflite", OCT_STEP_ADD, k);
        const oct_value *v = l.program.values;
        const oct_qparams a = v[l.x[0]].q, b = v[l.x[1]].q, y = v[l.y].q;
        const oct_qadd other = oct_qadd_of(a, b, y, k->relu);
        l.step->add = oct_qadd_of_floats(a, b, y, k->relu);
        layer_run_binary(&l, k, codes);
        oct_qadd_forward(k->count, (oct_qcodes){a, k->a}, (oct_qcodes){b, k->b}, &other,
                         OCT_REQUANT_FLOAT, &(oct_qoutput){y, double_ratios, NULL, NULL});
        for (int e = 0; e < k->count; e++) {
            cr_assert_eq(sum_of(k, e), k->y[e]);
            apart += double_ratios[e] != k->y[e];
        }
    }
    cr_assert(apart > 5, "multipliers of 20 bits give the same codes");
    check_nothing_held();
}

Test(tflite, products_are_its_codes)
{
    for (size_t i = 0; i < OCT_COUNT(tflite_mul_cases); i++) {
        const layer_binary *k = &tflite_mul_cases[i];
        layer l;
        uint8_t codes[1024];
        layer_begin_binary(&l, "tflite", OCT_STEP_MUL, k);
        const oct_qparams a = l.program.values[l.x[0]].q, b = l.program.values[l.x[1]].q;
        const oct_qparams y = l.program.values[l.y].q;
        l.step->mul.factor = oct_qmul_factor_float(a, b, y);
        layer_run_binary(&l, k, codes);
        for (int e = 0; e < k->count; e++) {
            const int32_t p = (k->a[e] - a.zero_point) * (k->b[e] - b.zero_point);
            const float steps = (float)p * (a.scale * b.scale / y.scale);
            cr_assert_eq(layer_code((double)nearbyintf(steps), y.zero_point, 0, 255), k->y[e]);
        }
    }
    check_nothing_held();
}

static uint8_t average_of(const layer_pool *k, int e)
{
    const int c = e % k->c, x = e / k->c % k->out_w, y = e / k->c / k->out_w;
    int total = 0, count = 0;
    for (int ky = 0; ky < k->kernel; ky++)
        for (int kx = 0; kx < k->kernel; kx++) {
            const int iy = y * k->stride - k->padding + ky, ix = x * k->stride - k->padding + kx;
            const bool inside = iy >= 0 && ix >= 0 && iy < k->in_h && ix < k->in_w;
            if (!inside && !k->include_pad) continue;
            total += (inside ? k->x[(iy * k->in_w + ix) * k->c + c] : k->zero_point) - 128;
            count++;
        }
    return (uint8_t)(128 + (total > 0 ? total + count / 2 : total - count / 2) / count);
}

Test(tflite, averages_are_its_codes)
{
    int apart = 0;
    for (size_t i = 0; i < OCT_COUNT(tflite_pool_cases); i++) {
        const layer_pool *k = &tflite_pool_cases[i];
        const oct_qparams q = {0.0371f, k->zero_point, 0, 255};
        const int n = k->out_h * k->out_w * k->c;
        layer l;
        uint8_t codes[1024], divided[1024];
        layer_begin(&l, "tflite", OCT_STEP_AVG_POOL,
                    &(oct_value){.h = k->in_h, .w = k->in_w, .c = k->c, .q = q}, 1,
                    (oct_value){.h = k->out_h, .w = k->out_w, .c = k->c, .q = q});
        l.step->pool.shape =
            program_shape(k->in_h, k->in_w, k->c, k->c, k->kernel, k->stride, k->padding, k->c);
        l.step->pool.of_codes = true;
        l.step->pool.count_include_pad = k->include_pad;
        oct_qavg_pool(1, &l.step->pool.shape, &(oct_qavg){.include_pad = k->include_pad},
                      (oct_qcodes){q, k->x}, divided);
        layer_run(&l, 1, &k->x, codes);
        check_codes(k->name, codes, k->y, n);
        for (int e = 0; e < n; e++) {
            cr_assert_eq(average_of(k, e), k->y[e]);
            apart += divided[e] != k->y[e];
        }
    }
    cr_assert(apart > 5, "halves to even give the same codes");
    check_nothing_held();
}

Test(tflite, resized_planes_are_its_codes)
{
    for (size_t i = 0; i < OCT_COUNT(tflite_resize_cases); i++) {
        const layer_resize *k = &tflite_resize_cases[i];
        const oct_qparams q = {0.0371f, 117, 0, 255};
        layer l;
        uint8_t codes[1024];
        layer_begin(&l, "tflite", OCT_STEP_INTERPOLATE,
                    &(oct_value){.h = k->in_h, .w = k->in_w, .c = k->c, .q = q}, 1,
                    (oct_value){.h = k->out_h, .w = k->out_w, .c = k->c, .q = q});
        l.step->interpolate.mode = k->mode;
        l.step->interpolate.shape = (oct_conv_shape){.in_h = k->in_h,
                                                     .in_w = k->in_w,
                                                     .in_c = k->c,
                                                     .out_h = k->out_h,
                                                     .out_w = k->out_w,
                                                     .out_c = k->c};
        layer_run(&l, 1, &k->x, codes);
        check_codes(k->name, codes, k->y, k->out_h * k->out_w * k->c);
    }
    check_nothing_held();
}
