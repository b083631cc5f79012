/* A fake-quant that uses all codes for the range as it lies: scale and zero_point of PyTorch's per-tensor affine
 * quantization, where the built-in one puts the zero_point of signed values in the middle. */
#include "methods.h"

static oct_qparams of_range(float min, float max, oct_qparams q)
{
    return oct_qparams_of_range(min, max, OCT_AFFINE, q.qmin, q.qmax);
}

static float asymmetric_scale(float min, float max, oct_qparams q)
{
    return of_range(min, max, q).scale;
}

static int32_t asymmetric_zero_point(float min, float max, float scale, oct_qparams q)
{
    (void)scale;
    return of_range(min, max, q).zero_point;
}

const oct_fake_quant_kind asymmetric_fake_quant = {
    .name = "asymmetric",
    .scale = asymmetric_scale,
    .zero_point = asymmetric_zero_point,
};
