/* The arithmetic of target tflm against what TFLite computed with its own kernels (tests/golden/make_tflm_golden.py):
 * programs of one layer, run by the runtime. What gemmlowp makes of millions of values is for tests/gemmlowp. */
#include "tests/golden/tflm_golden.h"

Test(tflm, convolutions_are_its_codes)
{
    for (size_t i = 0; i < OCT_COUNT(tflm_conv_cases); i++)
        layer_run_conv("tflm", &tflm_conv_cases[i], (uint8_t[1024]){0});
    check_nothing_held();
}

Test(tflm, sums_are_its_codes)
{
    int apart = 0;
    for (size_t i = 0; i < OCT_COUNT(tflm_add_cases); i++) {
        const layer_binary *k = &tflm_add_cases[i];
        layer l;
        uint8_t codes[1024], at_once[1024];
        layer_begin_binary(&l, "tflm", OCT_STEP_ADD, k);
        const oct_value *v = l.program.values;
        const oct_qparams a = v[l.x[0]].q, b = v[l.x[1]].q, y = v[l.y].q;
        l.step->add = oct_qadd_of(a, b, y, k->relu);
        const oct_qadd add = l.step->add;
        layer_run_binary(&l, k, codes);
        oct_qadd_forward(k->count, (oct_qcodes){a, k->a}, (oct_qcodes){b, k->b}, &add,
                         OCT_REQUANT_FLOAT, &(oct_qoutput){y, at_once, NULL, NULL});
        for (int e = 0; e < k->count; e++)
            apart += at_once[e] != k->y[e];
    }
    cr_assert(apart > 5, "sums in one step give the same codes");
    check_nothing_held();
}

Test(tflm, products_are_its_codes)
{
    int apart = 0;
    for (size_t i = 0; i < OCT_COUNT(tflm_mul_cases); i++) {
        const layer_binary *k = &tflm_mul_cases[i];
        layer l;
        uint8_t codes[1024], once[1024];
        layer_begin_binary(&l, "tflm", OCT_STEP_MUL, k);
        const oct_qparams a = l.program.values[l.x[0]].q, b = l.program.values[l.x[1]].q;
        const oct_qparams y = l.program.values[l.y].q;
        const float factor = l.step->mul.factor = oct_qmul_factor(a, b, y);
        layer_run_binary(&l, k, codes);
        oct_qmul_forward(k->count, (oct_qcodes){a, k->a}, (oct_qcodes){b, k->b},
                         &(oct_qmul){factor, OCT_REQUANT_FLOAT, false},
                         &(oct_qoutput){y, once, NULL, NULL});
        for (int e = 0; e < k->count; e++)
            apart += once[e] != k->y[e];
    }
    cr_assert(apart > 5, "one rounding gives the same codes");
    check_nothing_held();
}

Test(tflm, averages_are_its_codes)
{
    for (size_t i = 0; i < OCT_COUNT(tflm_pool_cases); i++) {
        const layer_pool *k = &tflm_pool_cases[i];
        uint8_t codes[1024];
        const oct_conv_shape s =
            program_shape(k->in_h, k->in_w, k->c, k->c, k->kernel, k->stride, k->padding, k->c);
        const oct_qparams q = {0.0371f, k->zero_point, 0, 255};
        oct_qavg_pool(1, &s, &(oct_qavg){.include_pad = k->include_pad, .of_codes = true},
                      (oct_qcodes){q, k->x}, codes);
        for (int e = 0; e < k->out_h * k->out_w * k->c; e++)
            cr_assert_eq(codes[e], k->y[e], "%s: code %d", k->name, e);
    }
}

/* A program that requantizes so has 8-bit codes, and scales whose ratios the kernels take. */
Test(tflm, programs_have_no_sums_that_its_kernels_refuse)
{
    const layer_binary *k = &tflm_add_cases[0];
    const float far[] = {0x1p18f, 0x1p19f, 0x1p60f};
    for (size_t i = 0; i < OCT_COUNT(far); i++) {
        layer l;
        layer_begin_binary(&l, "tflm", OCT_STEP_ADD, k);
        oct_value *v = l.program.values;
        v[l.x[0]].q.scale = v[l.y].q.scale * far[i];
        l.step->add = oct_qadd_of(v[l.x[0]].q, v[l.x[1]].q, v[l.y].q, false);
        const oct_status status = oct_program_check(&l.program);
        cr_assert_eq(status, i == 0 ? OCT_OK : OCT_DATA, "%g", (double)far[i]);
        oct_program_free(&l.program);
    }
    check_nothing_held();
}
