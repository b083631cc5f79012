/* Learned step size (LSQ: Esser, McKinstry, Bablani, Appuswamy, Modha 2020, arXiv 1902.08153), of weights and
 * activations. With s the scale, v = x / s, and codes from lo to hi around the zero point:
 *
 *     x^ = s * round(clip(v, lo, hi))
 *     dx^ / ds = lo, where v <= lo; hi, where v >= hi; round(v) - v between
 *
 * and the gradient of s is divided by sqrt(n * hi), n being the number of values that share it. Between the ends
 * the gradient of x passes as it is, beyond them it is 0, which is the built-in rule.
 *
 * `lsq` has a scale for each output channel of weights, `lsq-tensor` one for all of them as the paper has.
 */
#include "methods.h"

#include <math.h>

static float most_of(oct_qparams q)
{
    return (float)(q.qmax - q.zero_point);
}

/* The first scale of weights, 2 * mean(|w|) / sqrt(hi): summed in order, so it is one for all ranks. */
static float first_weight_scale(const float *weight, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += fabs((double)weight[i]);
    return (float)(2 * sum / (double)n / sqrt(127.0));
}

/* That of activations holds what calibration has seen. */
static float first_scale(float min, float max, oct_qparams q)
{
    const float above = max / most_of(q);
    const float below = q.zero_point > q.qmin ? -min / (float)(q.zero_point - q.qmin) : 0.0f;
    return fmaxf(fmaxf(above, below), 0x1p-23f);
}

void lsq_slope(int64_t n, const float *v, oct_qparams q, float *slope)
{
    const float lo = (float)(q.qmin - q.zero_point), hi = most_of(q);
    for (int64_t i = 0; i < n; i++)
        slope[i] = v[i] <= lo ? lo : v[i] >= hi ? hi : rintf(v[i]) - v[i];
}

static float factor(int64_t n, oct_qparams q)
{
    return 1.0f / sqrtf((float)n * most_of(q));
}

const oct_fake_quant_kind lsq_fake_quant = {
    .name = "lsq",
    .scale = first_scale,
    .weight_scale = first_weight_scale,
    .slope = lsq_slope,
    .factor = factor,
};

const oct_fake_quant_kind lsq_tensor_fake_quant = {
    .name = "lsq-tensor",
    .scale = first_scale,
    .weight_scale = first_weight_scale,
    .per_tensor = true,
    .slope = lsq_slope,
    .factor = factor,
};
