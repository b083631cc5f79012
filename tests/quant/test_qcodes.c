/* The integer layers without weights against definitions written here element by element, for codes of
 * 8 and 16 bits in every mixture. */
#include "quant/kernel/qcodes.h"
#include "quant/program/step.h"

#include "tests/quant/every_kernel.h"
#include "tests/quant/quant_random.h"
#include "tests/quant/shapes.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

/* Codes in memory of their own, exactly as many as there are. */
typedef struct codes {
    oct_qparams q;
    int64_t n;
    void *data;
} codes;

static bool is_wide(oct_qparams q)
{
    return q.qmax > 255;
}

static codes new_codes(oct_qparams q, int64_t n)
{
    return (codes){.q = q, .n = n, .data = room(n, is_wide(q) ? 2 : 1)};
}

static int32_t code_at(const codes *x, int64_t i)
{
    return is_wide(x->q) ? ((const uint16_t *)x->data)[i] : ((const uint8_t *)x->data)[i];
}

static int32_t logical_at(const codes *x, int64_t i)
{
    return code_at(x, i) - x->q.zero_point;
}

static void set_code(codes *x, int64_t i, int64_t code)
{
    if (is_wide(x->q))
        ((uint16_t *)x->data)[i] = (uint16_t)code;
    else
        ((uint8_t *)x->data)[i] = (uint8_t)code;
}

static oct_qcodes view(const codes *x)
{
    return (oct_qcodes){.q = x->q, .data = x->data};
}

/* The ends and the zero point well represented. */
static codes roll_codes(dice *d, oct_qparams q, int64_t n)
{
    codes x = new_codes(q, n);
    for (int64_t i = 0; i < n; i++)
        switch (roll_between(d, 0, 7)) {
        case 0:
            set_code(&x, i, q.qmin);
            break;
        case 1:
            set_code(&x, i, q.qmax);
            break;
        case 2:
            set_code(&x, i, q.zero_point);
            break;
        default:
            set_code(&x, i, roll_between(d, q.qmin, q.qmax));
        }
    return x;
}

static oct_qparams qparams(float scale, int bits, bool centred)
{
    return (oct_qparams){.scale = scale,
                         .zero_point = centred ? 1 << (bits - 1) : 0,
                         .qmin = 0,
                         .qmax = (1 << bits) - 1};
}

/* power: the scale is a power of two. */
static oct_qparams roll_qparams(dice *d, int bits, bool power)
{
    const float fraction = power ? 1.0f : 1.0f + oct_uniform(roll(d));
    const int exponent = (int)roll_between(d, -6, -2) - (bits - 8);
    oct_qparams q = qparams(ldexpf(fraction, exponent), bits, roll(d) & 1);
    if (!power) q.zero_point = roll_zero_point(d, q.qmax);
    return q;
}

static int bits_of(int round, int tensor)
{
    return round >> tensor & 1 ? 16 : 8;
}

static bool bit(const uint8_t *mask, int64_t i)
{
    return mask[i / 8] >> (i % 8) & 1;
}

static int64_t cut(int64_t r, oct_qparams q, bool *pass)
{
    const int64_t lo = q.qmin - q.zero_point, hi = q.qmax - q.zero_point;
    const int64_t clamped = r < lo ? lo : r > hi ? hi : r;
    *pass = clamped == r;
    return clamped;
}

/* x * 2^-k, half up, for any k; beyond 2^30 codes are cut anyway. */
static int64_t shifted(__int128 x, int k)
{
    if (k <= 0) return (int64_t)(x * ((__int128)1 << (k < -30 ? 30 : -k)));
    return k > 100 ? 0 : (int64_t)((x + ((__int128)1 << (k - 1))) >> k);
}

enum { MOST = 1300 };

