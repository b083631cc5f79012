/* Arguments are reduced to where the series of Taylor, or of artanh, ends soon; floor, frexp and ldexp are
 * exact in every C library. */
#include "io/augment/real.h"

#include <math.h>

/* ln 2 and pi/2 in two parts: products of the first with small integers are exact. */
static const double LN2_HIGH = 0x1.62e42fefap-1, LN2_LOW = 0x1.cf79abc9e3b3ap-40;
static const double HALF_PI_HIGH = 0x1.921fb544p+0, HALF_PI_LOW = 0x1.0b4611a626331p-34;

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
