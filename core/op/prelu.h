/* What the backward of PReLU is for values that are not those of its input tensor: codes. */
#pragma once

#include "core/nn/param.h"
#include "core/autograd/tape.h"

/* Gives the weight and x their gradients. values: what x holds as real numbers; grad: that of the output, which is
 * taken over. Borrowed memory (oct_scratch) stays the caller's. */
void oct_prelu_add_grads(oct_context *cx, oct_param *weight, oct_tensor *x, const float *values,
                         float *grad);