static void check_add(dice *d, oct_qparams qa, oct_qparams qb, oct_qparams qy, bool relu)
{
    const int64_t n = roll_between(d, 1, MOST);
    codes a = roll_codes(d, qa, n), b = roll_codes(d, qb, n), y = new_codes(qy, n),
          bare = new_codes(qy, n);
    const oct_qadd q = oct_qadd_of(qa, qb, qy, relu);
    uint8_t mask[MOST / 8 + 2];
    float range[2] = {INFINITY, -INFINITY}, low = INFINITY, high = -INFINITY;
    cr_assert(oct_qadd_fits(&q, qa, qb, qy));
    mask[(n + 7) / 8] = 0xa5;
    oct_qadd_forward(n, view(&a), view(&b), &q, OCT_REQUANT_FLOAT,
                     &(oct_qoutput){qy, y.data, mask, range});
    const bool wide = is_wide(qa) || is_wide(qb) || is_wide(qy);
    for (int64_t i = 0; i < n; i++) {
        const __int128 t = (__int128)q.ma * logical_at(&a, i) + (__int128)q.mb * logical_at(&b, i);
        bool pass;
        int64_t r = cut(shifted(t, q.shift), qy, &pass);
        if (relu && r < 0) {
            r = 0;
            pass = false;
        }
        cr_assert_eq(logical_at(&y, i), r);
        cr_assert_eq(bit(mask, i), pass && !(relu && t <= 0));
        const float v = ldexpf((float)(int64_t)t, -q.shift) * qy.scale;
        low = fminf(low, relu ? fmaxf(v, 0.0f) : v);
        high = fmaxf(high, relu ? fmaxf(v, 0.0f) : v);
        /* Against the real sum: half a step of rounding, and the multipliers' own error. */
        const double real =
            ((double)qa.scale * logical_at(&a, i) + (double)qb.scale * logical_at(&b, i)) /
            (double)qy.scale;
        const double ideal = fmin(fmax(real, q.lo), q.hi);
        cr_assert_leq(fabs((double)r - ideal), 0.502 + fabs(real) * (wide ? 1e-9 : 1e-5),
                      "real %g, code %lld", real, (long long)r);
    }
    cr_assert_eq(mask[(n + 7) / 8], 0xa5);
    cr_assert(range[0] == low && range[1] == high);
    oct_qadd_forward(n, view(&a), view(&b), &q, OCT_REQUANT_FLOAT,
                     &(oct_qoutput){qy, bare.data, NULL, NULL});
    for (int64_t i = 0; i < n; i++)
        cr_assert_eq(code_at(&bare, i), code_at(&y, i));
    oct_free(&a.data);
    oct_free(&b.data);
    oct_free(&y.data);
    oct_free(&bare.data);
}

Test(qadd, equals_the_integer_definition_and_the_real_sum)
{
    dice d = {.seed = 31};
    for (int round = 0; round < 400; round++) {
        const bool power = round >> 3 & 1;
        const oct_qparams a = roll_qparams(&d, bits_of(round, 0), power),
                          b = roll_qparams(&d, bits_of(round, 1), power),
                          y = roll_qparams(&d, bits_of(round, 2), power);
        check_add(&d, a, b, y, y.zero_point == 0 || (roll(&d) & 1));
    }
}

/* What a target with shifts asks for: no multiplier is rounded. */
Test(qadd, of_scales_that_are_powers_of_two_is_exact)
{
    dice d = {.seed = 32};
    for (int round = 0; round < 200; round++) {
        const oct_qparams a = roll_qparams(&d, bits_of(round, 0), true),
                          b = roll_qparams(&d, bits_of(round, 1), true),
                          y = roll_qparams(&d, bits_of(round, 2), true);
        const oct_qadd q = oct_qadd_of(a, b, y, false);
        cr_assert(ldexp((double)q.ma, -q.shift) == (double)a.scale / (double)y.scale);
        cr_assert(ldexp((double)q.mb, -q.shift) == (double)b.scale / (double)y.scale);
    }
}

Test(qadd, has_multipliers_that_cannot_overflow)
{
    static const float scales[] = {0x1p-23f,   1e-5f, 0.01f, 0.5f, 1.0f,
                                   1.9999999f, 77.0f, 1e6f,  1e30f};
    enum { SCALES = sizeof scales / sizeof scales[0] };
    for (int at = 0; at < SCALES * SCALES * SCALES * 2; at++) {
        const bool wide = at & 1;
        const oct_qparams a = qparams(scales[at / 2 % SCALES], wide ? 16 : 8, false),
                          b = qparams(scales[at / 2 / SCALES % SCALES], 8, true),
                          y = qparams(scales[at / 2 / SCALES / SCALES], 8, true);
        const oct_qadd q = oct_qadd_of(a, b, y, false);
        const int bits = wide ? 36 : 20, most_shift = wide ? 60 : 30;
        const int64_t most = q.ma > q.mb ? q.ma : q.mb;
        cr_assert(oct_qadd_fits(&q, a, b, y) && q.shift >= 1 && q.shift <= most_shift);
        cr_assert(q.ma >= 0 && q.mb >= 0 && most <= INT64_C(1) << (bits + 1));
        if (q.shift > 1 && q.shift < most_shift)
            cr_assert(most >= INT64_C(1) << (bits - 1) && most <= INT64_C(1) << bits);
        const __int128 t =
            (__int128)q.ma * a.qmax + (__int128)q.mb * 255 + ((__int128)1 << (q.shift - 1));
        cr_assert(t <= (wide ? INT64_MAX : INT32_MAX));
        cr_assert(q.za == 0 && q.zb == 128 && q.lo == -128 && q.hi == 127 && q.zero_point == 128);
    }
    const oct_qadd relu = oct_qadd_of((oct_qparams){1, 0, 0, 255}, (oct_qparams){1, 0, 0, 255},
                                      (oct_qparams){1, 0, 0, 127}, true);
    cr_assert(relu.lo == 0 && relu.hi == 127 && relu.relu && relu.ma == relu.mb);
}

