/* Accumulators to outputs, in every arithmetic, against the definition an element at a time. */
#include "tests/quant/epilogue_oracle.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct variant {
    oct_requantizer by;
    bool wide;
    bool wide_in;
    oct_dtype out;
    int addend; /* 0 none, 8 or 16 bits */
} variant;

static const variant variants[] = {
    {OCT_REQUANT_FLOAT, false, false, OCT_U8, 0},
    {OCT_REQUANT_FLOAT, false, false, OCT_U8, 8},
    {OCT_REQUANT_FLOAT, false, false, OCT_F32, 0},
    {OCT_REQUANT_FLOAT, false, false, OCT_F32, 8},
    {OCT_REQUANT_FLOAT, true, true, OCT_U8, 0},
    {OCT_REQUANT_FLOAT, true, true, OCT_U16, 0},
    {OCT_REQUANT_FLOAT, true, true, OCT_F32, 0},
    {OCT_REQUANT_FLOAT, true, true, OCT_U8, 8},
    {OCT_REQUANT_FLOAT, true, true, OCT_U16, 16},
    {OCT_REQUANT_FLOAT, true, false, OCT_U16, 0},
    {OCT_REQUANT_FLOAT, true, false, OCT_U16, 8},
    {OCT_REQUANT_FLOAT, true, false, OCT_U8, 16},
    {OCT_REQUANT_FLOAT, true, false, OCT_F32, 16},
    {OCT_REQUANT_SHIFT, false, false, OCT_U8, 0},
    {OCT_REQUANT_SHIFT, false, false, OCT_U16, 0},
    {OCT_REQUANT_SHIFT, false, true, OCT_U16, 0},
    {OCT_REQUANT_SHIFT, false, false, OCT_F32, 0},
    {OCT_REQUANT_DOUBLE, false, false, OCT_U8, 0},
    {OCT_REQUANT_DOUBLE, false, false, OCT_U16, 0},
    {OCT_REQUANT_DOUBLE, false, false, OCT_F32, 0},
    {OCT_REQUANT_SHIFT_EVEN, false, false, OCT_U8, 0},
    {OCT_REQUANT_SHIFT_EVEN, false, true, OCT_U16, 0},
    {OCT_REQUANT_SHIFT_EVEN, false, false, OCT_F32, 0},
    {OCT_REQUANT_SHIFT_20, false, false, OCT_U8, 0},
    {OCT_REQUANT_SHIFT_20, false, false, OCT_F32, 0},
    {OCT_REQUANT_Q15, false, false, OCT_U8, 0},
    {OCT_REQUANT_Q15, false, true, OCT_U16, 0},
    {OCT_REQUANT_Q15, false, true, OCT_U8, 0},
    {OCT_REQUANT_Q15, false, false, OCT_U16, 0},
    {OCT_REQUANT_Q15, false, false, OCT_F32, 0},
};

/* Sums near the ends of codes, and any that occur. */
static int64_t roll_acc(dice *d, bool wide)
{
    const int64_t small = roll_between(d, -300, 300);
    if (roll_between(d, 0, 2) == 0) return small;
    const int64_t any = (int32_t)roll(d) >> roll_between(d, 2, 20);
    if (!wide) return any;
    return roll(d) & 1 ? any * 64 + small : any;
}

