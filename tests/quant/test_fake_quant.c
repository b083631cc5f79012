/* Quantization and plain fake quantization of values: codes, masks and gradients against PyTorch's own
 * answers (tests/golden/make_quant_golden.py), bit for bit; and what PyTorch leaves undefined. */
#include "core/autograd/tape.h"
#include "quant/module/fake_quant.h"

#include "tests/golden/quant_golden.h"
#include "tests/support/check_status.h"
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
        oct_quantize_codes(x, g->count, q, codes, mask, NULL);
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
    float range[2] = {INFINITY, -INFINITY};
    for (int i = 0; i < N; i++)
        x[i] = (float)((i * 37) % 1000 - 400) * 0.01f;
    mask[(N + 7) / 8] = 0xa5;
    oct_quantize_codes(x, N, q, codes, mask, range);
    cr_assert(range[0] == -4.0f && range[1] == 5.99f);
    cr_assert_eq(mask[(N + 7) / 8], 0xa5, "nothing after the mask is touched");
    for (int i = 0; i < N; i++)
        cr_assert_eq(mask[i / 8] >> (i % 8) & 1, x[i] >= -1.285f && x[i] < 1.275f, "element %d", i);
    const float zeros[] = {-0.0f, -0.0f};
    float none[2] = {INFINITY, -INFINITY};
    oct_quantize_codes(NULL, 0, q, codes, NULL, none);
    cr_assert(none[0] == INFINITY && none[1] == -INFINITY);
    oct_quantize_codes(zeros, 2, q, codes, NULL, none);
    cr_assert(as_bits(none[0]) == 0 && as_bits(none[1]) == 0);
    oct_quantize_codes(zeros, 2, q, codes, NULL, range);
    cr_assert(range[0] == -4.0f && range[1] == 5.99f, "a range is merged into the one before");
}

