/* Float convolution on raw pointers: forward, and backward to data and weights. NHWC activations,
 * OHWI weights (O, kh, kw, I/groups). A linear layer is the shape with h = w = kernel = 1.
 *
 * A call works on the samples of one leaf (or fewer). Bits depend on the shape, on the samples and
 * on how many the call has; so call it leaf by leaf and they depend neither on ranks nor threads.
 * Nothing is allocated: each function takes scratch of its *_scratch_bytes, 64-byte aligned, that no
 * other thread uses meanwhile.
 */
#pragma once

#include "core/tensor/conv_shape.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* y (n, OH, OW, O) = x (n, H, W, I) * weight + bias (O; NULL for none). */
size_t oct_conv_forward_scratch_bytes(const oct_conv_shape *s, int64_t samples);
void oct_conv_forward(const oct_conv_shape *s, int64_t samples, const float *x, const float *weight,
                      const float *bias, float *y, void *scratch);

/* grad_x (n, H, W, I), overwritten. */
size_t oct_conv_backward_data_scratch_bytes(const oct_conv_shape *s, int64_t samples);
void oct_conv_backward_data(const oct_conv_shape *s, int64_t samples, const float *grad_y,
                            const float *weight, float *grad_x, void *scratch);

/* grad_weight += sum over the samples in order. */
size_t oct_conv_backward_weight_scratch_bytes(const oct_conv_shape *s, int64_t samples);
void oct_conv_backward_weight(const oct_conv_shape *s, int64_t samples, const float *grad_y,
                              const float *x, float *grad_weight, void *scratch);

/* The same where x is (float)(code - zero_point); padding is the value 0, so not the code 0. */
size_t oct_conv_backward_weight_codes_scratch_bytes(const oct_conv_shape *s, int64_t samples);
void oct_conv_backward_weight_codes(const oct_conv_shape *s, int64_t samples, const float *grad_y,
                                    const uint8_t *codes, int32_t zero_point, float *grad_weight,
                                    void *scratch);

/* What a weight gradient is multiplied with: floats, or the exact whole numbers code - zero_point
 * (bytes, or 16-bit codes). Padding is the value 0. */
typedef struct oct_conv_input {
    const float *values;  /* or NULL */
    const uint8_t *codes; /* or NULL */
    const uint16_t *codes16;
    int32_t zero_point;
} oct_conv_input;

/* grad_bias (channels) += sum over rows of grad_y (rows, channels), in order. */
void oct_bias_backward(int64_t rows, int64_t channels, const float *grad_y, float *grad_bias);
