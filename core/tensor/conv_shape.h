/* A convolution or a pool, float or integer, has this geometry: NHWC activations, OHWI weights (O, kh, kw,
 * I/groups). A linear layer is the shape with kernel 1 over its positions.
 *
 * Tap (ky, kx) of the window of output (y, x) looks at the input's row y * stride_h - pad_top + ky * dilation_h
 * and column x * stride_w - pad_left + kx * dilation_w. What is outside of the input is padding.
 */
#pragma once

#include "core/tensor/tensor.h"

typedef struct oct_conv_shape {
    int64_t in_h, in_w, in_c, out_h, out_w, out_c;
    int kernel_h, kernel_w, stride_h, stride_w;
    int pad_top, pad_left, pad_bottom, pad_right;
    int dilation_h, dilation_w, groups;
} oct_conv_shape;

/* No kernel, stride, dilation or padding is larger. */
enum { OCT_WINDOW_SIDE_MAX = 16384 };
/* Say whether there can be such windows, and in words when there can (of conv2d, conv_transpose2d, pools).
 * Those of a pool each see a part of the input. */
bool oct_conv_geometry_fits(const oct_conv_geometry *g);
/* Padding is less than the extent of the kernel, output padding less than stride or dilation. */
bool oct_conv_transpose_geometry_fits(const oct_conv_geometry *g);
bool oct_pool_geometry_fits(const oct_pool_geometry *g);
extern const char oct_conv_geometry_rule[], oct_conv_transpose_geometry_rule[],
    oct_pool_geometry_rule[];
typedef struct oct_geometry_text {
    char text[512];
} oct_geometry_text;
/* Say how windows are, for messages and descriptions, without what is the default: "3x3, stride 2x1,
 * padding 1, dilation 2, groups 4". Padding is one number, two (height x width), or "1 above, 1 left, 2 below,
 * 2 right". */
oct_geometry_text oct_text_conv_geometry(const oct_conv_geometry *g);
oct_geometry_text oct_text_pool_geometry(const oct_pool_geometry *g);

enum { OCT_WINDOW_TEXT = 64 };
/* Writes kernel, stride and dilation in short: "3x3", "3x3 s2", "5x1 s2x1 d2". Returns text. */
const char *oct_window_text(const oct_conv_shape *s, char text[OCT_WINDOW_TEXT]);

/* Gives the shape over inputs (in_h, in_w, in_c); out_h or out_w is below 1 when no window fits. */
oct_conv_shape oct_conv_shape_of(int64_t in_h, int64_t in_w, int64_t in_c, int64_t out_c,
                                 oct_conv_geometry geometry);
/* The same of a pool over c channels: of ceil mode as torch.nn.functional.max_pool2d defines it. */
oct_conv_shape oct_pool_shape_of(int64_t in_h, int64_t in_w, int64_t c, oct_pool_geometry geometry);
/* A linear layer over h x w positions. */
oct_conv_shape oct_linear_shape(int64_t h, int64_t w, int64_t in, int64_t out);
/* The shape of a transposed convolution of inputs (in_h, in_w, in_c) as a plain convolution with stride 1 over the
 * input dilated by the strides. */
oct_conv_shape oct_conv_transpose_shape_of(int64_t in_h, int64_t in_w, int64_t in_c, int64_t out_c,
                                           oct_conv_geometry geometry);

/* Sets out_h and out_w as they follow from the rest. */
void oct_conv_set_out(oct_conv_shape *s);
/* Returns how far a window of `kernel` taps reaches: (kernel - 1) * dilation + 1. */
int64_t oct_conv_extent(int kernel, int dilation);
/* Returns the positions of a window of this extent along a side of `size` with its padding; below 1 when it
 * does not fit. */
int64_t oct_conv_out(int64_t size, int64_t extent, int stride);
/* Says whether a window of the shape sees padding. */
bool oct_conv_sees_padding(const oct_conv_shape *s);
/* Returns the terms of one sum: kernel_h * kernel_w * in_c / groups. */
int64_t oct_conv_depth(const oct_conv_shape *s);
/* Says whether each channel has one filter of its own. */
bool oct_conv_is_depthwise(const oct_conv_shape *s);
/* Says whether the layer is one product for each position by itself: a 1x1 kernel at each pixel. */
bool oct_conv_is_pointwise(const oct_conv_shape *s);
/* The elements of one sample. */
int64_t oct_conv_in_numel(const oct_conv_shape *s);
int64_t oct_conv_out_numel(const oct_conv_shape *s);

/* A span is the part [first, end) of one side of a plane that a window sees. */
typedef struct oct_window_span {
    int64_t first, end;
} oct_window_span;

/* Gives the part of the window of output row y (column x) that is in the input; of kernels without
 * dilation. */
oct_window_span oct_pool_rows(const oct_conv_shape *s, int64_t y);
oct_window_span oct_pool_columns(const oct_conv_shape *s, int64_t x);
/* Returns the divisor of average pooling at output (y, x): the window's positions in the input; with include_pad also those
 * in the padding, but not those past it, which ceil mode adds. */
int64_t oct_pool_count(const oct_conv_shape *s, bool include_pad, int64_t y, int64_t x);

/* Dilation puts rows and columns of zeros between the pixels of an image (h, w, c): a transposed
 * convolution is the convolution of what results. */
typedef struct oct_dilation {
    int64_t h, w, c;
    int step_h, step_w; /* from one pixel of x to the next in y */
    oct_dtype dtype;
    int32_t zero_point; /* of codes: what their zero is */
    int64_t out_h, out_w;
} oct_dilation;

/* Plans the dilation of images x (N, h, w, c): one pixel each step_h rows and step_w columns, zeros between. */
oct_dilation oct_dilation_of(oct_shape x, int step_h, int step_w, oct_dtype dtype,
                             int32_t zero_point);
/* y (out_h, out_w, c) = one image x, dilated, of the same type. */
void oct_dilate_image(const oct_dilation *d, const void *x, void *y);
/* x = the pixels of y that dilation put there; floats. */
void oct_undilate_image(const oct_dilation *d, const float *y, float *x);
