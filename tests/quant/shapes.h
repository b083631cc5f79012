/* Convolution shapes of the quant tests. */
#pragma once

#include "core/tensor/conv_shape.h"

static inline oct_conv_shape shape_of(int64_t h, int64_t w, int64_t in_c, int64_t out_c,
                                      int kernel_h, int kernel_w, int stride, int padding,
                                      int groups)
{
    return oct_conv_shape_of(h, w, in_c, out_c,
                             oct_conv_geometry_of(kernel_h, kernel_w, stride, padding, groups));
}

/* Gives a shape with sides of their own and dilation, which `random` decides. The input
 * grows until a window fits. */
static inline oct_conv_shape uneven_shape(oct_conv_shape s, uint32_t random)
{
    s.stride_h = 1 + (int)(random % 3);
    s.stride_w = 1 + (int)(random / 3 % 3);
    s.pad_top = (int)(random / 9 % 4);
    s.pad_left = (int)(random / 36 % 4);
    s.pad_bottom = (int)(random / 144 % 4);
    s.pad_right = (int)(random / 576 % 4);
    s.dilation_h = 1 + (int)(random / 2304 % 3);
    s.dilation_w = 1 + (int)(random / 6912 % 3);
    for (oct_conv_set_out(&s); s.out_h < 1 || s.out_w < 1; oct_conv_set_out(&s))
        s.in_h++, s.in_w++;
    return s;
}
