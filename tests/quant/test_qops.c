/* The integer layers against direct loops written here, on every instruction set of this machine. */
#include "quant/kernel/qops.h"

#include "tests/quant/every_kernel.h"
#include "tests/quant/quant_random.h"
#include "tests/quant/shapes.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One sum, straight from the definition. */
static int32_t oracle_sum(const oct_conv_shape *s, const uint8_t *x, uint8_t zero_point,
                          const int8_t *w, int64_t oy, int64_t ox, int64_t o)
{
    const int64_t group_c = s->in_c / s->groups, group = o / (s->out_c / s->groups);
    int32_t sum = 0;
    for (int64_t ky = 0; ky < s->kernel_h; ky++)
        for (int64_t kx = 0; kx < s->kernel_w; kx++)
            for (int64_t c = 0; c < group_c; c++) {
                const int64_t y = oy * s->stride - s->padding + ky,
                              at = ox * s->stride - s->padding + kx;
                const bool inside = y >= 0 && y < s->in_h && at >= 0 && at < s->in_w;
                const int32_t code =
                    inside ? x[(y * s->in_w + at) * s->in_c + group * group_c + c] : zero_point;
                sum += code * w[((o * s->kernel_h + ky) * s->kernel_w + kx) * group_c + c];
            }
    return sum;
}

/* accumulate against the definition; forward against accumulate and requantize, bit for bit. x is
 * exactly as large as needed, so that a sanitizer build sees a read beyond it. */
static void check_conv(const oct_kernel *kernel, dice *d, const oct_conv_shape *s, int64_t samples)
{
    const int64_t in = s->in_h * s->in_w * s->in_c, pixels = s->out_h * s->out_w;
    const int64_t out = samples * pixels * s->out_c;
    const int64_t weights = s->out_c * s->kernel_h * s->kernel_w * (s->in_c / s->groups);
    uint8_t *x = malloc((size_t)(samples * in)); /* oct_alloc would leave room behind */
    int8_t *w = room(weights, 1), *packed = room(oct_qconv_packed_bytes(kernel, s), 1);
    void *scratch = room(oct_qconv_scratch_bytes(kernel, s), 1);
    int32_t *acc = room(out, sizeof *acc), *bias = room(s->out_c, sizeof *bias);
    float *multiplier = room(s->out_c, sizeof *multiplier);
    uint8_t *codes = room(out, 1), *expected = room(out, 1);
    uint8_t *mask = room((out + 7) / 8, 1), *expected_mask = room((out + 7) / 8, 1);
    const uint8_t zero_point = roll(d) & 1 ? 128 : 0;
    roll_bytes(d, x, samples * in);
    roll_weights(d, w, weights);
    for (int64_t c = 0; c < s->out_c; c++) {
        bias[c] = (int32_t)roll_between(d, -9999, 9999);
        multiplier[c] = ldexpf((float)roll_between(d, -100, 1000), -18);
    }
    const oct_requant q = {.bias = bias,
                           .multiplier = multiplier,
                           .hi = 255,
                           .relu = roll(d) & 1,
                           .six = roll(d) & 1 ? INFINITY : 200.5f};

    oct_qconv_pack(kernel, s, w, packed);
    memset(acc, 0x5a, (size_t)out * sizeof *acc);
    memset(scratch, 0x5a, (size_t)oct_qconv_scratch_bytes(kernel, s));
    oct_qconv_accumulate(kernel, s, samples, x, zero_point, packed, acc, scratch);
    for (int64_t i = 0; i < out; i++) {
        const int64_t pixel = i / s->out_c % pixels, sample = i / s->out_c / pixels;
        const int32_t sum = oracle_sum(s, x + sample * in, zero_point, w, pixel / s->out_w,
                                       pixel % s->out_w, i % s->out_c);
        cr_assert_eq(acc[i], sum,
                     "%s: %lldx%lldx%lld -> %lld, kernel %dx%d, stride %d, padding %d, groups %d, "
                     "element %lld: %d, not %d",
                     kernel->name, (long long)s->in_h, (long long)s->in_w, (long long)s->in_c,
                     (long long)s->out_c, s->kernel_h, s->kernel_w, s->stride, s->padding,
                     s->groups, (long long)i, acc[i], sum);
    }

    float range[2] = {INFINITY, -INFINITY}, expected_range[2] = {INFINITY, -INFINITY};
    oct_kernel_ref.requantize(samples * pixels, s->out_c, acc, &q, expected, expected_mask,
                              expected_range);
    memset(mask, 0x5a, (size_t)(out + 7) / 8);
    oct_qconv_forward(kernel, s, samples, x, zero_point, packed, &q, codes, mask, range, scratch);
    cr_assert_arr_eq(codes, expected, (size_t)out);
    cr_assert_arr_eq(mask, expected_mask, (size_t)(out + 7) / 8, "%s: mask of %lld channels",
                     kernel->name, (long long)s->out_c);
    cr_assert_arr_eq(range, expected_range, sizeof range);
    memset(codes, 0, (size_t)out);
    oct_qconv_forward(kernel, s, samples, x, zero_point, packed, &q, codes, NULL, NULL, scratch);
    cr_assert_arr_eq(codes, expected, (size_t)out);

    free(x);
    oct_free(&w);
    oct_free(&packed);
    oct_free(&scratch);
    oct_free(&acc);
    oct_free(&bias);
    oct_free(&multiplier);
    oct_free(&codes);
    oct_free(&expected);
    oct_free(&mask);
    oct_free(&expected_mask);
}

