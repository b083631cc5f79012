/* Ops share these checks of their inputs. */
#pragma once

#include "core/autograd/tape.h"
#include "core/tensor/conv_shape.h"

/* Fails the context unless the two are there. */
bool oct_needs_params(oct_context *cx, const char *op, const oct_param *a, const oct_param *b);

/* Fails the context unless x holds f32 values. */
bool oct_needs_f32(oct_context *cx, const char *op, const oct_tensor *x);

/* Fails the context unless x holds f32 values or codes (u8 or u16). */
bool oct_needs_values_or_codes(oct_context *cx, const char *op, const oct_tensor *x);

/* Fails the context unless x holds as many samples as the context's leaves: for ops that sum over
 * samples. */
bool oct_needs_batch(oct_context *cx, const char *op, const oct_tensor *x);

/* Fails the context unless x is a batch of images (N, H, W, C) of one pixel or more. */
bool oct_needs_images(oct_context *cx, const char *op, const oct_tensor *x);

/* A NaN stays a NaN, so that a broken run is seen. */
static inline float oct_bounded(oct_bound bound, float value)
{
    if (bound != OCT_BOUND_NONE) value = value <= 0.0F ? 0.0F : value;
    return bound == OCT_BOUND_RELU6 && value >= 6.0F ? 6.0F : value;
}

/* Values of one sample of a tensor; -1 on overflow. */
int64_t oct_sample_numel(const oct_shape *shape);
/* Positions of a sample of (N, ..., C): the product of the dimensions between the two. */
int64_t oct_sample_positions(const oct_tensor *x);

/* Gives the shape of a pool over x (N, H, W, C). Fails the context unless its windows fit into it. */
bool oct_pool_fits(oct_context *cx, const char *op, const oct_tensor *x, const oct_pool_geometry *g,
                   oct_conv_shape *s);
