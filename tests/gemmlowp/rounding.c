/* Writes what Octet's kernels make of sums, products and codes for targets that round twice (OCT_REQUANT_DOUBLE), for
 * judge.cc, which computes the same with gemmlowp.
 *
 *     rounding [damage]
 *
 * On stdout: blocks of a head and `count` items of it. damage: a further block has a wrong code. */
#include "quant/kernel/epilogue.h"
#include "quant/kernel/qcodes.h"
#include "tests/gemmlowp/rounding.h"
#include "tests/quant/quant_random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUMS = 1024, LAYERS = 3000, PAIRS = 24, RESCALED = 3000, FUNCTIONS = 3000, CODES = 256 };

static void put(const void *data, size_t bytes)
{
    if (fwrite(data, 1, bytes, stdout) != bytes) exit(1);
}

static float roll_scale(dice *d, int least, int most)
{
    return (0.5f + oct_uniform(roll(d))) * ldexpf(1.0f, (int)roll_between(d, least, most));
}

/* A sum whose product is anywhere, or near the middle of two codes, where the two roundings differ. */
static int32_t roll_sum(dice *d, double ratio, int64_t most)
{
    const int64_t any = roll_between(d, -most, most);
    const double code = (double)roll_between(d, -300, 300) + 0.5 * (double)(roll(d) & 1);
    const double near = nearbyint(code / ratio) + (double)roll_between(d, -2, 2);
    return fabs(near) < (double)most && roll(d) % 4 ? (int32_t)near : (int32_t)any;
}

/* Powers of two, with which both roundings round halves, or any ratio. */
static void roll_scales(dice *d, float scale[3])
{
    const bool power = roll(d) % 4 == 0;
    scale[0] = power ? ldexpf(1.0f, (int)roll_between(d, -12, 0)) : roll_scale(d, -12, 0);
    scale[1] = power ? 1.0f : roll_scale(d, -12, 0);
    const float ratio = ldexpf(power ? 1.0f : 0.5f + oct_uniform(roll(d)),
                               (int)roll_between(d, roll(d) % 8 ? -16 : -34, 3));
    scale[2] = (float)((double)scale[0] * (double)scale[1] / (double)ratio);
}

/* Layers of one channel, whose codes have 16 bits, so that few are cut. */
static void write_layer(dice *d)
{
    rounding_head h = {.kind = ROUNDING_LAYER, .count = SUMS};
    roll_scales(d, h.scale);
    const double ratio = (double)h.scale[0] * (double)h.scale[1] / (double)h.scale[2];
    /* What TFLite shifts to the left must fit into 32 bits there. */
    int exponent;
    (void)frexp(ratio, &exponent);
    const int64_t most = (INT64_C(1) << (31 - (exponent > 0 ? exponent : 0))) - 1;
    const float multiplier = (float)ratio;
    const oct_fixed fixed =
        oct_fixed_of_layer(OCT_REQUANT_DOUBLE, h.scale[0], h.scale[1], h.scale[2], 0);
    int32_t sum[SUMS], acc[SUMS];
    const int64_t bias = roll_between(d, -1000, 1000);
    uint16_t code[SUMS];
    for (int i = 0; i < SUMS; i++) {
        sum[i] = roll_sum(d, ratio, most - 1000);
        acc[i] = (int32_t)(sum[i] - bias);
    }
    const oct_epilogue f = {.requantizer = OCT_REQUANT_DOUBLE,
                            .acc = OCT_S32,
                            .out = OCT_U16,
                            .q = {.multiplier = &multiplier,
                                  .lo = -32768,
                                  .hi = 32767,
                                  .zero_point = 32768,
                                  .six = INFINITY},
                            .bias = &bias,
                            .fixed = &fixed};
    oct_epilogue_rows(oct_kernel_here(), &f, &(oct_acc_rows){SUMS, 1, acc, code, NULL, NULL});
    put(&h, sizeof h);
    put(sum, sizeof sum);
    put(code, sizeof code);
}

static oct_qparams roll_codes(dice *d)
{
    return (oct_qparams){roll_scale(d, -9, -2), (int32_t)roll_between(d, 0, 255), 0, 255};
}