/* Codes end at those of the bounds, gradients pass from one bound to the other, and the range is that of what is left. */
Test(qadd, is_cut_at_any_two_bounds)
{
    const oct_qparams one = {1.0f, 128, 0, 255}, half = {0.5f, 100, 0, 255};
    const uint8_t a[] = {128, 127, 129, 131, 120, 140, 130},
                  b[] = {128, 128, 128, 128, 128, 128, 128},
                  expected[] = {100, 98, 102, 105, 97, 105, 104};
    const bool passes[] = {true, true, true, false, false, false, true};
    uint8_t made[7], bare[7], mask[2];
    float range[2] = {INFINITY, -INFINITY};
    oct_qadd q = oct_qadd_of(one, one, half, false);
    oct_qadd_clip(&q, half, -1.7, 2.5);
    cr_assert(q.lo == -3 && q.hi == 5);
    oct_qadd_forward(7, (oct_qcodes){one, a}, (oct_qcodes){one, b}, &q, OCT_REQUANT_FLOAT,
                     &(oct_qoutput){half, made, mask, range});
    oct_qadd_forward(7, (oct_qcodes){one, a}, (oct_qcodes){one, b}, &q, OCT_REQUANT_FLOAT,
                     &(oct_qoutput){half, bare, NULL, NULL});
    cr_assert_arr_eq(made, expected, 7);
    cr_assert_arr_eq(bare, expected, 7);
    for (int i = 0; i < 7; i++)
        cr_assert_eq(bit(mask, i), passes[i], "%d", i);
    cr_assert(fabsf(range[0] + 1.7f) < 1e-5f && fabsf(range[1] - 2.5f) < 1e-5f, "%g %g",
              (double)range[0], (double)range[1]);
    q = oct_qadd_of(one, one, half, false);
    oct_qadd_clip(&q, half, -HUGE_VAL, 1e30);
    cr_assert(q.lo == -100 && q.hi == 155, "beyond the codes and without end nothing is cut");
    oct_qadd_clip(&q, half, 1e30, HUGE_VAL);
    cr_assert(q.lo == 155 && q.hi == 155);
}

Test(qadd, rounds_halves_up)
{
    const oct_qparams one = {1.0f, 128, 0, 255}, two = {2.0f, 128, 0, 255};
    const oct_qadd q = oct_qadd_of(one, one, two, false);
    const uint8_t a[] = {129, 127, 131, 125}, b[] = {128, 128, 128, 128},
                  expected[] = {129, 128, 130, 127};
    uint8_t made[4];
    oct_qadd_forward(4, (oct_qcodes){one, a}, (oct_qcodes){one, b}, &q, OCT_REQUANT_FLOAT,
                     &(oct_qoutput){two, made, NULL, NULL});
    cr_assert_arr_eq(made, expected, 4);
}

static void check_mul(dice *d, oct_qparams qa, oct_qparams qb, oct_qparams qy, bool shift)
{
    const int64_t n = roll_between(d, 1, MOST);
    codes a = roll_codes(d, qa, n), b = roll_codes(d, qb, n), y = new_codes(qy, n);
    const float factor = oct_qmul_factor(qa, qb, qy);
    const bool wide = is_wide(qa) || is_wide(qb) || is_wide(qy);
    uint8_t mask[MOST / 8 + 2];
    float range[2] = {INFINITY, -INFINITY};
    double low = INFINITY, high = -INFINITY;
    cr_assert(oct_qmul_fits(factor, shift ? OCT_REQUANT_SHIFT : OCT_REQUANT_FLOAT));
    mask[(n + 7) / 8] = 0xa5;
    oct_qmul_forward(n, view(&a), view(&b),
                     &(oct_qmul){factor, shift ? OCT_REQUANT_SHIFT : OCT_REQUANT_FLOAT, false},
                     &(oct_qoutput){qy, y.data, mask, range});
    for (int64_t i = 0; i < n; i++) {
        const int64_t p = (int64_t)logical_at(&a, i) * logical_at(&b, i);
        const double r = shift  ? (double)shifted(p, -ilogbf(factor))
                         : wide ? nearbyint((double)p * (double)factor)
                                : (double)nearbyintf((float)p * factor);
        bool pass;
        const int64_t want = cut((int64_t)fmin(fmax(r, -1e9), 1e9), qy, &pass);
        cr_assert_eq(logical_at(&y, i), want, "%lld * %g: %d, wanted %lld", (long long)p,
                     (double)factor, logical_at(&y, i), (long long)want);
        cr_assert_eq(bit(mask, i), pass);
        const double real = (double)p * ((double)qa.scale * (double)qb.scale);
        low = fmin(low, real);
        high = fmax(high, real);
    }
    cr_assert_eq(mask[(n + 7) / 8], 0xa5);
    cr_assert(range[0] == (float)low && range[1] == (float)high);
    oct_free(&a.data);
    oct_free(&b.data);
    oct_free(&y.data);
}

