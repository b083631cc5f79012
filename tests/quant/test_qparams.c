/* Scales and codes against PyTorch's own answers (tests/golden/make_quant_golden.py), bit for bit.
 * The one deviation: weights use the absmax of the step, so PyTorch's weight observer saw one batch. */
#include "quant/rounding/qparams.h"

#include "tests/golden/quant_golden.h"
#include "tests/support/float_bits.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

Test(qparams, of_a_range_are_those_of_pytorch)
{
    for (size_t i = 0; i < OCT_COUNT(golden_qparams_cases); i++) {
        const golden_qparams *g = &golden_qparams_cases[i];
        oct_qparams q =
            oct_qparams_of_range(as_float(g->min), as_float(g->max),
                                 g->symmetric ? OCT_SYMMETRIC : OCT_AFFINE, g->qmin, g->qmax);
        cr_assert_eq(as_bits(q.scale), g->scale, "case %zu [%g, %g]: scale %a, PyTorch %a", i,
                     (double)as_float(g->min), (double)as_float(g->max), (double)q.scale,
                     (double)as_float(g->scale));
        cr_assert_eq(q.zero_point, g->zero_point,
                     "case %zu [%g, %g] %d..%d: zero point %d, PyTorch %d", i,
                     (double)as_float(g->min), (double)as_float(g->max), g->qmin, g->qmax,
                     q.zero_point, g->zero_point);
        cr_assert(q.qmin == g->qmin && q.qmax == g->qmax);
    }
}

Test(qparams, of_a_range_never_observed_are_those_of_an_empty_range_with_scale_one)
{
    oct_qparams affine = oct_qparams_of_range(INFINITY, -INFINITY, OCT_AFFINE, 0, 255);
    cr_assert(affine.scale == 1.0f && affine.zero_point == 0);
    oct_qparams symmetric = oct_qparams_of_range(INFINITY, -INFINITY, OCT_SYMMETRIC, 0, 255);
    cr_assert(symmetric.scale == 1.0f && symmetric.zero_point == 128);
    oct_qparams is_signed = oct_qparams_of_range(INFINITY, -INFINITY, OCT_SYMMETRIC, -128, 127);
    cr_assert(is_signed.scale == 1.0f && is_signed.zero_point == 0);
}

Test(qparams, of_broken_ranges_stay_inside_the_codes)
{
    const float ends[] = {NAN, INFINITY, -INFINITY, 1.0f};
    for (size_t a = 0; a < OCT_COUNT(ends); a++)
        for (size_t b = 0; b < OCT_COUNT(ends); b++) {
            oct_qparams q = oct_qparams_of_range(ends[a], ends[b], OCT_AFFINE, 0, 255);
            cr_assert(q.zero_point >= 0 && q.zero_point <= 255);
        }
}

Test(weights, have_scales_and_codes_of_pytorchs_per_channel_observer)
{
    for (int c = 0; c < GOLDEN_CHANNELS; c++) {
        float w[GOLDEN_TAPS];
        int8_t codes[GOLDEN_TAPS];
        memcpy(w, golden_weight + c * GOLDEN_TAPS, sizeof w);
        float scale = oct_weight_scale(w, GOLDEN_TAPS);
        cr_assert_eq(as_bits(scale), golden_weight_scale[c], "channel %d", c);
        oct_weight_codes(w, GOLDEN_TAPS, scale, codes);
        for (int i = 0; i < GOLDEN_TAPS; i++) {
            cr_assert(codes[i] >= -127);
            cr_assert_eq((float)codes[i] * scale, as_float(golden_weight_fake[c * GOLDEN_TAPS + i]),
                         "channel %d, weight %d", c, i);
        }
    }
}

Test(weights, that_are_not_numbers_show_in_the_scale)
{
    const float w[] = {1.0f, NAN, 3.0f};
    int8_t codes[3];
    cr_assert(isnan(oct_weight_scale(w, 3)));
    cr_assert_eq(oct_weight_scale(NULL, 0), 0x1p-23f);
    oct_weight_codes(w, 3, 1.0f, codes);
    cr_assert(codes[0] == 1 && codes[1] == -127 && codes[2] == 3);
}

Test(qparams, of_16_bits_have_256_times_finer_scales)
{
    oct_qparams affine = oct_qparams_of_range(0.0f, 65535.0f, OCT_AFFINE, 0, 65535);
    cr_assert(affine.scale == 1.0f && affine.zero_point == 0);
    oct_qparams symmetric = oct_qparams_of_range(-32767.5f, 3.0f, OCT_SYMMETRIC, 0, 65535);
    cr_assert(symmetric.scale == 1.0f && symmetric.zero_point == 32768);
}

Test(qparams, round_up_to_powers_of_two)
{
    static const float cases[][2] = {
        {1.0f, 1.0f},         {1.0000001f, 2.0f},   {0.75f, 1.0f},          {0.5f, 0.5f},
        {3.0f, 4.0f},         {0x1p-23f, 0x1p-23f}, {0x1.8p-23f, 0x1p-22f}, {0x1p-140f, 0x1p-140f},
        {0x1p126f, 0x1p126f}, {INFINITY, INFINITY}};
    for (size_t i = 0; i < OCT_COUNT(cases); i++)
        cr_assert_eq(oct_pow2_ceil(cases[i][0]), cases[i][1], "%a gave %a", (double)cases[i][0],
                     (double)oct_pow2_ceil(cases[i][0]));
    cr_assert(isnan(oct_pow2_ceil(NAN)));
}