static void check_variant(const oct_kernel *kernel, dice *d, const variant *v, int64_t m, int64_t n)
{
    const int64_t count = m * n, bytes = count * 8 + 64;
    int32_t *bias32 = room(n, 4);
    int64_t *bias = room(n, 8);
    oct_fixed *fixed = room(n, sizeof *fixed);
    float *multiplier = room(n, 4), range[2] = {INFINITY, -INFINITY};
    void *acc = room(count, 8), *y = room(bytes, 1), *bare = room(bytes, 1);
    uint8_t *addend = room(count, 2), *mask = room(count / 8 + 64, 1);
    oct_epilogue f =
        roll_epilogue(d, v->by, v->wide, v->wide_in, v->out, n, bias32, bias, multiplier, fixed);
    if (v->addend) {
        roll_bytes(d, addend, count * v->addend / 8);
        f.addend = (oct_qcodes){.q = roll_qparams(d, v->addend == 16), .data = addend};
        f.addend_multiplier = fabsf(roll_scaled(d, OCT_REQUANT_FLOAT, 3));
    }
    for (int64_t i = 0; i < count; i++) {
        const int64_t sum = roll_acc(d, v->wide_in);
        if (v->wide_in)
            ((int64_t *)acc)[i] = sum;
        else
            ((int32_t *)acc)[i] = (int32_t)sum;
    }
    memset(y, 0xa5, (size_t)bytes);
    memset(mask, 0xa5, (size_t)count / 8 + 64);
    oct_epilogue_rows(kernel, &f, &(oct_acc_rows){m, n, acc, y, mask, range});
    char what[96];
    snprintf(what, sizeof what, "%s, arithmetic %d, %lldx%lld", kernel->name, (int)v->by,
             (long long)m, (long long)n);
    check_epilogue(what, &f, count, n, acc, y, mask, range);
    cr_assert_eq(mask[(count + 7) / 8], 0xa5);
    cr_assert_eq(((uint8_t *)y)[count * (int64_t)oct_dtype_bytes(f.out)], 0xa5);

    /* Leaving out mask or range changes nothing else; a part is a part of the whole. */
    const size_t size = (size_t)count * oct_dtype_bytes(f.out);
    oct_epilogue_rows(kernel, &f, &(oct_acc_rows){m, n, acc, bare, NULL, NULL});
    cr_assert_arr_eq(bare, y, size);
    if (m > 8) {
        const int64_t first = 8 * n, width = f.acc == OCT_S64 ? 8 : 4;
        const oct_epilogue part = oct_epilogue_at(&f, first);
        const size_t at = (size_t)first * oct_dtype_bytes(f.out);
        memset(bare, 0, size);
        oct_epilogue_rows(
            kernel, &part,
            &(oct_acc_rows){m - 8, n, (char *)acc + first * width, (char *)bare + at, NULL, NULL});
        cr_assert_arr_eq((char *)bare + at, (char *)y + at, size - at);
    }
    oct_free(&bias32);
    oct_free(&bias);
    oct_free(&fixed);
    oct_free(&multiplier);
    oct_free(&acc);
    oct_free(&y);
    oct_free(&bare);
    oct_free(&addend);
    oct_free(&mask);
}

Test(epilogue, follows_the_definition_in_every_arithmetic, .timeout = 60)
{
    for (size_t i = 0; i < OCT_COUNT(all_kernels); i++) {
        if (!runs_here(all_kernels[i])) continue;
        dice d = {.seed = 71};
        for (size_t j = 0; j < OCT_COUNT(variants); j++) {
            for (int round = 0; round < 60; round++)
                check_variant(all_kernels[i], &d, &variants[j], roll_between(&d, 1, 30),
                              roll_between(&d, 1, 70));
            check_variant(all_kernels[i], &d, &variants[j], 3, 1100);
            check_variant(all_kernels[i], &d, &variants[j], 700, 1);
            check_variant(all_kernels[i], &d, &variants[j], 0, 5);
        }
    }
}

Test(epilogue, has_a_definition_of_every_rounding)
{
    bool seen[OCT_REQUANTIZERS] = {false};
    for (size_t j = 0; j < OCT_COUNT(variants); j++)
        seen[variants[j].by] = true;
    for (int r = 0; r < OCT_REQUANTIZERS; r++)
        cr_assert(seen[r],
                  "rounding %d has no case above; its definition goes to epilogue_oracle.h", r);
}

static void epilogue_one(oct_requantizer by, oct_dtype out, int64_t acc, float multiplier, void *y)
{
    const int64_t bias = 0;
    const oct_fixed fixed = oct_fixed_of(by, (double)multiplier);
    const oct_epilogue f = {.requantizer = by,
                            .wide = true,
                            .acc = OCT_S64,
                            .out = out,
                            .q = {.multiplier = &multiplier,
                                  .lo = -32768,
                                  .hi = 32767,
                                  .zero_point = 32768,
                                  .six = INFINITY},
                            .bias = &bias,
                            .fixed = &fixed};
    oct_epilogue_rows(&oct_kernel_ref, &f, &(oct_acc_rows){1, 1, &acc, y, NULL, NULL});
}