Test(qmul, equals_its_definition)
{
    dice d = {.seed = 33};
    for (int round = 0; round < 600; round++) {
        const bool shift = round >> 3 & 1;
        oct_qparams a = roll_qparams(&d, bits_of(round, 0), shift),
                    b = roll_qparams(&d, bits_of(round, 1), shift),
                    y = roll_qparams(&d, bits_of(round, 2), shift);
        if (round % 5 == 0) y.scale *= 0x1p20f; /* everything becomes 0 */
        if (round % 5 == 1) y.scale *= 0x1p-40f;
        check_mul(&d, a, b, y, shift);
    }
}

Test(qmul, keeps_its_factor_within_bounds)
{
    const oct_qparams big = qparams(1e30f, 8, true), small = qparams(0x1p-23f, 8, true);
    cr_assert(oct_qmul_factor(big, big, small) == 0x1p60f);
    cr_assert(oct_qmul_factor(small, small, big) == 0x1p-60f);
    cr_assert(!oct_qmul_fits(0.0f, false) && !oct_qmul_fits(NAN, false) &&
              !oct_qmul_fits(-1.0f, false) && !oct_qmul_fits(INFINITY, false));
    cr_assert(oct_qmul_fits(0.3f, false) && !oct_qmul_fits(0.3f, true) && oct_qmul_fits(4, true));
    dice d = {.seed = 34};
    check_mul(&d, big, big, small, false);
    check_mul(&d, small, small, big, false);
    check_mul(&d, qparams(0x1p60f, 16, true), qparams(0x1p60f, 16, true), qparams(1, 16, true),
              true);
    check_mul(&d, qparams(0x1p-60f, 16, true), qparams(0x1p-60f, 16, true), qparams(1, 16, true),
              true);
}

Test(qmul, rounds_ties_to_even_and_by_shifts_half_up)
{
    const oct_qparams one = qparams(1, 8, true), two = qparams(2, 8, true);
    const uint8_t a[] = {129, 131, 127, 125}, b[] = {129, 129, 129, 129};
    const uint8_t even[] = {128, 130, 128, 126}, up[] = {129, 130, 128, 127};
    uint8_t made[4];
    oct_qmul_forward(4, (oct_qcodes){one, a}, (oct_qcodes){one, b},
                     &(oct_qmul){0.5f, OCT_REQUANT_FLOAT, false},
                     &(oct_qoutput){two, made, NULL, NULL});
    cr_assert_arr_eq(made, even, 4);
    oct_qmul_forward(4, (oct_qcodes){one, a}, (oct_qcodes){one, b},
                     &(oct_qmul){0.5f, OCT_REQUANT_SHIFT, false},
                     &(oct_qoutput){two, made, NULL, NULL});
    cr_assert_arr_eq(made, up, 4);
}

Test(qlut, looks_every_code_up)
{
    dice d = {.seed = 35};
    uint16_t *table = room(65536, sizeof *table);
    for (int round = 0; round < 32; round++) {
        const oct_qparams qx = roll_qparams(&d, bits_of(round, 0), false),
                          qy = roll_qparams(&d, bits_of(round, 1), false);
        const int64_t n = roll_between(&d, 0, MOST);
        codes x = roll_codes(&d, qx, n), y = new_codes(qy, n);
        cr_assert_eq(oct_qtable_size(qx), is_wide(qx) ? 65536 : 256);
        for (int64_t i = 0; i < oct_qtable_size(qx); i++)
            table[i] = (uint16_t)roll_between(&d, 0, qy.qmax);
        const int64_t size = oct_qtable_size(qx);
        oct_value values[2] = {{.dtype = oct_codes_dtype(qx), .h = 1, .w = 1, .c = n, .q = qx},
                               {.dtype = oct_codes_dtype(qy), .h = 1, .w = 1, .c = n, .q = qy}};
        const oct_step step = {.num_inputs = 1, .output = 1, .lut = {.size = size, .table = table}};
        const oct_program program = {.num_values = 2, .values = values};
        const void *const input[] = {x.data};
        oct_step_lut.run(&(oct_step_run){
            .program = &program, .step = &step, .samples = 1, .input = input, .output = y.data});
        for (int64_t i = 0; i < n; i++)
            cr_assert_eq(code_at(&y, i), table[code_at(&x, i)]);
        oct_free(&x.data);
        oct_free(&y.data);
    }
    oct_free(&table);
}