Test(quantize, shows_a_nan_in_the_range_and_codes_it_as_the_lowest)
{
    const float not_a_number[] = {NAN, -NAN};
    for (int i = 0; i < 2; i++) {
        const float x[] = {1.0f, not_a_number[i], -1.0f};
        uint8_t codes[3], mask;
        float range[2] = {INFINITY, -INFINITY};
        oct_quantize_codes(x, 3, (oct_qparams){0.1f, 128, 3, 255}, codes, &mask, range);
        cr_assert(isnan(range[0]) && isnan(range[1]));
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
    oct_quantize_codes(x, 4, q, codes, &mask, NULL);
    cr_assert(codes[0] == 255 && codes[1] == 0 && codes[2] == 255 && codes[3] == 0 && mask == 0);
    oct_fake_quantize(x, 4, q, y, flags);
    cr_assert(y[0] == 127 * 0.1f && y[1] == -128 * 0.1f && flags[0] == 0 && flags[1] == 0);
}

/* By the definition, one value after another. */
Test(quantize, of_16_bits_is_that_of_8_with_more_codes)
{
    enum { N = 1500 };
    static float x[N], y[N];
    static uint16_t codes[N];
    static uint8_t mask[N / 8 + 2];
    const oct_qparams q = {0x1p-10f, 32768, 0, 65535};
    float range[2] = {INFINITY, -INFINITY};
    for (int i = 0; i < N; i++)
        x[i] = (float)((i * 7919) % 80000 - 40000) * 0x1p-10f + 0x1p-12f;
    mask[(N + 7) / 8] = 0xa5;
    oct_quantize16(x, N, q, codes, mask, range);
    oct_dequantize16(codes, N, q, y);
    cr_assert_eq(mask[(N + 7) / 8], 0xa5, "nothing after the mask is touched");
    float least = INFINITY, most = -INFINITY;
    int clipped = 0;
    for (int i = 0; i < N; i++) {
        float code = 32768.0f + rintf(x[i] / q.scale);
        float want = fminf(fmaxf(code, 0.0f), 65535.0f);
        cr_assert_eq(codes[i], (uint16_t)want, "element %d", i);
        cr_assert_eq(mask[i / 8] >> (i % 8) & 1, code == want);
        cr_assert_eq(y[i], (want - 32768.0f) * q.scale);
        least = fminf(least, x[i]);
        most = fmaxf(most, x[i]);
        clipped += code != want;
    }
    cr_assert(range[0] == least && range[1] == most && clipped > 100);
}

static oct_fake_quant *make_fake_quant(const oct_qconfig *qconfig, const oct_target *target,
                                       bool is_signed)
{
    oct_fake_quant *fq = NULL;
    MUST(oct_fake_quant_create(&fq, qconfig, target, is_signed));
    return fq;
}

static void destroy(oct_fake_quant *fq)
{
    oct_module *module = &fq->base;
    oct_module_destroy(&module);
}

/* One step in which [min, max] is seen. */
static oct_status observe_range(oct_fake_quant *fq, float min, float max)
{
    oct_quantizers all = {.items = &fq, .count = 1};
    int64_t keys[2];
    oct_fake_quant_observe(fq, true, min, max);
    oct_quantizers_keys(&all, keys);
    return oct_quantizers_update(&all, keys);
}

Test(fake_quant, has_the_codes_of_its_bits_and_its_target)
{
    static const struct {
        int bits;
        const oct_target *target;
        bool is_signed;
        int32_t zero_point, qmax;
        float scale; /* of the range [-1, 3] */
    } cases[] = {
        {8, &oct_target_x86, true, 128, 255, 3.0f / 127.5f},
        {8, &oct_target_x86, false, 0, 255, 3.0f / 255.0f},
        {16, &oct_target_x86, true, 32768, 65535, 3.0f / 32767.5f},
        {16, &oct_target_x86, false, 0, 65535, 3.0f / 65535.0f},
        {8, &oct_target_pow2, true, 128, 255, 0x1p-5f},
        {8, &oct_target_pow2, false, 128, 255, 0x1p-5f},
    };
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        oct_qconfig qconfig = oct_qconfig_default();
        qconfig.bits = cases[i].bits;
        oct_fake_quant *fq = make_fake_quant(&qconfig, cases[i].target, cases[i].is_signed);
        fq->state = OCT_QUANT_CALIBRATE;
        MUST(observe_range(fq, -1.0f, 3.0f));
        oct_qparams q = oct_fake_quant_qparams(fq);
        cr_assert(q.zero_point == cases[i].zero_point && q.qmin == 0 && q.qmax == cases[i].qmax);
        cr_assert_eq(q.scale, cases[i].scale, "case %zu: %a", i, (double)q.scale);
        cr_assert_eq(oct_codes_dtype(q), cases[i].bits == 8 ? OCT_U8 : OCT_U16);
        destroy(fq);
    }
}

Test(fake_quant, with_a_fixed_scale_is_moved_by_calibration_only)
{
    oct_qconfig qconfig = oct_qconfig_default();
    qconfig.fixed_scale = qconfig.current_scales = true;
    oct_fake_quant *fq = make_fake_quant(&qconfig, &oct_target_x86, false);
    fq->state = OCT_QUANT_CALIBRATE;
    MUST(observe_range(fq, 0.0f, 255.0f));
    cr_assert_eq(fq->scale[0], 1.0f);
    fq->state = OCT_QUANT_QAT;
    cr_assert(!oct_fake_quant_updates_first(fq, true));
    MUST(observe_range(fq, 0.0f, 510.0f));
    cr_assert(fq->scale[0] == 1.0f && fq->updates[0] == 1);

    oct_fake_quant_fix(fq, 0.3f);
    fq->state = OCT_QUANT_CALIBRATE;
    MUST(observe_range(fq, 0.0f, 510.0f));
    cr_assert(fq->scale[0] == 0.3f && fq->updates[0] == 1);
    destroy(fq);
    fq = make_fake_quant(&qconfig, &oct_target_pow2, false);
    oct_fake_quant_fix(fq, 0.3f);
    cr_assert_eq(fq->scale[0], 0.5f);
    destroy(fq);
}

