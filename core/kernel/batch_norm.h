/* Batch norm loops over rows of channels, x (rows, C). */
#pragma once

#include <stdint.h>

/* sums (2, C) = over rows in order: x, x*x. */
void oct_bn_sum_values(int64_t rows, int64_t channels, const float *x, double *restrict sums);

/* sums (2, C) = over rows in order: grad, grad * (x - mean). */
void oct_bn_sum_grads(int64_t rows, int64_t channels, const float *grad, const float *x,
                      const float *mean, double *restrict sums);

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
