/* Activations make one value of one, and the output alone decides about the gradient. */
#pragma once

#include "core/autograd/tape.h"

typedef struct oct_activation_loops {
    const char *name;
    void (*forward)(int64_t n, const float *x, float *restrict y);
    /* Clears the gradient where the output says that none passes. */
    void (*mask_grad)(int64_t n, const float *y, float *restrict grad);
} oct_activation_loops;

oct_tensor *oct_activate(oct_context *cx, oct_tensor *x, const oct_activation_loops *activation);
