#include "quant/prepare/layer_error.h"

#include <math.h>
#include <stdbool.h>

double oct_error_add(oct_error_sums *sums, const float *reference, const float *values, int64_t n)
{
    oct_error_sums s = *sums;
    double largest = 0;
    for (int64_t i = 0; i < n; i++) {
        const double x = (double)reference[i], y = (double)values[i], off = fabs(x - y);
        s.signal += x * x;
        s.power += y * y;
        s.product += x * y;
        s.noise += (x - y) * (x - y);
        if (off > largest || isnan(off)) largest = off;
    }
    *sums = s;
    return largest;
}

double oct_error_sqnr(const oct_error_sums *s)
{
    const bool same = !(s->noise > 0) && !isnan(s->noise);
    return same ? HUGE_VAL : 10.0 * log10(s->signal / s->noise);
}

double oct_error_cosine(const oct_error_sums *s)
{
    const double norm = sqrt(s->signal) * sqrt(s->power);
    return norm > 0 ? s->product / norm : (double)!(s->noise > 0);
}
