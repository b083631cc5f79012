/* The fake-quant `asymmetric`: scale and zero point are PyTorch's per-tensor affine ones, and what that is worth for
 * functions whose values hardly go below 0 (tests/bench/RESULTS.md). */
#include "core/base/rng.h"
#include "core/op/ops.h"
#include "quant/module/qconfig.h"

#include "tests/golden/quant_golden.h"
#include "tests/support/float_bits.h"

#include <criterion/criterion.h>
#include <criterion/logging.h>
#include <math.h>

Test(asymmetric, is_the_affine_quantization_of_pytorch)
{
    int seen = 0;
    for (size_t i = 0; i < OCT_COUNT(golden_qparams_cases); i++) {
        const golden_qparams *g = &golden_qparams_cases[i];
        if (g->symmetric) continue;
        const float min = as_float(g->min), max = as_float(g->max);
        const oct_qparams plain = {.zero_point = 128, .qmin = g->qmin, .qmax = g->qmax};
        const float scale = oct_fake_quant_asymmetric.scale(min, max, plain);
        const int32_t z = oct_fake_quant_asymmetric.zero_point(min, max, scale, plain);
        cr_assert_eq(as_bits(scale), g->scale, "case %zu", i);
        cr_assert_eq(z, g->zero_point, "case %zu: %d, PyTorch %d", i, z, g->zero_point);
        seen++;
    }
    cr_assert_gt(seen, 10);
}

/* Pairs of normal values, by Box and Muller. */
static void draw_normal(int64_t n, double deviation, float *x)
{
    for (int64_t i = 0; i < n; i += 2) {
        uint32_t bits[4];
        oct_philox(13, OCT_STREAM_TEST, (uint64_t)i, 0, bits);
        const double r = sqrt(-2 * log((bits[0] + 1.0) / 4294967297.0));
        const double angle = 6.283185307179586 * (bits[1] / 4294967296.0);
        x[i] = (float)(deviation * r * cos(angle));
        x[i + 1] = (float)(deviation * r * sin(angle));
    }
}

/* Signal to quantization noise of values in dB, with the scale and zero point of their own range. */
static double sqnr(const oct_fake_quant_kind *kind, int64_t n, const float *y, float *rounded)
{
    float min = y[0], max = y[0];
    double signal = 0, noise = 0;
    for (int64_t i = 0; i < n; i++) {
        min = fminf(min, y[i]);
        max = fmaxf(max, y[i]);
    }
    oct_qparams q = {.zero_point = 128, .qmin = 0, .qmax = 255};
    q.scale = kind->scale(min, max, q);
    if (kind->zero_point) q.zero_point = kind->zero_point(min, max, q.scale, q);
    oct_fake_quantize(y, n, q, rounded, NULL);
    for (int64_t i = 0; i < n; i++) {
        signal += (double)y[i] * (double)y[i];
        noise += ((double)y[i] - (double)rounded[i]) * ((double)y[i] - (double)rounded[i]);
    }
    return 10 * log10(signal / noise);
}

Test(asymmetric, saves_nearly_a_bit_where_values_hardly_go_below_zero)
{
    enum { N = 1 << 16 };
    static float x[N], y[N], rounded[N];
    static const oct_elementwise *const functions[] = {
        &oct_elementwise_silu, &oct_elementwise_hard_swish, &oct_elementwise_gelu};
    for (size_t i = 0; i < OCT_COUNT(functions); i++)
        for (int deviation = 1; deviation <= 4; deviation *= 2) {
            draw_normal(N, deviation, x);
            for (int k = 0; k < N; k++)
                y[k] = (float)functions[i]->value((double)x[k], NULL);
            const double middle = sqnr(&oct_fake_quant_affine, N, y, rounded);
            const double moved = sqnr(&oct_fake_quant_asymmetric, N, y, rounded);
            cr_log_info("%s of N(0, %d^2): affine %.2f dB, asymmetric %.2f dB, %.2f bits\n",
                        functions[i]->name, deviation, middle, moved, (moved - middle) / 6.0206);
            cr_assert(moved - middle > 4.5 && moved - middle < 7);
        }
}
