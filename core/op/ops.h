/* Operations: each file of this folder defines one, with its backward beside its forward.
 *
 * All take the context and return a tensor of the step's arena, or NULL with the context failed
 * (wrong shapes, a NULL input). Shapes: activations (N, H, W, C) or (N, F). Dtype is f32 except
 * where said. Backwards are exact derivatives, sums over samples leaf by leaf.
 */
#pragma once

#include "core/autograd/tape.h"
#include "core/nn/param.h"
#include "core/op/elementwise.h"
#include "core/op/loss.h"
#include "core/tensor/conv_shape.h"
#include "core/tensor/resize.h"

/* Convolves: x (N, H, W, I), weight (O, kh, kw, I/groups), bias (O) or NULL -> (N, OH, OW, O). */
oct_tensor *oct_conv2d(oct_context *cx, oct_tensor *x, oct_param *weight, oct_param *bias,
                       oct_conv_geometry geometry);
/* Convolves transposed: x (N, H, W, I) -> (N, OH, OW, O) with OH = (H-1) stride_h - pad_top - pad_bottom +
 * extent + output_padding_h, where extent is (kernel_h - 1) dilation_h + 1, and OW likewise.
 * It is computed as the convolution of stride 1 and padding extent - 1 - pad over x with stride - 1 zeros
 * between its values (oct_conv_transpose_shape_of), and weight (O, kh, kw, I/groups) is the weight of that
 * convolution: PyTorch's, rotated by 180 degrees. pad < extent; output padding < stride or dilation. */
oct_tensor *oct_conv_transpose2d(oct_context *cx, oct_tensor *x, oct_param *weight, oct_param *bias,
                                 oct_conv_geometry geometry);
/* Puts step_h - 1 rows and step_w - 1 columns between the values of x (N, H, W, C), of f32 zeros or of codes'
 * zero_point: (N, (H-1) step_h + 1, (W-1) step_w + 1, C). */
oct_tensor *oct_dilate(oct_context *cx, oct_tensor *x, int step_h, int step_w);
/* Multiplies the last dimension with weights: x (N, ..., I) of 2 to 4 dimensions, weight (O, I), bias (O) or
 * NULL -> (N, ..., O). */
oct_tensor *oct_linear(oct_context *cx, oct_tensor *x, oct_param *weight, oct_param *bias);

/* Normalizes by the statistics of the batch (training) or by the running ones. x (N, H, W, C) or (N, C). In
 * training also moves the running values: r += momentum * (batch - r), variance unbiased. The statistics are
 * those of the global batch, or of each of its norm groups where the context has them (norm_groups.h). */
typedef struct oct_bn_args {
    oct_param *gamma, *beta;           /* (C) */
    float *running_mean, *running_var; /* (C) */
    float eps, momentum;
    bool batch_stats; /* training and not frozen */
} oct_bn_args;
oct_tensor *oct_batch_norm(oct_context *cx, oct_tensor *x, const oct_bn_args *args);
/* Gives mean and 1/sigma of all channels in a forward by running values. */
void oct_bn_running(const oct_bn_args *args, int64_t channels, float *mean, float *inv_std);

/* Normalizes each row: x (N, ..., C), gamma and beta (C), eps above 0. */
oct_tensor *oct_layer_norm(oct_context *cx, oct_tensor *x, oct_param *gamma, oct_param *beta,
                           double eps);
/* Normalizes each group of neighbouring channels of each sample over its positions: x (N, ..., C), groups that divide C,
 * eps above 0. As many groups as channels: instance norm. */
oct_tensor *oct_group_norm(oct_context *cx, oct_tensor *x, oct_param *gamma, oct_param *beta,
                           const oct_group_norm_args *args);

/* Gives each sample the parameter's value: x (N, ...), of any type, only sets N -> (N, dims of weight). */
oct_tensor *oct_parameter(oct_context *cx, oct_tensor *x, oct_param *weight);
/* Add the parameter to each sample, or multiply by it: x (N, dims), weight (dims), of 1 where it repeats. */
oct_tensor *oct_add_parameter(oct_context *cx, oct_tensor *x, oct_param *weight);
oct_tensor *oct_mul_parameter(oct_context *cx, oct_tensor *x, oct_param *weight);

#define OCT_INPUTS_1 oct_tensor *x
#define OCT_INPUTS_2 oct_tensor *a, oct_tensor *b
#define OCT_PLAIN_OP(name, inputs, form)                                                           \
    oct_tensor *oct_##name(oct_context *cx, OCT_INPUTS_##inputs);
#include "core/op/plain_op_list.def"
#undef OCT_PLAIN_OP
#define OCT_ELEMENTWISE(name, args)                                                                \
    oct_tensor *oct_##name(oct_context *cx, oct_tensor *x OCT_ELEMENTWISE_ARGS_##args);
#include "core/op/elementwise_list.def"
#undef OCT_ELEMENTWISE

/* min(max(x, lo), hi), where lo <= hi; either may be infinite. The gradient passes within the bounds and on them. */
oct_tensor *oct_clip(oct_context *cx, oct_tensor *x, double lo, double hi);
/* x above 0, weight * x elsewhere: x (N, ..., C), weight (C) or (1). */
oct_tensor *oct_prelu(oct_context *cx, oct_tensor *x, oct_param *weight);
/* In a step that learns (oct_draws): values are 0 with probability p, others x / (1 - p); elsewhere x itself. f32 or
 * codes; of codes only the scale grows. 0 <= p < 1. */
