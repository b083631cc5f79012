/* Dilation puts rows and columns of zeros between the pixels of an image (h, w, c): a transposed
 * convolution is the convolution of what results. */
#pragma once

#include "core/tensor/tensor.h"

typedef struct oct_dilation {
    int64_t h, w, c;
    int step_h, step_w; /* from one pixel of x to the next in y */
    oct_dtype dtype;
    int32_t zero_point; /* of codes: what their zero is */
    int64_t out_h, out_w;
} oct_dilation;

/* x: one or more images (N, h, w, c). */
oct_dilation oct_dilation_of(oct_shape x, int step_h, int step_w, oct_dtype dtype,
                             int32_t zero_point);
/* y (out_h, out_w, c) = one image x, of the same type. */
void oct_dilate_image(const oct_dilation *d, const void *x, void *y);
/* x = the pixels of y that dilation put there; floats. */
void oct_undilate_image(const oct_dilation *d, const float *y, float *x);
