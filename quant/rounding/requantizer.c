/* Constants of requantizers that multiply by whole numbers; see the header. */
#include "quant/rounding/requantizer.h"

#include "core/base/int_math.h"

#include <math.h>

enum { MOST_RIGHT = 31, MOST_RIGHT_15 = 34 };

static oct_fixed of_15_bits(double real)
{
    const double most = INT16_MAX;
    int exponent;
    const double mantissa = frexp(fmin(fabs(real), most), &exponent);
    const double rounded = fmin(floor(mantissa * 0x1p15 + 0.5), most);
    if (rounded == 0 || exponent < -MOST_RIGHT_15) return (oct_fixed){0};
    return (oct_fixed){(int32_t)(real < 0 ? -rounded : rounded), exponent};
}

oct_fixed oct_fixed_of(oct_requantizer r, double real)
{
    const double one = 0x1p31;
    int exponent;
    if (!oct_requantizer_is_fixed(r) || !isfinite(real)) return (oct_fixed){0};
    if (r == OCT_REQUANT_Q15) return of_15_bits(real);
    double rounded = round(frexp(real, &exponent) * one);
    if (fabs(rounded) == one) {
        rounded /= 2;
        exponent++;
    }
    if (rounded == 0 || exponent < -MOST_RIGHT) return (oct_fixed){0};
    return (oct_fixed){(int32_t)rounded, (int32_t)oct_min_i64(exponent, OCT_FIXED_LEFT)};
}

oct_fixed oct_fixed_of_layer(oct_requantizer r, float x_scale, float weight_scale, float y_scale)
{
    return oct_fixed_of(r, (double)x_scale * (double)weight_scale / (double)y_scale);
}