/* The definition row by row, in wide integers; and how far the codes are from real softmax. */
static void check_softmax(dice *d, oct_qparams qx, oct_qparams qy, int64_t rows, int64_t k)
{
    codes x = roll_codes(d, qx, rows * k), y = new_codes(qy, rows * k);
    int32_t *e = room(oct_qtable_size(qx), sizeof *e);
    uint8_t *mask = room(rows * k / 8 + 2, 1);
    oct_qsoftmax_exponential(qx, e);
    cr_assert(oct_qsoftmax_fits(qy));
    mask[(rows * k + 7) / 8] = 0xa5;
    oct_qsoftmax_forward(rows, k, view(&x), e, &(oct_qoutput){qy, y.data, mask, NULL});
    const int64_t one = (int64_t)(1 / qy.scale);
    for (int64_t row = 0; row < rows; row++) {
        int32_t largest = 0;
        for (int64_t i = 0; i < k; i++)
            if (code_at(&x, row * k + i) > largest) largest = code_at(&x, row * k + i);
        __int128 sum = 0;
        double real_sum = 0;
        for (int64_t i = 0; i < k; i++) {
            const int32_t distance = largest - code_at(&x, row * k + i);
            sum += (int64_t)nearbyint(ldexp(exp(-(double)distance * (double)qx.scale), 30));
            real_sum += exp(-(double)distance * (double)qx.scale);
        }
        for (int64_t i = 0; i < k; i++) {
            const int32_t distance = largest - code_at(&x, row * k + i);
            const double real = exp(-(double)distance * (double)qx.scale);
            const __int128 own = (__int128)nearbyint(ldexp(real, 30));
            /* floor(own * one / sum + 1/2) */
            bool pass;
            const int64_t want = cut((int64_t)((2 * own * one + sum) / (2 * sum)), qy, &pass);
            cr_assert_eq(logical_at(&y, row * k + i), want);
            cr_assert_eq(bit(mask, row * k + i), pass);
            cr_assert_leq(fabs((double)want - real / real_sum * (double)one), pass ? 0.51 : 1.0);
        }
    }
    cr_assert_eq(mask[(rows * k + 7) / 8], 0xa5);
    oct_free(&x.data);
    oct_free(&y.data);
    oct_free(&e);
    oct_free(&mask);
}

Test(qsoftmax, equals_its_definition_and_is_close_to_softmax)
{
    dice d = {.seed = 36};
    for (int round = 0; round < 120; round++) {
        const int out = bits_of(round, 1);
        const bool centred = round >> 2 & 1;
        check_softmax(&d, roll_qparams(&d, bits_of(round, 0), false),
                      qparams(ldexpf(1, centred ? 1 - out : -out), out, centred),
                      roll_between(&d, 1, 9), round % 10 ? roll_between(&d, 1, 40) : 1300);
    }
}

Test(qsoftmax, of_one_value_is_the_largest_code_and_equal_values_share)
{
    const oct_qparams x = qparams(0.1f, 8, true), y = qparams(0x1p-8f, 8, false);
    int32_t e[256];
    oct_qsoftmax_exponential(x, e);
    cr_assert_eq(e[0], OCT_QSOFTMAX_ONE);
    const uint8_t lone[] = {7}, same[] = {9, 9, 9, 9};
    uint8_t made[4], mask;
    oct_qsoftmax_forward(1, 1, (oct_qcodes){x, lone}, e, &(oct_qoutput){y, made, &mask, NULL});
    cr_assert(made[0] == 255 && mask == 0, "1 is beyond the codes of 1/256");
    oct_qsoftmax_forward(1, 4, (oct_qcodes){x, same}, e, &(oct_qoutput){y, made, &mask, NULL});
    cr_assert(made[0] == 64 && made[1] == 64 && made[2] == 64 && made[3] == 64 && mask == 15);
    cr_assert(!oct_qsoftmax_fits(qparams(0.003f, 8, false)) &&
              !oct_qsoftmax_fits(qparams(0x1p-17f, 16, false)) &&
              !oct_qsoftmax_fits(qparams(2, 16, false)));
}