static oct_conv_shape roll_shape(dice *d)
{
    const int kernel_h = (int)roll_between(d, 1, 5), kernel_w = (int)roll_between(d, 1, 5);
    const int padding = (int)roll_between(d, 0, 3), stride = (int)roll_between(d, 1, 3);
    const int64_t h = roll_between(d, kernel_h, 12), w = roll_between(d, kernel_w, 12);
    int groups = 1;
    int64_t in_c = roll_between(d, 1, 20), out_c = roll_between(d, 1, 40);
    if (roll_between(d, 0, 2) == 0) {
        groups = (int)roll_between(d, 1, 4);
        in_c = groups * roll_between(d, 1, 9);
        out_c = groups * roll_between(d, 1, 9);
    }
    return shape_of(h, w, in_c, out_c, kernel_h, kernel_w, stride, padding, groups);
}

Test(qconv, equals_direct_convolution_on_random_shapes)
{
    for (size_t i = 0; i < OCT_COUNT(all_kernels); i++) {
        if (!runs_here(all_kernels[i])) continue;
        dice d = {.seed = 21};
        for (int round = 0; round < 200; round++) {
            const oct_conv_shape s = roll_shape(&d);
            check_conv(all_kernels[i], &d, &s, roll_between(&d, 1, 4));
        }
    }
}

Test(qconv, equals_direct_convolution_for_depthwise_filters)
{
    static const int64_t channels[] = {2, 3, 7, 8, 15, 16, 17, 24, 32, 33, 48, 63, 64, 65, 96, 130};
    for (size_t i = 0; i < OCT_COUNT(all_kernels); i++) {
        if (!runs_here(all_kernels[i])) continue;
        dice d = {.seed = 22};
        for (size_t j = 0; j < OCT_COUNT(channels); j++) {
            for (int kernel = 1; kernel <= 5; kernel += 2) {
                const int stride = (int)roll_between(&d, 1, 2),
                          padding = roll(&d) & 1 ? kernel / 2 : 0;
                const oct_conv_shape s = shape_of(7, 6, channels[j], channels[j], kernel, kernel,
                                                  stride, padding, (int)channels[j]);
                check_conv(all_kernels[i], &d, &s, 2);
            }
        }
        /* Several filters a channel go the general way. */
        const oct_conv_shape twice = shape_of(5, 5, 6, 12, 3, 3, 1, 1, 6);
        check_conv(all_kernels[i], &d, &twice, 2);
    }
}

