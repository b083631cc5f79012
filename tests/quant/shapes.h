/* Convolution shapes of the quant tests. */
#pragma once

#include "core/tensor/conv_shape.h"

static inline oct_conv_shape shape_of(int64_t h, int64_t w, int64_t in_c, int64_t out_c,
                                      int kernel_h, int kernel_w, int stride, int padding,
                                      int groups)
{
    return (oct_conv_shape){.in_h = h,
                            .in_w = w,
                            .in_c = in_c,
                            .out_h = (h + 2 * padding - kernel_h) / stride + 1,
                            .out_w = (w + 2 * padding - kernel_w) / stride + 1,
                            .out_c = out_c,
                            .kernel_h = kernel_h,
                            .kernel_w = kernel_w,
                            .stride = stride,
                            .padding = padding,
                            .groups = groups};
}
