/* The fake-quant with all codes for the range as it lies: scale and zero_point of PyTorch's per-tensor affine
 * quantization, where `affine` puts the zero_point of signed values in the middle. The range includes zero. */
#include "quant/module/qconfig.h"
#include "quant/rounding/qparams.h"

static oct_qparams of_range(float min, float max, oct_qparams q)
{
    return oct_qparams_of_range(min, max, OCT_AFFINE, q.qmin, q.qmax);
}

static float scale(float min, float max, oct_qparams q)
{
    return of_range(min, max, q).scale;
}

/* It goes with the scale above, whatever a target has made of that. */
static int32_t zero_point(float min, float max, float scale, oct_qparams q)
{
    (void)scale;
    return of_range(min, max, q).zero_point;
}

const oct_fake_quant_kind oct_fake_quant_asymmetric = {
    .name = "asymmetric", .scale = scale, .zero_point = zero_point};