Test(qconv, equals_direct_convolution_for_layers_of_networks)
{
    const oct_conv_shape shapes[] = {
        shape_of(28, 28, 1, 8, 5, 5, 1, 2, 1),   /* first layer of a small network */
        shape_of(32, 32, 3, 16, 3, 3, 1, 1, 1),  /* of an RGB one */
        shape_of(1, 1, 400, 120, 1, 1, 1, 0, 1), /* linear */
        shape_of(1, 1, 84, 10, 1, 1, 1, 0, 1),
        shape_of(1, 1, 37, 3, 1, 1, 1, 0, 1),  /* linear with an odd width */
        shape_of(8, 8, 32, 24, 1, 1, 1, 0, 1), /* pointwise */
        shape_of(8, 8, 16, 32, 1, 1, 2, 0, 1), /* a shortcut */
        shape_of(4, 4, 64, 65, 3, 3, 1, 1, 1), /* a deep, small plane */
        shape_of(2, 2, 16, 16, 3, 3, 1, 1, 1),
        shape_of(3, 300, 4, 5, 3, 3, 1, 1, 1), /* lines longer than a block */
        shape_of(4, 4, 8, 7, 4, 4, 1, 0, 1),   /* the window is the plane */
        shape_of(1, 1, 4, 9, 3, 3, 1, 1, 1),   /* mostly border */
        shape_of(5, 5, 4, 300, 2, 2, 2, 0, 1),
    };
    for (size_t i = 0; i < OCT_COUNT(all_kernels); i++) {
        if (!runs_here(all_kernels[i])) continue;
        dice d = {.seed = 23};
        for (size_t j = 0; j < OCT_COUNT(shapes); j++) {
            check_conv(all_kernels[i], &d, &shapes[j], 3);
            check_conv(all_kernels[i], &d, &shapes[j], shapes[j].in_h == 1 ? 300 : 1);
        }
        check_conv(all_kernels[i], &d, &shapes[6], 0);
    }
}

Test(requant_float, is_the_scaled_sum)
{
    const int32_t acc[] = {10, -20, 30, 1 << 25, 5, 6}, bias[] = {1, 2, 3};
    const float multiplier[] = {0.5f, -0.25f, 0.1f};
    float y[6];
    oct_requant_float(2, 3, acc, bias, multiplier, y);
    cr_assert(y[0] == 5.5f && y[1] == 4.5f && y[2] == 33 * 0.1f);
    cr_assert(y[3] == (float)((1 << 25) + 1) * 0.5f && y[4] == -1.75f && y[5] == 9 * 0.1f);
}

/* Convert makes multipliers positive by negating sums, which a zero does not survive otherwise. */
Test(requant_float, gives_a_zero_without_sign)
{
    const int32_t acc[] = {5}, bias[] = {-5};
    const float multiplier[] = {-0.25f};
    float y[1];
    oct_requant_float(1, 1, acc, bias, multiplier, y);
    cr_assert(y[0] == 0.0f && !signbit(y[0]));
}

static oct_qparams roll_qparams(dice *d)
{
    return (oct_qparams){.scale = ldexpf(1.0f + oct_uniform(roll(d)), (int)roll_between(d, -6, -2)),
                         .zero_point = roll(d) & 1 ? 128 : 0,
                         .qmin = 0,
                         .qmax = 255};
}

static void check_add(dice *d, oct_qparams a, oct_qparams b, oct_qparams y, bool relu)
{
    enum { MOST = 1300 };
    uint8_t xa[MOST], xb[MOST], codes[MOST], bare[MOST], mask[MOST / 8 + 2];
    const int64_t n = roll_between(d, 0, MOST);
    const oct_qadd q = oct_qadd_of(a, b, y, relu);
    float range[2] = {INFINITY, -INFINITY}, low = INFINITY, high = -INFINITY;
    roll_bytes(d, xa, n);
    roll_bytes(d, xb, n);
    mask[(n + 7) / 8] = 0xa5;
    oct_qadd_forward(n, xa, xb, &q, codes, mask, range);
    for (int64_t i = 0; i < n; i++) {
        const int64_t t = (int64_t)q.ma * (xa[i] - q.za) + (int64_t)q.mb * (xb[i] - q.zb);
        const int64_t r =
            (int64_t)floor((double)(t + (INT64_C(1) << (q.shift - 1))) / ldexp(1.0, q.shift));
        const int64_t cut = r < q.lo ? q.lo : r > q.hi ? q.hi : r;
        const float v = (float)t * ldexpf(1.0f, -q.shift);
        cr_assert_eq(codes[i], (uint8_t)(cut + q.zero_point));
        cr_assert_eq(mask[i / 8] >> (i % 8) & 1, r == cut && !(relu && t <= 0));
        low = fminf(low, relu ? fmaxf(v, 0.0f) : v);
        high = fmaxf(high, relu ? fmaxf(v, 0.0f) : v);
        /* Against the real sum: half a step of rounding, and the multipliers' own 2^-20 of 255 steps. */
        const double real =
            ((double)a.scale * (xa[i] - a.zero_point) + (double)b.scale * (xb[i] - b.zero_point)) /
            (double)y.scale;
        const double ideal = fmin(fmax(real, q.lo), q.hi);
        cr_assert_leq(fabs((double)cut - ideal), 0.502 + fabs(real) * 1e-5, "real %g, code %lld",
                      real, (long long)cut);
    }
    cr_assert_eq(mask[(n + 7) / 8], 0xa5);
    cr_assert(range[0] == low && range[1] == high);
    oct_qadd_forward(n, xa, xb, &q, bare, NULL, NULL);
    cr_assert_arr_eq(bare, codes, (size_t)n);
}