Test(fake_quant, observes_in_training_only_whatever_its_state)
{
    oct_qconfig qconfig = oct_qconfig_default();
    oct_fake_quant *fq = make_fake_quant(&qconfig, &oct_target_x86, true);
    const float x[] = {-1.0f, 1.0f};
    for (int state = OCT_QUANT_OFF; state <= OCT_QUANT_FROZEN; state++) {
        bool observes = state == OCT_QUANT_CALIBRATE || state == OCT_QUANT_QAT;
        fq->state = (oct_quant_state)state;
        oct_fake_quant_observe_values(fq, false, x, 2);
        oct_fake_quant_observe(fq, false, -9.0f, 9.0f);
        cr_assert(fq->batch_range[0] == INFINITY && fq->batch_range[1] == -INFINITY);
        oct_fake_quant_observe_values(fq, true, x, 2);
        cr_assert_eq(fq->batch_range[1] == 1.0f, observes);
        fq->batch_range[0] = INFINITY;
        fq->batch_range[1] = -INFINITY;
    }
    destroy(fq);
}

static float half_scale(float min, float max, oct_qparams q)
{
    (void)min;
    return max / (float)q.qmax / 2.0f;
}
static float no_scale(float min, float max, oct_qparams q)
{
    return min + max + (float)q.qmin - 1e30f;
}
static void doubled(int64_t n, const uint8_t *mask, float *grad)
{
    for (int64_t i = 0; i < n; i++)
        grad[i] *= mask[i / 8] >> (i % 8) & 1 ? 2.0f : 1.0f;
}

Test(fake_quant, of_a_users_kind_follows_its_rules)
{
    const oct_fake_quant_kind kind = {.name = "mine", .scale = half_scale, .backward = doubled},
                              broken = {.name = "broken", .scale = no_scale};
    oct_qconfig qconfig = oct_qconfig_default();
    qconfig.fake_quant = &kind;
    oct_fake_quant *fq = make_fake_quant(&qconfig, &oct_target_x86, false);
    fq->state = OCT_QUANT_QAT;
    MUST(observe_range(fq, 0.0f, 510.0f));
    cr_assert_eq(fq->scale[0], 1.0f);
    float grad[] = {1.0f, 1.0f, 1.0f};
    oct_fake_quant_backward(fq, 3, (const uint8_t[]){5}, grad);
    cr_assert(grad[0] == 2.0f && grad[1] == 1.0f && grad[2] == 2.0f);
    fq->qconfig.fake_quant = &oct_fake_quant_affine;
    oct_fake_quant_backward(fq, 3, (const uint8_t[]){5}, grad);
    cr_assert(grad[0] == 2.0f && grad[1] == 0.0f && grad[2] == 2.0f);
    fq->qconfig.fake_quant = &broken;
    cr_assert_eq(observe_range(fq, 0.0f, 1.0f), OCT_NUMERIC);
    cr_assert(strstr(oct_error_message(0), "the fake-quant 'broken' gave the scale -1e+30"), "%s",
              oct_error_message(0));
    destroy(fq);
}

Test(fake_quant, simulates_by_rounding_to_codes_with_a_straight_through_gradient)
{
    enum { N = 1000 };
    static float x[N];
    oct_context *cx = NULL;
    oct_qconfig qconfig = oct_qconfig_default();
    oct_fake_quant *fq = make_fake_quant(&qconfig, &oct_target_x86, true);
    fq->scale[0] = 0.5f;
    fq->state = OCT_QUANT_SIMULATE;
    for (int i = 0; i < N; i++)
        x[i] = (float)(i * 37 % N - N / 2) * 0.17f;
    MUST(oct_context_create(&cx, &oct_collective_one));
    oct_context_begin(cx, oct_leaves_split(1, 1, 0, 1), true);
    oct_tensor *in = oct_tensor_view(cx, OCT_F32, OCT_SHAPE(1, N), x);
    in->needs_grad = true;
    oct_tensor *y = oct_fake_quant_float(cx, fq, true, in);
    float *grad = oct_scratch(cx, N * sizeof(float));
    for (int i = 0; i < N; i++)
        grad[i] = 1.0f;
    oct_add_grad(cx, y, grad);
    MUST(oct_backward(cx, y));
    for (int i = 0; i < N; i++) {
        float code = rintf(x[i] * 2.0f), cut = fminf(fmaxf(code, -128.0f), 127.0f);
        cr_assert_eq(oct_f32(y)[i], cut * 0.5f);
        cr_assert_eq(in->grad[i], code == cut ? 1.0f : 0.0f, "gradient of %g", (double)x[i]);
    }
    cr_assert_eq(fq->batch_range[1], -INFINITY, "nothing is observed");
    fq->state = OCT_QUANT_OFF;
    cr_assert_eq(oct_fake_quant_float(cx, fq, true, in), in);
    cr_assert_eq(oct_fake_quant_float(cx, NULL, true, in), in);
    cr_assert_null(oct_fake_quant_float(cx, fq, true, NULL));
    oct_context_destroy(&cx);
    destroy(fq);
    check_nothing_held();
}