/* All pairs of codes of two tensors. */
static void write_pairs(dice *d, rounding_kind kind)
{
    static uint8_t a[CODES * CODES], b[CODES * CODES], y[CODES * CODES];
    const oct_qparams qa = roll_codes(d), qb = roll_codes(d);
    oct_qparams qy = roll_codes(d);
    if (kind == ROUNDING_MUL) qy.scale = roll_scale(d, -11, -2);
    rounding_head h = {.kind = kind,
                       .count = CODES * CODES,
                       .scale = {qa.scale, qb.scale, qy.scale},
                       .zero_point = {qa.zero_point, qb.zero_point, qy.zero_point}};
    const oct_qoutput out = {qy, y, NULL, NULL};
    for (int i = 0; i < CODES * CODES; i++) {
        a[i] = (uint8_t)(i % CODES);
        b[i] = (uint8_t)(i / CODES);
    }
    if (kind == ROUNDING_MUL) {
        oct_qmul_forward(h.count, (oct_qcodes){qa, a}, (oct_qcodes){qb, b},
                         &(oct_qmul){oct_qmul_factor(qa, qb, qy), OCT_REQUANT_DOUBLE, false}, &out);
    } else {
        oct_qadd add = oct_qadd_of(qa, qb, qy, false);
        if (kind == ROUNDING_SUB) add.mb = -add.mb;
        oct_qadd_forward(h.count, (oct_qcodes){qa, a}, (oct_qcodes){qb, b}, &add,
                         OCT_REQUANT_DOUBLE, &out);
    }
    put(&h, sizeof h);
    put(a, sizeof a);
    put(b, sizeof b);
    put(y, sizeof y);
}

/* Codes that change their scale. */
static void write_rescaled(dice *d)
{
    uint8_t x[CODES], y[CODES];
    const oct_qparams qx = roll_codes(d), qy = roll_codes(d);
    const rounding_head h = {.kind = ROUNDING_RESCALE,
                             .count = CODES,
                             .scale = {qx.scale, 0, qy.scale},
                             .zero_point = {qx.zero_point, 0, qy.zero_point}};
    for (int i = 0; i < CODES; i++)
        x[i] = (uint8_t)i;
    const oct_qconcat_input one = {.x = {qx, x}, .c = 1};
    oct_qconcat_forward(CODES, 1, &one, OCT_REQUANT_DOUBLE, qy, y);
    put(&h, sizeof h);
    put(x, sizeof x);
    put(y, sizeof y);
}

/* A function of codes. */
static void write_function(dice *d, oct_fixed_function f, rounding_kind kind)
{
    uint8_t x[CODES], y[CODES];
    uint16_t table[OCT_FIXED_CODES];
    const oct_qparams qx = {roll_scale(d, roll(d) % 4 ? -9 : -22, roll(d) % 4 ? -2 : 6),
                            (int32_t)roll_between(d, 0, 255), 0, 255};
    const oct_qparams qy = oct_fixed_function_output(f);
    const rounding_head h = {.kind = kind,
                             .count = CODES,
                             .scale = {qx.scale, 0, qy.scale},
                             .zero_point = {qx.zero_point, 0, qy.zero_point}};
    oct_fixed_function_table(f, qx, table);
    for (int i = 0; i < CODES; i++) {
        x[i] = (uint8_t)i;
        y[i] = (uint8_t)table[i];
    }
    put(&h, sizeof h);
    put(x, sizeof x);
    put(y, sizeof y);
}

int main(int argc, char **argv)
{
    dice d = {.seed = 1};
    const bool damage = argc > 1 && strcmp(argv[1], "damage") == 0;
    const rounding_head wrong = {
        .kind = ROUNDING_RESCALE, .count = 1, .scale = {1, 0, 2}, .zero_point = {0, 0, 0}};
    const uint8_t codes[] = {3, 1}; /* three halves are two, away from 0 */
    for (int i = 0; i < LAYERS; i++)
        write_layer(&d);
    for (int i = 0; i < PAIRS; i++) {
        write_pairs(&d, ROUNDING_ADD);
        write_pairs(&d, ROUNDING_SUB);
        write_pairs(&d, ROUNDING_MUL);
    }
    for (int i = 0; i < RESCALED; i++)
        write_rescaled(&d);
    for (int i = 0; i < FUNCTIONS; i++) {
        write_function(&d, OCT_FIXED_LOGISTIC, ROUNDING_LOGISTIC);
        write_function(&d, OCT_FIXED_TANH, ROUNDING_TANH);
    }
    if (damage) {
        put(&wrong, sizeof wrong);
        put(codes, sizeof codes);
    }
    return fflush(stdout) == 0 ? 0 : 1;
}