Test(qadd, equals_the_integer_definition_and_the_real_sum)
{
    dice d = {.seed = 31};
    for (int round = 0; round < 300; round++) {
        const oct_qparams a = roll_qparams(&d), b = roll_qparams(&d), y = roll_qparams(&d);
        check_add(&d, a, b, y, y.zero_point == 0 || (roll(&d) & 1));
    }
}

Test(qadd, has_multipliers_of_20_bits_that_cannot_overflow)
{
    static const float scales[] = {0x1p-23f,   1e-5f, 0.01f, 0.5f, 1.0f,
                                   1.9999999f, 77.0f, 1e6f,  1e30f};
    for (size_t i = 0; i < OCT_COUNT(scales); i++)
        for (size_t j = 0; j < OCT_COUNT(scales); j++)
            for (size_t k = 0; k < OCT_COUNT(scales); k++) {
                const oct_qadd q = oct_qadd_of((oct_qparams){scales[i], 0, 0, 255},
                                               (oct_qparams){scales[j], 128, 0, 255},
                                               (oct_qparams){scales[k], 128, 0, 255}, false);
                const int32_t most = q.ma > q.mb ? q.ma : q.mb;
                cr_assert(q.shift >= 1 && q.shift <= 30 && q.ma >= 0 && q.mb >= 0 &&
                          most <= 1 << 21);
                if (q.shift > 1 && q.shift < 30) cr_assert(most >= 1 << 19 && most <= 1 << 20);
                const int64_t t =
                    (int64_t)q.ma * 255 + (int64_t)q.mb * 255 + (INT64_C(1) << (q.shift - 1));
                cr_assert_leq(t, INT32_MAX);
                cr_assert(q.za == 0 && q.zb == 128 && q.lo == -128 && q.hi == 127 &&
                          q.zero_point == 128);
            }
    const oct_qadd relu = oct_qadd_of((oct_qparams){1, 0, 0, 255}, (oct_qparams){1, 0, 0, 255},
                                      (oct_qparams){1, 0, 0, 127}, true);
    cr_assert(relu.lo == 0 && relu.hi == 127 && relu.relu && relu.ma == relu.mb);
}

Test(qadd, rounds_halves_up)
{
    const oct_qparams one = {1.0f, 128, 0, 255}, two = {2.0f, 128, 0, 255};
    const oct_qadd q = oct_qadd_of(one, one, two, false);
    const uint8_t a[] = {129, 127, 131, 125}, b[] = {128, 128, 128, 128},
                  expected[] = {129, 128, 130, 127};
    uint8_t codes[4];
    oct_qadd_forward(4, a, b, &q, codes, NULL, NULL);
    cr_assert_arr_eq(codes, expected, 4);
}

Test(qmax_pool, equals_its_definition)
{
    dice d = {.seed = 41};
    for (int round = 0; round < 200; round++) {
        const int kernel = (int)roll_between(&d, 1, 4), stride = (int)roll_between(&d, 1, 3);
        const int padding = (int)roll_between(&d, 0, kernel / 2);
        const int64_t h = roll_between(&d, kernel, 9), w = roll_between(&d, kernel, 9),
                      c = roll_between(&d, 1, 40);
        const int64_t oh = (h + 2 * padding - kernel) / stride + 1,
                      ow = (w + 2 * padding - kernel) / stride + 1;
        uint8_t *x = room(2 * h * w * c, 1), *y = room(2 * oh * ow * c, 1);
        roll_bytes(&d, x, 2 * h * w * c);
        oct_qmax_pool(2, h, w, c, kernel, stride, padding, x, y);
        for (int64_t i = 0; i < 2 * oh * ow * c; i++) {
            const int64_t ox = i / c % ow, oy = i / c / ow % oh, n = i / c / ow / oh;
            uint8_t largest = 0;
            for (int64_t iy = oy * stride - padding; iy < oy * stride - padding + kernel; iy++)
                for (int64_t ix = ox * stride - padding; ix < ox * stride - padding + kernel; ix++)
                    if (iy >= 0 && iy < h && ix >= 0 && ix < w &&
                        x[((n * h + iy) * w + ix) * c + i % c] > largest)
                        largest = x[((n * h + iy) * w + ix) * c + i % c];
            cr_assert_eq(y[i], largest);
        }
        oct_free(&x);
        oct_free(&y);
    }
}