Test(fake_quant, describes_all_that_decides_its_codes)
{
    char text[400];
    oct_qconfig qconfig = oct_qconfig_default();
    oct_fake_quant *fq = make_fake_quant(&qconfig, &oct_target_x86, true);
    fq->base.type->describe(&fq->base, text, sizeof text);
    cr_assert_str_eq(text, "state=off, kind=affine, dtype=u8, codes=[0, 255], scheme=symmetric, "
                           "observer=moving_average, range=not seen, scale=1, zero_point=128");
    fq->state = OCT_QUANT_QAT;
    MUST(observe_range(fq, -12.75f, 1.0f));
    fq->base.type->describe(&fq->base, text, sizeof text);
    cr_assert_str_eq(text, "state=qat, kind=affine, dtype=u8, codes=[0, 255], scheme=symmetric, "
                           "observer=moving_average, range=[-12.75, 1], scale=0.100000001, "
                           "zero_point=128");
    destroy(fq);
}

Test(fake_quant, keeps_a_nan_of_any_leaf_until_the_end_of_the_step)
{
    const float ends[] = {-1.0f, NAN, 2.0f};
    for (int place = 0; place < 3; place++) {
        oct_fake_quant *fq = NULL;
        oct_qconfig qconfig = oct_qconfig_default();
        qconfig.observer = &oct_observer_min_max;
        cr_assert(oct_fake_quant_create(&fq, &qconfig, &oct_target_x86, true) == OCT_OK);
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

static void crossed(oct_range *state, const oct_observation *seen)
{
    *state =
        (oct_range){seen->max * seen->averaging, seen->min * seen->averaging, state->updates + 1};
}
static void no_number(oct_range *state, const oct_observation *seen)
{
    *state = (oct_range){NAN, seen->max, state->updates + 1};
}

Test(fake_quant, names_an_observer_that_gives_no_range)
{
    static const oct_observer wrong[] = {{.name = "crossed", .update = crossed},
                                         {.name = "no_number", .update = no_number}};
    for (size_t i = 0; i < OCT_COUNT(wrong); i++) {
        oct_qconfig qconfig = oct_qconfig_default();
        qconfig.observer = &wrong[i];
        oct_fake_quant *fq = make_fake_quant(&qconfig, &oct_target_x86, true);
        fq->state = OCT_QUANT_QAT;
        cr_assert_eq(observe_range(fq, -1.0f, 1.0f), OCT_NUMERIC);
        cr_assert(
            strstr(oct_error_message(0), "the observer 'crossed' gave the range [0.01, -0.01]") ||
                strstr(oct_error_message(0), "the observer 'no_number' gave the range [nan"),
            "%s", oct_error_message(0));
        destroy(fq);
    }
}

Test(fake_quant, refuses_to_calibrate_beyond_what_its_observer_counts)
{
    oct_qconfig qconfig = oct_qconfig_default();
    qconfig.observer = &oct_observer_mse;
    oct_fake_quant *fq = make_fake_quant(&qconfig, &oct_target_x86, true);
    fq->state = OCT_QUANT_CALIBRATE;
    MUST(observe_range(fq, -0x1p32f, 1.0f));
    cr_assert_eq(observe_range(fq, -1.0f, 0x1.1p32f), OCT_NUMERIC);
    cr_assert_not_null(strstr(oct_error_message(0), "its values reach 4.5634e+09, and the observer "
                                                    "'mse' counts them up to 2^32 only"));
    destroy(fq);
    qconfig.observer = &oct_observer_min_max;
    fq = make_fake_quant(&qconfig, &oct_target_x86, true);
    fq->state = OCT_QUANT_CALIBRATE;
    MUST(observe_range(fq, -1.0f, 0x1p40f));
    destroy(fq);
}
