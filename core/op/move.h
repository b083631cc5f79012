/* Ops that move values, all by one map (core/tensor/move.h): split a tensor, order its dimensions otherwise, put
 * pixels into channels and back.
 *
 * They take f32 values or codes, and give back what they take; the gradient goes back to where each value came
 * from. Axes and dimensions count from 1: 0 is the batch, which stays. NULL with the context failed when something
 * does not fit.
 */
#pragma once

#include "core/autograd/tape.h"
#include "core/tensor/move.h"

/* Moves by any map. */
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
/* (N, H, W, C block^2) -> (N, H block, W block, C), and back. */
oct_tensor *oct_depth_to_space(oct_context *cx, oct_tensor *x, int block, oct_depth_order order);
oct_tensor *oct_space_to_depth(oct_context *cx, oct_tensor *x, int block, oct_depth_order order);
/* Deals the channels of each group to all groups: channel i of group g becomes channel i * groups + g. */
oct_tensor *oct_channel_shuffle(oct_context *cx, oct_tensor *x, int groups);
