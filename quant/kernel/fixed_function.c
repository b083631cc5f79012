/* See the header. A number Qn has n whole bits, its sign and as many binary places as 32 bits have room for: 1 is
 * 2^(31 - n), or next to it in Q0, which has none. Products are doubled and rounded, halves up. */
#include "quant/kernel/qcodes.h"

#include "core/base/int_math.h"
#include "quant/rounding/rounding.h"

#include <math.h>

enum { INPUT_BITS = 4, LAST = INT32_MAX };

static int32_t multiply_high(int32_t a, int32_t b)
{
    return (int32_t)(((int64_t)a * b + (INT64_C(1) << 30)) >> 31);
}

/* Multiplies by 2^bits, cut to 32 bits. */
static int32_t shift_left(int32_t x, int bits)
{
    const int64_t wide = (int64_t)x * (INT64_C(1) << bits);
    return (int32_t)oct_min_i64(oct_max_i64(wide, INT32_MIN), INT32_MAX);
}

/* Divides by 2^bits, halves away from 0. */
static int32_t shift_right(int32_t x, int bits)
{
    const int32_t mask = (1 << bits) - 1;
    return (x >> bits) + ((x & mask) > (mask >> 1) + (x < 0));
}

/* exp(x) of x from -1/4 to 0, both in units of 2^-31: Taylor's polynomial around -1/8 of degree 4. */
static int32_t exp_of_quarter(int32_t a)
{
    const int32_t middle = 1895147668, third = 715827883; /* exp(-1/8), 1/3 */
    const int32_t x = a + (1 << 28), x2 = multiply_high(x, x), x3 = multiply_high(x2, x),
                  x4 = multiply_high(x2, x2);
    const int32_t rest = shift_right(multiply_high(shift_right(x4, 2) + x3, third) + x2, 1);
    return middle + multiply_high(middle, x + rest);
}

/* exp(x), in units of 2^-31, of x <= 0 with `bits` whole bits, in units of 2^(bits - 31): x = part - whole, with part
 * in [-1/4, 0) and whole a sum of powers of two; exp(part) is multiplied by exp(-2^(k - 2)) for each power k. */
static int32_t exp_of_negative(int32_t a, int bits)
{
    static const int32_t powers[] = {/* exp(-1/4), exp(-1/2), exp(-1) to exp(-16) */
                                     1672461947, 1302514674, 790015084, 290630308,
                                     39332535,   720401,     242};
    const int32_t quarter = 1 << (29 - bits);
    const int32_t part = (a & (quarter - 1)) - quarter, whole = part - a;
    int32_t y = exp_of_quarter(shift_left(part, bits));
    for (int k = 0; k < bits + 2; k++)
        if (whole >> (29 - bits + k) & 1) y = multiply_high(y, powers[k]);
    return a == 0 ? LAST : y;
}

/* 2 / (1 + a), in units of 2^-29, of a from 0 to 1 in units of 2^-31: the reciprocal of
 * (1 + a) / 2 by Newton's iteration; products of two such numbers are in units of 2^-27, hence the shifts. */
static int32_t two_over_one_plus(int32_t a)
{
    const int32_t half = (int32_t)(((int64_t)a + LAST + 1) / 2);
    int32_t x = 1515870810 + multiply_high(half, -1010580540); /* 48/17 - 32/17 * half */
    for (int i = 0; i < 3; i++)
        x += shift_left(multiply_high(x, (1 << 29) - multiply_high(half, x)), 2);
    return x;
}

/* In Q0 of x in Q4. */
static int32_t logistic(int32_t x)
{
    const int32_t positive = shift_left(two_over_one_plus(exp_of_negative(x > 0 ? -x : x, 4)), 1);
    if (x == 0) return 1 << 30;
    return x > 0 ? positive : LAST - positive;
}

static int32_t hyperbolic_tangent(int32_t x)
{
    /* (1 - e) / (1 + e) = 2 / (1 + e) - 1 of e = exp(-2|x|): x in units of 2^-27 is 2x in units of 2^-26 */
    const int32_t size =
        shift_left(two_over_one_plus(exp_of_negative(x > 0 ? -x : x, 5)) - (1 << 29), 2);
    if (x == 0) return 0;
    return x > 0 ? size : -size;
}

static const struct description {
    int32_t (*value)(int32_t x);
    int bits; /* of a code of the output */
    oct_qparams y;
} descriptions[OCT_FIXED_FUNCTIONS] = {
    [OCT_FIXED_LOGISTIC] = {logistic, 23, {0x1p-8f, 0, 0, 255}},
    [OCT_FIXED_TANH] = {hyperbolic_tangent, 24, {0x1p-7f, 128, 0, 255}},
};

oct_qparams oct_fixed_function_output(oct_fixed_function f)
{
    return descriptions[f].y;
}

bool oct_fixed_function_takes(oct_qparams x)
{
    return x.qmin == 0 && x.qmax == OCT_FIXED_CODES - 1 && x.scale >= 0x1p-28f && isfinite(x.scale);
}

void oct_fixed_function_table(oct_fixed_function f, oct_qparams x, uint16_t table[OCT_FIXED_CODES])
{
    const struct description *d = &descriptions[f];
    const oct_rounding_row *rounding = &oct_rounding_double;
    const oct_fixed scale = rounding->constants_of(ldexp((double)x.scale, 31 - INPUT_BITS));
    int64_t value[OCT_FIXED_CODES];
    for (int32_t i = 0; i < OCT_FIXED_CODES; i++)
        value[i] = i - x.zero_point;
    rounding->each(OCT_FIXED_CODES, value, scale, false);
    /* Values from here on have more whole bits than the input format: the output is then its least or largest code. */
    const double end = floor(ldexp((1 << INPUT_BITS) - 1, 31 - INPUT_BITS - scale.shift));
    for (int32_t i = 0; i < OCT_FIXED_CODES; i++) {
        const int32_t code = i - x.zero_point;
        int32_t y = (double)code <= -end ? d->y.qmin : d->y.qmax;
        if (fabs((double)code) < end)
            y = shift_right(d->value((int32_t)value[i]), d->bits) + d->y.zero_point;
        table[i] = (uint16_t)oct_min_i64(oct_max_i64(y, d->y.qmin), d->y.qmax);
    }
}
