/* Files of convolutions share this run: a linear layer is a convolution with h = w = kernel = 1. */
#pragma once

#include "core/autograd/leaf_grads.h"
#include "core/autograd/tape.h"
#include "core/kernel/conv.h"

typedef struct oct_convolution {
    oct_conv_shape shape;
    oct_param *weight, *bias; /* bias may be NULL */
} oct_convolution;

/* Fails the context unless bias is NULL or has `out` values. */
bool oct_bias_fits(oct_context *cx, const char *op, const oct_param *bias, int64_t out);

/* Runs and records a convolution whose shapes have been checked; y has as many dimensions as x. */
oct_tensor *oct_convolve(oct_context *cx, const char *op, oct_tensor *x, const oct_convolution *v);
