/* A convolution, float or integer, has this geometry: NHWC activations, OHWI weights (O, kh, kw,
 * I/groups). A linear layer is the shape with h = w = kernel = 1. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct oct_conv_shape {
    int64_t in_h, in_w, in_c, out_h, out_w, out_c;
    int kernel_h, kernel_w, stride, padding, groups;
} oct_conv_shape;

/* A layer says this of its windows. */
typedef struct oct_conv_geometry {
    int kernel_h, kernel_w, stride, padding, groups;
} oct_conv_geometry;

/* Gives the shape over inputs (in_h, in_w, in_c); out_h or out_w is below 1 when no window fits. */
oct_conv_shape oct_conv_shape_of(int64_t in_h, int64_t in_w, int64_t in_c, int64_t out_c,
                                 oct_conv_geometry geometry);
oct_conv_shape oct_linear_shape(int64_t in, int64_t out);
/* Gives the geometry of the convolution that a transposed one is, over its dilated input. */
oct_conv_geometry oct_conv_geometry_transposed(oct_conv_geometry geometry);
/* Tells the positions of a window along one side; below 1 when it does not fit. */
int64_t oct_conv_out(int64_t in, int kernel, int stride, int padding);
/* Tells the terms of one sum: kernel_h * kernel_w * in_c / groups. */
int64_t oct_conv_depth(const oct_conv_shape *s);
/* Tells whether each channel has one filter of its own. */
bool oct_conv_is_depthwise(const oct_conv_shape *s);
/* Tell the elements of one sample. */
int64_t oct_conv_in_numel(const oct_conv_shape *s);
int64_t oct_conv_out_numel(const oct_conv_shape *s);
