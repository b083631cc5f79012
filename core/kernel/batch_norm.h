/* Batch norm loops over rows of channels, x (rows, C). */
#pragma once

#include <stdint.h>

/* Rows of some channels, `pitch` values apart. */
typedef struct oct_bn_rows {
    int64_t rows, pitch, channels;
    const float *grad, *x; /* at the first of these channels */
    const float *mean;
    double *sums; /* the second ones are `pitch` after the first */
} oct_bn_rows;

/* sums = over rows in order: x, x*x; or with grad: grad, grad * (x - mean). */
void oct_bn_sum(const oct_bn_rows *of);

/* Terms are one value a channel (C). */
typedef struct oct_bn_terms {
    const float *mean, *scale, *shift, *slope;
} oct_bn_terms;

/* y = (x - mean) * scale + shift */
void oct_bn_normalize(int64_t rows, int64_t channels, const float *x, const oct_bn_terms *terms,
                      float *restrict y);

/* grad = scale * (grad - shift - (x - mean) * slope), in place */
void oct_bn_input_grad(int64_t rows, int64_t channels, const float *x, const oct_bn_terms *terms,
                       float *restrict grad);

/* grad = scale * grad, in place */
void oct_scale_rows(int64_t rows, int64_t channels, const float *scale, float *restrict grad);
