/* Quantization and plain fake quantization of values: codes, masks and gradients against PyTorch's own
 * answers (tests/golden/make_quant_golden.py), bit for bit; and what PyTorch leaves undefined. */
#include "quant/module/fake_quant.h"

#include "tests/golden/quant_golden.h"
#include "tests/support/float_bits.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

Test(fake_quantize, equals_pytorch_with_masks_and_gradients)
{
    for (size_t i = 0; i < OCT_COUNT(golden_fake_cases); i++) {
        const golden_fake *g = &golden_fake_cases[i];
        const oct_qparams q = {as_float(g->scale), g->zero_point, g->qmin, g->qmax};
        for (int32_t j = g->first; j < g->first + g->count; j++) {
            float x = as_float(golden_fake_x[j]), y;
            uint8_t mask;
            oct_fake_quantize(&x, 1, q, &y, &mask);
            cr_assert_eq(as_bits(y), golden_fake_y[j], "case %zu, x %a: %a, PyTorch %a", i,
                         (double)x, (double)y, (double)as_float(golden_fake_y[j]));
            cr_assert_eq(mask, golden_fake_mask[j], "case %zu, x %a: mask %d", i, (double)x, mask);
            /* The gradient is dY where the mask is 1. Its zeros are +0 or -0 in PyTorch: dY * 0. */
            float dx = mask ? as_float(golden_fake_dy[j]) : 0.0f;
            cr_assert_eq(dx, as_float(golden_fake_dx[j]));
        }
    }
}

Test(fake_quantize, gives_the_same_for_blocks_as_for_single_values)
{
    for (size_t i = 0; i < OCT_COUNT(golden_fake_cases); i++) {
        const golden_fake *g = &golden_fake_cases[i];
        const oct_qparams q = {as_float(g->scale), g->zero_point, g->qmin, g->qmax};
        float x[512], y[512];
        uint8_t mask[512];
        memcpy(x, golden_fake_x + g->first, (size_t)g->count * sizeof *x);
        oct_fake_quantize(x, g->count, q, y, mask);
        cr_assert_arr_eq(y, golden_fake_y + g->first, (size_t)g->count * sizeof *y);
        cr_assert_arr_eq(mask, golden_fake_mask + g->first, (size_t)g->count);
        oct_fake_quantize(x, g->count, q, y, NULL);
        cr_assert_arr_eq(y, golden_fake_y + g->first, (size_t)g->count * sizeof *y);
    }
}

Test(quantize, then_dequantize_is_fake_quantize)
{
    for (size_t i = 0; i < OCT_COUNT(golden_fake_cases); i++) {
        const golden_fake *g = &golden_fake_cases[i];
        const oct_qparams q = {as_float(g->scale), g->zero_point, g->qmin, g->qmax};
        if (q.qmin < 0) continue; /* stored codes are unsigned */
        float x[512], y[512];
        uint8_t codes[512], mask[64];
        memcpy(x, golden_fake_x + g->first, (size_t)g->count * sizeof *x);
        oct_quantize(x, g->count, q, codes, mask, NULL, NULL);
        oct_dequantize(codes, g->count, q, y);
        for (int j = 0; j < g->count; j++) {
            cr_assert(codes[j] >= q.qmin && codes[j] <= q.qmax);
            cr_assert_eq(as_bits(y[j]), golden_fake_y[g->first + j]);
            cr_assert_eq(mask[j / 8] >> (j % 8) & 1, golden_fake_mask[g->first + j]);
        }
    }
}

Test(quantize, gives_the_range_with_a_canonical_zero_over_many_blocks)
{
    enum { N = 1500 };
    static float x[N];
    static uint8_t codes[N], mask[N / 8 + 2];
    const oct_qparams q = {0.01f, 128, 0, 255};
    float min, max;
    for (int i = 0; i < N; i++)
        x[i] = (float)((i * 37) % 1000 - 400) * 0.01f;
    mask[(N + 7) / 8] = 0xa5;
    oct_quantize(x, N, q, codes, mask, &min, &max);
    cr_assert(min == -4.0f && max == 5.99f);
    cr_assert_eq(mask[(N + 7) / 8], 0xa5, "nothing behind the mask is touched");
    for (int i = 0; i < N; i++)
        cr_assert_eq(mask[i / 8] >> (i % 8) & 1, x[i] >= -1.285f && x[i] < 1.275f, "element %d", i);
    const float zeros[] = {-0.0f, -0.0f};
    oct_quantize(zeros, 2, q, codes, NULL, &min, &max);
    cr_assert(as_bits(min) == 0 && as_bits(max) == 0);
    oct_quantize(NULL, 0, q, codes, NULL, &min, &max);
    cr_assert(min == INFINITY && max == -INFINITY);
}

Test(quantize, shows_a_nan_in_the_range_and_codes_it_as_the_lowest)
{
    const float not_a_number[] = {NAN, -NAN};
    for (int i = 0; i < 2; i++) {
        const float x[] = {1.0f, not_a_number[i], -1.0f};
        uint8_t codes[3], mask;
        float min, max;
        oct_quantize(x, 3, (oct_qparams){0.1f, 128, 3, 255}, codes, &mask, &min, &max);
        cr_assert(isnan(min) && isnan(max));
        cr_assert(codes[0] == 138 && codes[1] == 3 && codes[2] == 118);
        cr_assert_eq(mask, 5);
    }
}

Test(quantize, saturates_values_far_beyond_the_codes)
{
    const float x[] = {INFINITY, -INFINITY, 3e38f, -3e38f};
    const oct_qparams q = {0.1f, 128, 0, 255};
    uint8_t codes[4], mask, flags[4];
    float y[4];
    oct_quantize(x, 4, q, codes, &mask, NULL, NULL);
    cr_assert(codes[0] == 255 && codes[1] == 0 && codes[2] == 255 && codes[3] == 0 && mask == 0);
    oct_fake_quantize(x, 4, q, y, flags);
    cr_assert(y[0] == 127 * 0.1f && y[1] == -128 * 0.1f && flags[0] == 0 && flags[1] == 0);
}

Test(fake_quant, keeps_a_nan_of_any_leaf_until_the_end_of_the_step)
{
    const float ends[] = {-1.0f, NAN, 2.0f};
    for (int place = 0; place < 3; place++) {
        oct_fake_quant *fq = NULL;
        cr_assert(oct_fake_quant_create(&fq, oct_observer_find("min_max"), 0.01f, true) == OCT_OK);
        oct_quantizers all = {.items = &fq, .count = 1};
        int64_t keys[2];
        oct_quantizers_set_state(&all, OCT_QUANT_QAT);
        for (int leaf = 0; leaf < 3; leaf++) {
            float end = ends[(leaf + place) % 3];
            oct_fake_quant_observe(fq, true, end, end);
        }
        oct_quantizers_keys(&all, keys);
        cr_assert_eq(oct_quantizers_update(&all, keys), OCT_NUMERIC, "NaN at %d was lost",
                     (4 - place) % 3);
        oct_module *module = &fq->base;
        oct_module_destroy(&module);
    }
}
