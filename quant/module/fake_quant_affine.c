/* The fake-quant of PyTorch: the scale that just holds the observed range, or the weights, and a gradient that
 * passes where nothing was clipped. */
#include "quant/module/qconfig.h"
#include "quant/rounding/qparams.h"

/* Returns the scale of a range: of codes from 0 on where zero_point is 0 (no value is below 0), else symmetric. */
static float scale(float min, float max, oct_qparams q)
{
    oct_qparams found = q.zero_point == 0
                            ? oct_qparams_of_range(0.0f, max, OCT_AFFINE, q.qmin, q.qmax)
                            : oct_qparams_of_range(min, max, OCT_SYMMETRIC, q.qmin, q.qmax);
    return found.scale;
}

const oct_fake_quant_kind oct_fake_quant_affine = {
    .name = "affine", .scale = scale, .weight_scale = oct_weight_scale};
