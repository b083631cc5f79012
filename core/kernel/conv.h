/* Convolution products on raw pointers, forward and backward. NHWC activations, OHWI weights
 * (O, kh, kw, I/groups). A linear layer is the shape with h = w = kernel = 1; its samples are the
 * positions.
 *
 * One op makes its operand of the weights ready once (oct_conv_*_ready), then works leaf by leaf. Every
 * element of y and grad_x is a sum in a fixed order that depends on the shape alone, so no bit of them
 * depends on how many samples a call has; a weight gradient is a sum over the samples of each leaf of
 * the call, in order, and over leaves by their tree. Nothing is allocated: ready operands and scratch are
 * of the sizes that the *_bytes functions tell, 64-byte aligned; scratch is used by no other thread
 * meanwhile. A ready operand is read only and shared by threads.
 */
#pragma once

#include "core/kernel/float_kernel.h"
#include "core/tensor/conv_shape.h"

#include <stddef.h>

/* y (n, OH, OW, O) = x (n, H, W, I) * weight + bias (O; NULL for none); float. */
size_t oct_conv_forward_ready_bytes(const oct_float_kernel *k, const oct_conv_shape *s);
void oct_conv_forward_ready(const oct_float_kernel *k, const oct_conv_shape *s, const float *weight,
                            void *ready);
size_t oct_conv_forward_scratch_bytes(const oct_float_kernel *k, const oct_conv_shape *s);
void oct_conv_forward(const oct_float_kernel *k, const oct_conv_shape *s, int64_t samples,
                      const float *x, const void *ready, const float *bias, float *y,
                      void *scratch);

/* The gradient of the output as an operand of both backward products: rows (positions) of
 * oct_conv_grad_row_bytes each. Writes `rows` rows from grad_y (rows, O), each channel times factor[o]
 * (NULL: as they are), rounded to bfloat16 when numerics say so. A part of a sample may be written at a
 * time. Where rows are floats they may be written without this function: grad_y times factor[o]. */
bool oct_conv_grad_rows_are_floats(oct_numerics numerics, const oct_conv_shape *s);
size_t oct_conv_grad_row_bytes(const oct_float_kernel *k, oct_numerics numerics,
                               const oct_conv_shape *s);
void oct_conv_grad_rows(const oct_float_kernel *k, oct_numerics numerics, const oct_conv_shape *s,
                        int64_t rows, const float *grad_y, const float *factor, void *out);

/* grad_x (n, H, W, I) = or += the transposed convolution of grad rows. weight: floats, which bfloat16
 * numerics round; NULL: codes (weights as whole numbers, exact in both) instead. */
size_t oct_conv_backward_data_ready_bytes(const oct_float_kernel *k, oct_numerics numerics,
                                          const oct_conv_shape *s);
void oct_conv_backward_data_ready(const oct_float_kernel *k, oct_numerics numerics,
                                  const oct_conv_shape *s, const float *weight, const int8_t *codes,
                                  void *ready);
size_t oct_conv_backward_data_scratch_bytes(const oct_float_kernel *k, oct_numerics numerics,
                                            const oct_conv_shape *s);
void oct_conv_backward_data(const oct_float_kernel *k, oct_numerics numerics,
                            const oct_conv_shape *s, int64_t samples, const void *grad,
                            const void *ready, float *grad_x, bool add, void *scratch);

/* What a weight gradient is multiplied with: floats, which bfloat16 numerics round, or the exact whole
 * numbers code - zero_point (of bytes, or of 16-bit codes: those are not exact in bfloat16 and are always
 * multiplied in float32). Padding is the value 0. One of the three is given. */
typedef struct oct_conv_input {
    const float *values;  /* or NULL */
    const uint8_t *codes; /* or NULL */
    const uint16_t *codes16;
    int32_t zero_point;
} oct_conv_input;

/* grad_weight[k][o] = or += factor[o] * sum over the samples in order; factor NULL: 1. Not `add` gives
 * the bits of adding to zeros, so -0 becomes 0; what lies there is not read. The layout is TURNED: for
 * each group (depth, O/groups), with depth = (kh, kw, I/groups) in this order: outputs are the columns of
 * the product. oct_conv_weight_transpose puts a finished sum into the layout of the weights.
 *
 * A call has one leaf of up to `leaf` samples, or several full ones of which the last may be short, up to
 * as many as _leaves tells (a power of two; 1 where nothing is gained). Their sums are joined by the
 * balanced tree before they are written or added: the bits of a row for each and core/base/leaves.h.
 * Scratch is that of calls of up to `leaves`. */
int64_t oct_conv_backward_weight_leaves(const oct_float_kernel *k, oct_numerics numerics,
                                        const oct_conv_shape *s, int64_t leaf);
size_t oct_conv_backward_weight_scratch_bytes(const oct_float_kernel *k, oct_numerics numerics,
                                              const oct_conv_shape *s, int64_t leaf,
                                              int64_t leaves);
void oct_conv_backward_weight(const oct_float_kernel *k, oct_numerics numerics,
                              const oct_conv_shape *s, int64_t samples, int64_t leaf,
                              const void *grad, const oct_conv_input *x, const float *factor,
                              float *turned, bool add, void *scratch);
/* turned (groups, depth, outs) to weight (groups, outs, depth). */
void oct_conv_weight_transpose(int64_t groups, int64_t depth, int64_t outs, const float *turned,
                               float *weight);

/* grad_bias (channels) += sum over rows of grad_y (rows, channels), in order. */
void oct_bias_backward(int64_t rows, int64_t channels, const float *grad_y, float *grad_bias);