Test(qconcat, copies_or_requantizes_each_input)
{
    dice d = {.seed = 37};
    for (int round = 0; round < 300; round++) {
        const bool shift = round & 1;
        const int n = (int)roll_between(&d, 1, 4);
        const int64_t rows = roll_between(&d, 1, 40);
        const oct_qparams qy = roll_qparams(&d, roll(&d) & 1 ? 16 : 8, shift);
        codes x[4];
        oct_qconcat_input from[4];
        int64_t c[4], width = 0;
        uint8_t *mask[4];
        for (int i = 0; i < n; i++) {
            oct_qparams q = roll_qparams(&d, roll(&d) & 1 ? 16 : 8, shift);
            if (roll_between(&d, 0, 2) == 0) q = qy;
            if (roll_between(&d, 0, 9) == 0) q.scale *= 0x1p-30f;
            if (roll_between(&d, 0, 9) == 0) q.scale *= 0x1p30f;
            c[i] = roll_between(&d, 1, 60);
            x[i] = roll_codes(&d, q, rows * c[i]);
            mask[i] = room(rows * c[i] / 8 + 1, 1);
            from[i] = (oct_qconcat_input){view(&x[i]), c[i], mask[i]};
            width += c[i];
        }
        codes y = new_codes(qy, rows * width);
        oct_qconcat_forward(rows, n, from, shift, qy, y.data);
        int64_t first = 0;
        for (int i = 0; i < n; first += c[i++]) {
            const bool copied = oct_qparams_equal(x[i].q, qy);
            const float factor = (float)((double)x[i].q.scale / (double)qy.scale);
            for (int64_t at = 0; at < rows * c[i]; at++) {
                const int32_t v = logical_at(&x[i], at);
                bool pass = true;
                int64_t want = v;
                if (!copied) {
                    const double r = shift ? (double)shifted(v, -ilogbf(factor))
                                           : (double)nearbyintf((float)v * factor);
                    want = cut((int64_t)fmin(fmax(r, -1e9), 1e9), qy, &pass);
                    cr_assert_eq(bit(mask[i], at), pass);
                }
                const int64_t to = at / c[i] * width + first + at % c[i];
                cr_assert_eq(logical_at(&y, to), want);
            }
        }
        for (int i = 0; i < n; i++) {
            oct_free(&x[i].data);
            oct_free(&mask[i]);
        }
        oct_free(&y.data);
    }
}

Test(qclamp, cuts_logical_codes)
{
    dice d = {.seed = 38};
    for (int round = 0; round < 40; round++) {
        const oct_qparams q = roll_qparams(&d, bits_of(round, 0), false);
        const int64_t n = roll_between(&d, 0, MOST);
        const int32_t hi = (int32_t)roll_between(&d, 0, q.qmax - q.zero_point);
        codes x = roll_codes(&d, q, n), y = new_codes(q, n);
        oct_qclamp_forward(n, view(&x), 0, hi, y.data);
        for (int64_t i = 0; i < n; i++) {
            const int32_t v = logical_at(&x, i);
            cr_assert_eq(logical_at(&y, i), v < 0 ? 0 : v > hi ? hi : v);
        }
        oct_free(&x.data);
        oct_free(&y.data);
    }
}

/* A pool with every side its own, over an input that it fits. */
typedef struct pool {
    oct_pool_geometry g;
    int64_t h, w, c, oh, ow;
} pool;

/* The windows along a side, one after another: the last one that begins inside, and of ceil mode one more
 * unless the last reaches the end. */
static int64_t windows_along(int64_t in, int before, int after, int kernel, int stride, bool ceil)
{
    int64_t out = 1;
    while (out * stride + kernel <= before + in + after)
        out++;
    const bool more = (out - 1) * stride + kernel < before + in + after;
    return ceil && more && out * stride < before + in ? out + 1 : out;
}

static pool roll_pool(dice *d, int most)
{
    pool p = {.c = roll_between(d, 0, 3) == 0 ? roll_between(d, 250, 600) : roll_between(d, 1, 40)};
    oct_pool_geometry *g = &p.g;
    g->kernel_h = (int)roll_between(d, 1, most);
    g->kernel_w = (int)roll_between(d, 1, most);
    g->stride_h = (int)roll_between(d, 1, 3);
    g->stride_w = (int)roll_between(d, 1, 3);
    g->pad_top = (int)roll_between(d, 0, g->kernel_h - 1);
    g->pad_left = (int)roll_between(d, 0, g->kernel_w - 1);
    g->pad_bottom = (int)roll_between(d, 0, g->kernel_h - 1);
    g->pad_right = (int)roll_between(d, 0, g->kernel_w - 1);
    g->ceil = roll(d) & 1;
    g->count_include_pad = roll(d) & 1;
    p.h = roll_between(d, g->kernel_h, 9);
    p.w = roll_between(d, g->kernel_w, 9);
    p.oh = windows_along(p.h, g->pad_top, g->pad_bottom, g->kernel_h, g->stride_h, g->ceil);
    p.ow = windows_along(p.w, g->pad_left, g->pad_right, g->kernel_w, g->stride_w, g->ceil);
    return p;
}

