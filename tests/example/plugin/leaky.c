/* A fake-quant: the scale of the built-in one, but a tenth of the gradient passes where a value is
 * beyond the codes, so that it can come back. */
#include "example.h"

#include <math.h>

static float scale(float min, float max, oct_qparams q)
{
    float above = max / (float)(q.qmax - q.zero_point);
    float below = q.zero_point > q.qmin ? -min / (float)(q.zero_point - q.qmin) : 0.0f;
    return fmaxf(fmaxf(above, below), 0x1p-23f);
}

static void backward(int64_t n, const uint8_t *mask, float *grad)
{
    for (int64_t i = 0; i < n; i++)
        if (!(mask[i / 8] >> (i % 8) & 1)) grad[i] *= 0.1f;
}

const oct_fake_quant_kind leaky_fake_quant = {
    .name = "leaky",
    .scale = scale,
    .backward = backward,
};
