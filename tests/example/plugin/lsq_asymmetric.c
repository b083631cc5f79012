/* A learned step size around a zero_point that is chosen: calibration sets it from the range of values, as
 * the built-in `asymmetric` does, and training moves the scale alone. */
#include "methods.h"

#include <math.h>

static float scale_of_range(float min, float max, oct_qparams q)
{
    return oct_fake_quant_kind_find("asymmetric")->scale(min, max, q);
}

static int32_t zero_point_of_range(float min, float max, float scale, oct_qparams q)
{
    return oct_fake_quant_kind_find("asymmetric")->zero_point(min, max, scale, q);
}

/* All values may be on one side of the zero_point, so the gradient is divided by the number of codes. */
static float factor_of_range(int64_t n, oct_qparams q)
{
    return 1.0f / sqrtf((float)n * (float)(q.qmax - q.qmin));
}

const oct_fake_quant_kind lsq_asymmetric_fake_quant = {
    .name = "lsq-asymmetric",
    .scale = scale_of_range,
    .zero_point = zero_point_of_range,
    .slope = lsq_slope,
    .factor = factor_of_range,
};