/* What a window over x sees of channel c: its largest code, its sum, and how many positions count. */
typedef struct seen {
    int64_t largest, sum, inside, padded;
} seen;

static seen window_of(const pool *p, const codes *x, int64_t i)
{
    const oct_pool_geometry *g = &p->g;
    const int64_t c = i % p->c, ox = i / p->c % p->ow, oy = i / p->c / p->ow % p->oh;
    const int64_t n = i / p->c / p->ow / p->oh;
    seen all = {0};
    for (int64_t t = 0; t < g->kernel_h * g->kernel_w; t++) {
        const int64_t y = oy * g->stride_h - g->pad_top + t / g->kernel_w;
        const int64_t at = ox * g->stride_w - g->pad_left + t % g->kernel_w;
        all.padded += y < p->h + g->pad_bottom && at < p->w + g->pad_right;
        if (y < 0 || y >= p->h || at < 0 || at >= p->w) continue;
        const int64_t element = ((n * p->h + y) * p->w + at) * p->c + c;
        const int64_t code = code_at(x, element);
        all.inside++;
        all.sum += logical_at(x, element);
        all.largest = code > all.largest ? code : all.largest;
    }
    return all;
}

Test(qmax_pool, equals_its_definition)
{
    dice d = {.seed = 41};
    for (int round = 0; round < 200; round++) {
        const pool p = roll_pool(&d, 4);
        const oct_qparams q = roll_qparams(&d, bits_of(round, 0), false);
        codes x = roll_codes(&d, q, 2 * p.h * p.w * p.c), y = new_codes(q, 2 * p.oh * p.ow * p.c);
        const oct_conv_shape s = oct_pool_shape_of(p.h, p.w, p.c, p.g);
        cr_assert(s.out_h == p.oh && s.out_w == p.ow);
        oct_qmax_pool(2, &s, view(&x), y.data);
        for (int64_t i = 0; i < y.n; i++)
            cr_assert_eq(code_at(&y, i), window_of(&p, &x, i).largest);
        oct_free(&x.data);
        oct_free(&y.data);
    }
}

Test(qavg_pool, equals_its_definition)
{
    dice d = {.seed = 42};
    for (int round = 0; round < 200; round++) {
        const pool p = roll_pool(&d, 8);
        const oct_qparams q = roll_qparams(&d, bits_of(round, 0), false);
        codes x = roll_codes(&d, q, 2 * p.h * p.w * p.c), y = new_codes(q, 2 * p.oh * p.ow * p.c);
        const oct_conv_shape s = oct_pool_shape_of(p.h, p.w, p.c, p.g);
        cr_assert(s.out_h == p.oh && s.out_w == p.ow);
        const oct_qavg how = {.include_pad = p.g.count_include_pad,
                              .half_up = round % 3 == 0 && !is_wide(q)};
        oct_qavg_pool(2, &s, &how, view(&x), y.data);
        for (int64_t i = 0; i < y.n; i++) {
            const seen window = window_of(&p, &x, i);
            const int64_t count = p.g.count_include_pad ? window.padded : window.inside;
            const float v = (float)window.sum * (1.0f / (float)count);
            const double mean = how.half_up  ? floor((double)v + 0.5)
                                : is_wide(q) ? nearbyint((double)window.sum * (1.0 / (double)count))
                                             : (double)nearbyintf(v);
            cr_assert(logical_at(&y, i) == mean);
        }
        oct_free(&x.data);
        oct_free(&y.data);
    }
}

Test(qavg_pool, rounds_ties_to_even)
{
    const oct_qparams q8 = qparams(1, 8, false), q16 = qparams(1, 16, false);
    const uint8_t x[] = {1, 2, 2, 3, 129, 128, 127, 128};
    const uint16_t wide[] = {1, 2, 2, 3, 65535, 65534, 65535, 65535};
    uint8_t y[4];
    uint16_t wide_y[4];
    const oct_conv_shape s = shape_of(1, 2, 1, 1, 1, 2, 1, 0, 1);
    oct_qavg_pool(4, &s, &(oct_qavg){0}, (oct_qcodes){q8, x}, y);
    cr_assert(y[0] == 2 && y[1] == 2 && y[2] == 128 && y[3] == 128);
    oct_qavg_pool(4, &s, &(oct_qavg){0}, (oct_qcodes){q16, wide}, wide_y);
    cr_assert(wide_y[0] == 2 && wide_y[1] == 2 && wide_y[2] == 65534 && wide_y[3] == 65535);
}