oct_tensor *oct_dropout(oct_context *cx, oct_tensor *x, double p);
oct_tensor *oct_add_scalar(oct_context *cx, oct_tensor *x, double value);
oct_tensor *oct_mul_scalar(oct_context *cx, oct_tensor *x, double value);
/* Resizes images: (N, H, W, C) -> (N, out_h, out_w, C). The modes are in core/tensor/resize.h; nearest, bilinear
 * and that with corners are those of torch.nn.functional.interpolate. */
oct_tensor *oct_interpolate(oct_context *cx, oct_tensor *x, int64_t out_h, int64_t out_w,
                            oct_interpolation mode);
/* Returns a new tensor over the data of x in another shape, which `op` has checked, and records `op` on the tape. */
oct_tensor *oct_view_as(oct_context *cx, const char *op, oct_tensor *x, oct_shape shape);
/* Views the same values in another shape; dim[0] of `shape` is ignored and stays the batch. f32 or
 * codes. */
oct_tensor *oct_reshape(oct_context *cx, oct_tensor *x, oct_shape shape);
/* Drops the dimensions of size 1 after the batch, or this one, if it has size 1; dim: 1 or more. Any
 * type; a view. */
oct_tensor *oct_squeeze(oct_context *cx, oct_tensor *x);
oct_tensor *oct_squeeze_dim(oct_context *cx, oct_tensor *x, int dim);
/* Takes the mean along dimension `axis`, 1 or more, or over both of (N, H, W, C)'s plane. keep: a dimension of
 * 1 stays in its place. OCT_MEAN_PLANE: over the plane. */
oct_tensor *oct_mean(oct_context *cx, oct_tensor *x, int axis, bool keep);
/* Concatenates tensors along the last dimension. */
oct_tensor *oct_concat(oct_context *cx, oct_tensor *const *x, int n);
/* Takes the maximum over windows, where padding never counts. f32 or codes (order of codes = order of
 * values); the gradient goes to the first maximum of a window in row-major order, as in PyTorch. */
oct_tensor *oct_max_pool(oct_context *cx, oct_tensor *x, oct_pool_geometry geometry);
/* Takes the mean over the positions of windows that lie in x, or over those in its padding too
 * (oct_pool_count). */
oct_tensor *oct_avg_pool(oct_context *cx, oct_tensor *x, oct_pool_geometry geometry);

/* The loss oct_loss_cross_entropy of logits (N, K) and N labels in [0, K), as oct_loss_apply. */
oct_tensor *oct_cross_entropy(oct_context *cx, oct_tensor *logits, const int32_t *labels,
                              float smoothing, oct_loss *result);
/* Ends a forward in its loss, as torch.nn.functional.cross_entropy(logits, target):
 * target (N, K) f32, the probability of each class, or (N) class numbers, s32 or f32. The gradient
 * goes to logits and to probabilities. Smoothing: 0 to 1. */
oct_tensor *oct_cross_entropy_loss(oct_context *cx, oct_tensor *logits, oct_tensor *target,
                                   double smoothing);

/* Pads images (N, H, W, C), or tensors of fewer dimensions, by a constant or by their values; a dimension that is
 * missing gets none. f32. */
oct_tensor *oct_pad(oct_context *cx, oct_tensor *x, const oct_padding *padding);
/* The backward of a node that padded its input like this: values outside of it get no gradient. */
void oct_pad_add_grad(oct_context *cx, oct_node *node, const oct_pad_shape *shape);

/* Ops that move values, all by one map (core/tensor/move.h): split a tensor, order its dimensions otherwise, put
 * pixels into channels and back.
 *
 * They take f32 values or codes, and give back what they take; the gradient goes back to where each value came
 * from. Axes and dimensions count from 1: 0 is the batch, which stays. NULL with the context failed when something
 * does not fit.
 */

/* Copies the values of each sample in the order that the map's strides say: (N, ...) -> (N, dims of map->out). */
oct_tensor *oct_move(oct_context *cx, oct_tensor *x, const oct_move_map *map);

/* Takes `count` places of an axis: begin, begin + step, ...; step may be negative. Several slices split a
 * tensor. */
oct_tensor *oct_slice(oct_context *cx, oct_tensor *x, int axis, int64_t begin, int64_t step,
                      int64_t count);
/* Dimension i of the output is dimension order[i - 1] of x: {3, 1, 2} makes (N, H, W, C) (N, C, H, W). */
oct_tensor *oct_transpose(oct_context *cx, oct_tensor *x, const int *order);
/* Which of a pixel's channels go where in a block of pixels: channel (y * block + x) * C + c (ONNX's DCR), or
 * c * block * block + y * block + x (ONNX's CRD, PyTorch's pixel_shuffle). */
typedef enum oct_depth_order { OCT_DEPTH_DCR, OCT_DEPTH_CRD } oct_depth_order;
/* (N, H, W, C block^2) -> (N, H block, W block, C). */
oct_tensor *oct_depth_to_space(oct_context *cx, oct_tensor *x, int block, oct_depth_order order);
/* (N, H block, W block, C) -> (N, H, W, C block^2). */
oct_tensor *oct_space_to_depth(oct_context *cx, oct_tensor *x, int block, oct_depth_order order);
/* Deals the channels of each group to all groups: channel i of group g becomes channel i * groups + g. */
oct_tensor *oct_channel_shuffle(oct_context *cx, oct_tensor *x, int groups);

/* The backward of PReLU for values that are not those of its input tensor: codes. */
/* Gives the weight and x their gradients. values: what x holds as real numbers; grad: that of the output, which is
 * taken over. Borrowed memory (oct_scratch) stays the caller's. */
void oct_prelu_add_grads(oct_context *cx, oct_param *weight, oct_tensor *x, const float *values,
                         float *grad);