Test(epilogue, shifts_halves_up_and_wide_rounds_them_to_even)
{
    static const struct {
        int64_t acc;
        int shifted, even;
    } cases[] = {{1, 1, 0},    {3, 2, 2},    {5, 3, 2}, {-1, 0, 0},
                 {-3, -1, -2}, {-5, -2, -2}, {4, 2, 2}};
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        uint16_t code;
        epilogue_one(OCT_REQUANT_SHIFT, OCT_U16, cases[i].acc, 0.5f, &code);
        cr_assert_eq(code, 32768 + cases[i].shifted, "%lld", (long long)cases[i].acc);
        epilogue_one(OCT_REQUANT_FLOAT, OCT_U16, cases[i].acc, 0.5f, &code);
        cr_assert_eq(code, 32768 + cases[i].even, "%lld", (long long)cases[i].acc);
    }
}

/* The largest sums with the largest shifts: nothing overflows, codes saturate or vanish. */
Test(epilogue, shifts_any_sum_by_any_power_of_two)
{
    const int64_t most = (INT64_C(1) << 47) - 1;
    for (int k = -140; k <= 127; k++) {
        for (int sign = -1; sign <= 1; sign += 2) {
            uint16_t code;
            const double exact = ldexp((double)(sign * most), k);
            epilogue_one(OCT_REQUANT_SHIFT, OCT_U16, sign * most, ldexpf(1.0f, k), &code);
            const double expected = fmin(fmax(floor(exact + 0.5), -32768), 32767) + 32768;
            cr_assert_eq((double)code, expected, "2^%d", k);
            epilogue_one(OCT_REQUANT_SHIFT, OCT_U16, sign, ldexpf(1.0f, k), &code);
            const double one =
                fmin(fmax(floor(ldexp((double)sign, k) + 0.5), -32768), 32767) + 32768;
            cr_assert_eq((double)code, one, "2^%d", k);
        }
    }
}

/* What each multiplier becomes: the carry into the next exponent, the least that is not 0, what is beyond all codes. */
Test(epilogue, fixed_multipliers_have_31_bits)
{
    static const struct {
        double real;
        oct_fixed fixed;
    } cases[] = {{0.5, {1 << 30, 0}},
                 {1.0, {1 << 30, 1}},
                 {0.75, {3 << 29, 0}},
                 {-0.75, {-(3 << 29), 0}},
                 {1 - 0x1p-33, {1 << 30, 1}},
                 {1 - 0x1p-31, {INT32_MAX, 0}},
                 {1 - 0x1p-32, {1 << 30, 1}},
                 {0x1p-32, {1 << 30, -31}},
                 {0x1.fffffffffp-33, {1 << 30, -31}},
                 {0x1.8p-33, {0, 0}},
                 {0, {0, 0}},
                 {NAN, {0, 0}},
                 {INFINITY, {0, 0}},
                 {0x1p100, {1 << 30, 31}}};
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        const oct_fixed f = oct_fixed_of(OCT_REQUANT_DOUBLE, cases[i].real);
        cr_assert(f.multiplier == cases[i].fixed.multiplier && f.shift == cases[i].fixed.shift,
                  "%a: %d, %d", cases[i].real, f.multiplier, f.shift);
    }
    const oct_fixed none = oct_fixed_of(OCT_REQUANT_FLOAT, 0.5);
    cr_assert(none.multiplier == 0 && none.shift == 0);
}

static int64_t multiplied_twice(int64_t sum, oct_fixed by)
{
    oct_rounding_double.each(1, &sum, by, false);
    return sum;
}