/* Bilinear straight from the place of a pixel's centre. */
static int64_t bilinear_at(const codes *x, int64_t plane, int64_t h, int64_t w, int64_t c,
                           int64_t out_h, int64_t out_w, int64_t oy, int64_t ox, int64_t channel)
{
    const double py = fmax(((double)oy + 0.5) * (double)h / (double)out_h - 0.5, 0);
    const double px = fmax(((double)ox + 0.5) * (double)w / (double)out_w - 0.5, 0);
    const int64_t y = (int64_t)py, z = (int64_t)px;
    const int64_t wy = (int64_t)floor((py - (double)y) * 2048 + 0.5),
                  wx = (int64_t)floor((px - (double)z) * 2048 + 0.5);
    int64_t sum = 0;
    for (int i = 0; i < 4; i++) {
        const int64_t iy = y + i / 2 < h ? y + i / 2 : h - 1,
                      ix = z + i % 2 < w ? z + i % 2 : w - 1;
        sum += (i / 2 ? wy : 2048 - wy) * (i % 2 ? wx : 2048 - wx) *
               code_at(x, ((plane * h + iy) * w + ix) * c + channel);
    }
    return (sum + (1 << 21)) >> 22;
}

Test(qinterpolate, equals_its_definition)
{
    dice d = {.seed = 43};
    for (int round = 0; round < 200; round++) {
        const bool bilinear = round >> 1 & 1;
        /* Powers of two on one side at least, so that the places here are exact in double. */
        const int64_t h = roll_between(&d, 1, 9), w = roll_between(&d, 1, 9),
                      c = roll_between(&d, 1, 40);
        const int64_t out_h = bilinear ? 1 << roll_between(&d, 0, 4) : roll_between(&d, 1, 20),
                      out_w = bilinear ? 1 << roll_between(&d, 0, 4) : roll_between(&d, 1, 20);
        const oct_qparams q = roll_qparams(&d, bits_of(round, 0), false);
        codes x = roll_codes(&d, q, 2 * h * w * c), y = new_codes(q, 2 * out_h * out_w * c);
        const oct_conv_shape s = {
            .in_h = h, .in_w = w, .in_c = c, .out_h = out_h, .out_w = out_w, .out_c = c};
        oct_qinterpolate_forward(2, &s, bilinear, view(&x), y.data);
        for (int64_t i = 0; i < y.n; i++) {
            const int64_t ox = i / c % out_w, oy = i / c / out_w % out_h, n = i / c / out_w / out_h;
            const int64_t near = ((n * h + oy * h / out_h) * w + ox * w / out_w) * c + i % c;
            const int64_t want = bilinear ? bilinear_at(&x, n, h, w, c, out_h, out_w, oy, ox, i % c)
                                          : code_at(&x, near);
            cr_assert_eq(code_at(&y, i), want);
        }
        oct_free(&x.data);
        oct_free(&y.data);
    }
}

Test(qinterpolate, keeps_a_flat_plane_flat)
{
    for (int code = 0; code < 65536; code += 4369) {
        const oct_qparams q = qparams(1, 16, true);
        uint16_t x[9], y[49];
        for (int i = 0; i < 9; i++)
            x[i] = (uint16_t)code;
        const oct_conv_shape s = {
            .in_h = 3, .in_w = 3, .in_c = 1, .out_h = 7, .out_w = 7, .out_c = 1};
        oct_qinterpolate_forward(1, &s, true, (oct_qcodes){q, x}, y);
        for (int i = 0; i < 49; i++)
            cr_assert_eq(y[i], code);
    }
}

Test(qcodes, are_loaded_stored_and_ranged)
{
    dice d = {.seed = 44};
    for (int round = 0; round < 40; round++) {
        const oct_qparams q = roll_qparams(&d, bits_of(round, 0), false);
        const int64_t n = roll_between(&d, 1, 500), first = roll_between(&d, 0, n - 1);
        codes x = roll_codes(&d, q, n), y = new_codes(q, n);
        int32_t logical[500];
        float range[2] = {INFINITY, -INFINITY}, low = INFINITY, high = -INFINITY;
        oct_qcodes_load(view(&x), first, n - first, logical);
        oct_qcodes_store(logical, n - first, q, y.data, first);
        oct_qcodes_range(oct_qcodes_from(view(&x), first), n - first, range);
        for (int64_t i = first; i < n; i++) {
            cr_assert_eq(logical[i - first], logical_at(&x, i));
            cr_assert_eq(code_at(&y, i), code_at(&x, i));
            low = fminf(low, (float)logical_at(&x, i) * q.scale);
            high = fmaxf(high, (float)logical_at(&x, i) * q.scale);
        }
        cr_assert(range[0] == low && range[1] == high);
        oct_free(&x.data);
        oct_free(&y.data);
    }
}
