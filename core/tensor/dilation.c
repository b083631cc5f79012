/* Pixels of dilated images are copied one by one. */
#include "core/tensor/dilation.h"

#include <string.h>

oct_dilation oct_dilation_of(oct_shape x, int step_h, int step_w, oct_dtype dtype,
                             int32_t zero_point)
{
    return (oct_dilation){.h = x.dim[1],
                          .w = x.dim[2],
                          .c = x.dim[3],
                          .step_h = step_h,
                          .step_w = step_w,
                          .dtype = dtype,
                          .zero_point = zero_point,
                          .out_h = (x.dim[1] - 1) * step_h + 1,
                          .out_w = (x.dim[2] - 1) * step_w + 1};
}

/* Writes zeros to n elements. */
static void fill_zero(const oct_dilation *d, int64_t n, void *y)
{
    if (d->dtype == OCT_U16) {
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)y)[i] = (uint16_t)d->zero_point;
        return;
    }
    memset(y, d->dtype == OCT_U8 ? d->zero_point : 0, (size_t)n * oct_dtype_bytes(d->dtype));
}

/* Where pixel `at` of x lies in y, in pixels. */
static int64_t position_of(const oct_dilation *d, int64_t at)
{
    return at / d->w * d->step_h * d->out_w + at % d->w * d->step_w;
}

void oct_dilate_image(const oct_dilation *d, const void *x, void *y)
{
    const int64_t bytes = d->c * (int64_t)oct_dtype_bytes(d->dtype);
    fill_zero(d, d->out_h * d->out_w * d->c, y);
    for (int64_t at = 0; at < d->h * d->w; at++)
        memcpy((char *)y + position_of(d, at) * bytes, (const char *)x + at * bytes, (size_t)bytes);
}

void oct_undilate_image(const oct_dilation *d, const float *y, float *x)
{
    for (int64_t at = 0; at < d->h * d->w; at++)
        memcpy(x + at * d->c, y + position_of(d, at) * d->c, (size_t)d->c * sizeof *x);
}
