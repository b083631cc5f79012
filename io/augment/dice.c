/* Normals are Box and Muller's, gammas those of Marsaglia and Tsang ("A simple method for generating gamma
 * variables", 2000), for alpha below 1 by their boost: gamma(a) = gamma(a + 1) * u^(1/a). The ratio of two
 * of these can be far below what a double holds, so they stay logarithms until the end. */
#include "io/augment/dice.h"

#include "core/base/rng.h"

#include <math.h>

/* Arguments are reduced to where the series of Taylor, or of artanh, ends soon; floor, frexp and ldexp are
 * exact in every C library. */
/* ln 2 and pi/2 in two parts: products of the first with small integers are exact. */
static const double LN2_HIGH = 0x1.62e42fefap-1, LN2_LOW = 0x1.cf79abc9e3b3ap-40;
static const double HALF_PI_HIGH = 0x1.921fb544p+0, HALF_PI_LOW = 0x1.0b4611a626331p-34;

/* x = k ln 2 + r; the series of e^r. Results below x = -746 and above x = 710 leave the doubles. */
double oct_real_exp(double x)
{
    enum { TERMS = 14 };
    if (x < -746) return 0;
    if (x > 710) return HUGE_VAL;
    double k = floor(x * 1.4426950408889634 + 0.5);
    double r = (x - k * LN2_HIGH) - k * LN2_LOW, sum = 1;
    for (int i = TERMS; i > 0; i--)
        sum = 1 + sum * r / i;
    return ldexp(sum, (int)k);
}

/* x = m 2^exponent; ln m = 2 artanh(s), s = (m - 1) / (m + 1). */
double oct_real_log(double x)
{
    enum { TERMS = 11 };
    int exponent;
    double m = frexp(x, &exponent);
    if (m < 0.7071067811865476) {
        m *= 2;
        exponent--;
    }
    double s = (m - 1) / (m + 1), square = s * s, sum = 0;
    for (int i = TERMS; i > 0; i--)
        sum = 1.0 / (2 * i + 1) + sum * square;
    return exponent * LN2_HIGH + (exponent * LN2_LOW + 2 * s * (1 + square * sum));
}

/* x = k pi/2 + r; the quadrant k says which of the two series each is, and its sign. */
void oct_real_sin_cos(double x, double *sine, double *cosine)
{
    enum { TERMS = 9 };
    double k = floor(x * 0.6366197723675814 + 0.5);
    double r = (x - k * HALF_PI_HIGH) - k * HALF_PI_LOW, square = r * r, s = 1, c = 1;
    for (int i = TERMS; i > 0; i--) {
        s = 1 - s * square / (2 * i * (2 * i + 1));
        c = 1 - c * square / ((2 * i - 1) * (2 * i));
    }
    s *= r;
    switch ((long)k & 3) {
    case 0:
        *sine = s, *cosine = c;
        break;
    case 1:
        *sine = c, *cosine = -s;
        break;
    case 2:
        *sine = -s, *cosine = -c;
        break;
    default:
        *sine = -c, *cosine = s;
    }
}

oct_dice oct_dice_of(const oct_draw *draw, int place)
{
    enum { PLACE_BITS = 26 };
    return (oct_dice){.draw = *draw, .sub = (uint32_t)(place + 1) << PLACE_BITS};
}

uint32_t oct_dice_word(oct_dice *dice)
{
    if (dice->left == 0) {
        oct_philox(dice->draw.seed, OCT_STREAM_AUGMENT, dice->draw.index, dice->sub, dice->word);
        dice->sub++;
        dice->left = 4;
    }
    return dice->word[4 - dice->left--];
}

/* Returns a real in [0, 1). */
static double uniform(oct_dice *dice)
{
    return (double)oct_dice_word(dice) * 0x1p-32;
}

/* Returns a real in (0, 1), whose logarithm is finite. */
static double open_uniform(oct_dice *dice)
{
    return ((double)oct_dice_word(dice) + 0.5) * 0x1p-32;
}

double oct_dice_real(oct_dice *dice, double from, double to)
{
    return from + (to - from) * uniform(dice);
}

int64_t oct_dice_below(oct_dice *dice, int64_t n)
{
    return oct_below(oct_dice_word(dice), (uint32_t)n);
}

bool oct_dice_chance(oct_dice *dice, double p)
{
    return uniform(dice) < p;
}

/* Box and Muller's method makes two normal variables of two uniform ones; the next call returns the second. */
double oct_dice_normal(oct_dice *dice)
{
    double sine, cosine;
    dice->has_normal = !dice->has_normal;
    if (!dice->has_normal) return dice->normal;
    double radius = sqrt(-2.0 * oct_real_log(open_uniform(dice)));
    oct_real_sin_cos(6.283185307179586 * uniform(dice), &sine, &cosine);
    dice->normal = radius * sine;
    return radius * cosine;
}

/* Returns the logarithm of a gamma variable of shape alpha, by Marsaglia and Tsang's rejection method (2000). */
static double log_gamma_variable(oct_dice *dice, double alpha)
{
    double boost = alpha < 1 ? oct_real_log(open_uniform(dice)) / alpha : 0;
    double d = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3.0, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = oct_dice_normal(dice), u = open_uniform(dice), v = 1 + c * x;
        if (v <= 0) continue;
        v = v * v * v;
        if (oct_real_log(u) < 0.5 * x * x + d - d * v + d * oct_real_log(v))
            return oct_real_log(d * v) + boost;
    }
}

double oct_dice_beta(oct_dice *dice, double alpha)
{
    double a = log_gamma_variable(dice, alpha), b = log_gamma_variable(dice, alpha);
    return 1 / (1 + oct_real_exp(b - a));
}