Test(qavg_pool, equals_its_definition)
{
    dice d = {.seed = 42};
    for (int round = 0; round < 200; round++) {
        const int kernel_h = (int)roll_between(&d, 1, 8), kernel_w = (int)roll_between(&d, 1, 8),
                  stride = (int)roll_between(&d, 1, 3);
        const int64_t h = roll_between(&d, kernel_h, 9), w = roll_between(&d, kernel_w, 9);
        const int64_t c = round % 8 == 0 ? roll_between(&d, 250, 600) : roll_between(&d, 1, 40);
        const int64_t oh = (h - kernel_h) / stride + 1, ow = (w - kernel_w) / stride + 1;
        const oct_qparams q = {
            .scale = 0.1f, .zero_point = roll(&d) & 1 ? 128 : 0, .qmin = 0, .qmax = 255};
        uint8_t *x = room(2 * h * w * c, 1), *y = room(2 * oh * ow * c, 1);
        roll_bytes(&d, x, 2 * h * w * c);
        oct_qavg_pool(2, h, w, c, kernel_h, kernel_w, stride, q, x, y);
        for (int64_t i = 0; i < 2 * oh * ow * c; i++) {
            const int64_t ox = i / c % ow, oy = i / c / ow % oh, n = i / c / ow / oh;
            int32_t sum = 0;
            for (int64_t iy = oy * stride; iy < oy * stride + kernel_h; iy++)
                for (int64_t ix = ox * stride; ix < ox * stride + kernel_w; ix++)
                    sum += x[((n * h + iy) * w + ix) * c + i % c];
            const int32_t count = kernel_h * kernel_w;
            const float mean = (float)(sum - count * q.zero_point) * (1.0f / (float)count);
            cr_assert_eq(y[i], (uint8_t)((int32_t)nearbyintf(mean) + q.zero_point));
        }
        oct_free(&x);
        oct_free(&y);
    }
}

Test(qavg_pool, rounds_ties_to_even)
{
    const uint8_t x[] = {1, 2, 2, 3, 129, 128, 127, 128};
    uint8_t y[4];
    oct_qavg_pool(4, 1, 2, 1, 1, 2, 1, (oct_qparams){1.0f, 0, 0, 255}, x, y);
    cr_assert(y[0] == 2 && y[1] == 2 && y[2] == 128 && y[3] == 128);
}

Test(qconv_bound, is_reached_and_never_passed)
{
    dice d = {.seed = 51};
    for (int round = 0; round < 200; round++) {
        const oct_conv_shape s = shape_of(3, 3, 4, 2, 3, 3, 1, 0, 1);
        int8_t w[2 * 36];
        uint8_t x[36];
        roll_weights(&d, w, 72);
        const int32_t lo = (int32_t)roll_between(&d, 0, 100),
                      hi = (int32_t)roll_between(&d, 100, 255);
        const int32_t bias = (int32_t)roll_between(&d, -900000, 900000);
        const int64_t bound = oct_qconv_bound(&s, w, 1, bias, lo, hi);
        int64_t reached = 0;
        for (int sign = -1; sign <= 1; sign += 2) {
            int64_t sum = bias;
            for (int i = 0; i < 36; i++)
                sum += (int64_t)w[36 + i] * (w[36 + i] * sign > 0 ? hi : lo);
            reached = llabs(sum) > reached ? llabs(sum) : reached;
        }
        cr_assert_geq(bound, reached);
        for (int trial = 0; trial < 20; trial++) {
            int64_t sum = 0;
            for (int i = 0; i < 36; i++) {
                x[i] = (uint8_t)roll_between(&d, lo, hi);
                sum += (int64_t)x[i] * w[36 + i];
                cr_assert_leq(llabs(sum), bound, "partial sums count");
            }
            cr_assert_leq(llabs(sum + bias), bound);
        }
        if (lo == 0) cr_assert_leq(bound, reached + llabs((int64_t)bias));
    }
    const oct_conv_shape deep = shape_of(1, 1, 66312, 1, 1, 1, 1, 0, 1);
    int8_t *w = room(66312, 1);
    memset(w, 127, 66312);
    cr_assert_gt(oct_qconv_bound(&deep, w, 0, 0, 0, 255), INT32_MAX);
    cr_assert_eq(oct_qconv_bound(&deep, w, 0, -5, 0, 1), 66312 * 127);
    oct_free(&w);
}
