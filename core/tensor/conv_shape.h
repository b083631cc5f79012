/* The geometry of a convolution, float or integer: NHWC activations, OHWI weights (O, kh, kw,
 * I/groups). A linear layer is the shape with h = w = kernel = 1. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct oct_conv_shape {
    int64_t in_h, in_w, in_c, out_h, out_w, out_c;
    int kernel_h, kernel_w, stride, padding, groups;
} oct_conv_shape;

/* Positions of a window along one side; below 1 when it does not fit. */
int64_t oct_conv_out(int64_t in, int kernel, int stride, int padding);
/* Terms of one sum: kernel_h * kernel_w * in_c / groups. */
int64_t oct_conv_depth(const oct_conv_shape *s);
/* One filter a channel. */
bool oct_conv_is_depthwise(const oct_conv_shape *s);
/* Elements of one sample. */
int64_t oct_conv_in_numel(const oct_conv_shape *s);
int64_t oct_conv_out_numel(const oct_conv_shape *s);
