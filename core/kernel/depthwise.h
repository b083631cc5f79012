/* Depthwise convolutions, one filter a channel, with the contracts of conv.h: what depends on the shape
 * alone, what is summed over samples, whose memory. Gradients of the output are rows of floats,
 * (positions, C), whatever the numerics.
 *
 * Every element of y and grad_x is one sum over all taps, those in the padding as zeros; products and
 * sums are rounded one by one.
 */
#pragma once

#include "core/kernel/conv.h"

/* Ready weights of forward and of backward to data, from weight (C, kh, kw); backward takes codes
 * instead when weight is NULL. */
size_t oct_depthwise_ready_bytes(const oct_conv_shape *s);
void oct_depthwise_forward_ready(const oct_conv_shape *s, const float *weight, void *ready);
void oct_depthwise_backward_data_ready(const oct_conv_shape *s, const float *weight,
                                       const int8_t *codes, void *ready);

/* y (n, OH, OW, C) = x (n, H, W, C) * weight + bias (C; NULL for none). */
size_t oct_depthwise_forward_scratch_bytes(const oct_conv_shape *s);
void oct_depthwise_forward(const oct_conv_shape *s, int64_t samples, const float *x,
                           const void *ready, const float *bias, float *y, void *scratch);

/* grad_x (n, H, W, C) = or += the transposed convolution of grad. */
size_t oct_depthwise_backward_data_scratch_bytes(const oct_conv_shape *s);
void oct_depthwise_backward_data(const oct_conv_shape *s, int64_t samples, const float *grad,
                                 const void *ready, float *grad_x, bool add, void *scratch);

/* grad_weight (C, kh, kw) = (the bits of adding to 0) or += factor[c] * sum over the samples in order;
 * factor NULL: 1. With a group a channel the turned layout of conv.h is that of the weights. */
size_t oct_depthwise_backward_weight_scratch_bytes(const oct_conv_shape *s);
void oct_depthwise_backward_weight(const oct_conv_shape *s, int64_t samples, const float *grad,
                                   const oct_conv_input *x, const float *factor, float *grad_weight,
                                   bool add, void *scratch);