/* The first rounding makes a half of what is less, the second one rounds it away from 0. */
Test(epilogue, rounds_twice)
{
    const oct_fixed half = {1 << 30, 0}, quarter = {1 << 30, -1}, most = {INT32_MAX, -31},
                    left = {1 << 30, 20};
    static const int64_t sums[] = {-7, -6, -5, -3, -2, -1, 0, 1, 2, 3, 5, 6, 7};
    static const int halves[] = {-3, -3, -2, -1, -1, 0, 0, 1, 1, 2, 3, 3, 4};
    static const int quarters[] = {-2, -2, -1, -1, -1, 0, 0, 1, 1, 1, 2, 2, 2};
    for (size_t i = 0; i < OCT_COUNT(sums); i++) {
        cr_assert_eq(multiplied_twice(sums[i], half), halves[i], "%d", (int)sums[i]);
        cr_assert_eq(multiplied_twice(sums[i], quarter), quarters[i], "%d", (int)sums[i]);
    }
    cr_assert_eq(multiplied_twice(INT32_MAX, most), 1);
    cr_assert_eq(multiplied_twice(-INT32_MAX, most), -1);
    cr_assert_eq(multiplied_twice(INT32_MAX, left), 1 << 30);
    cr_assert_eq(multiplied_twice(-INT32_MAX, left), -(1 << 30) + 1);
}

Test(epilogue, gives_a_float_zero_without_sign_and_keeps_nan)
{
    int32_t bias = -5, acc = 5;
    float multiplier = -0.25f, y;
    const oct_epilogue f = {.acc = OCT_S32,
                            .out = OCT_F32,
                            .q = {.bias = &bias, .multiplier = &multiplier, .six = INFINITY}};
    oct_epilogue_rows(&oct_kernel_ref, &f, &(oct_acc_rows){1, 1, &acc, &y, NULL, NULL});
    cr_assert(y == 0.0f && !signbit(y));
    multiplier = NAN;
    oct_epilogue_rows(&oct_kernel_ref, &f, &(oct_acc_rows){1, 1, &acc, &y, NULL, NULL});
    cr_assert(isnan(y));
}

Test(epilogue, shows_multipliers_that_are_not_finite_in_the_range)
{
    int32_t bias[2] = {0}, acc[2] = {1, 1};
    uint8_t s[2] = {1, 1}, y[2];
    float multiplier[2] = {1.0f, 1.0f}, range[2] = {INFINITY, -INFINITY};
    oct_epilogue f = {.acc = OCT_S32,
                      .out = OCT_U8,
                      .q = {.bias = bias, .multiplier = multiplier, .hi = 255, .six = INFINITY},
                      .addend = {.q = {.qmax = 255}, .data = s},
                      .addend_multiplier = INFINITY};
    oct_epilogue_rows(&oct_kernel_ref, &f, &(oct_acc_rows){1, 2, acc, y, NULL, range});
    cr_assert(isnan(range[0]) && isnan(range[1]));
    f.addend_multiplier = 1.0f;
    multiplier[1] = NAN;
    range[0] = INFINITY;
    range[1] = -INFINITY;
    oct_epilogue_rows(&oct_kernel_ref, &f, &(oct_acc_rows){1, 2, acc, y, NULL, range});
    cr_assert(isnan(range[0]) && isnan(range[1]));
}

/* Each of two addends alone would be clipped: nothing is rounded before the sum is complete. */
Test(epilogue, adds_before_anything_is_rounded)
{
    const int32_t bias[3] = {0}, acc[3] = {1000, 2, 3};
    const float multiplier[3] = {1.0f, 0.25f, 0.25f};
    const uint8_t s[3] = {28, 129, 128};
    uint8_t y[3], mask;
    const oct_epilogue f = {
        .acc = OCT_S32,
        .out = OCT_U8,
        .q = {.bias = bias, .multiplier = multiplier, .hi = 255, .relu = true, .six = INFINITY},
        .addend = {.q = {.zero_point = 128, .qmax = 255}, .data = s},
        .addend_multiplier = 8.5f};
    oct_epilogue_rows(&oct_kernel_ref, &f, &(oct_acc_rows){1, 3, acc, y, &mask, NULL});
    cr_assert(y[0] == 150 && y[1] == 9 && y[2] == 1, "%d %d %d", y[0], y[1], y[2]);
    cr_assert_eq(mask, 7);
}
