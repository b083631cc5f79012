/* Functions of two tensors, element by element: add, sub, mul and div. Each has its loops; shapes that repeat
 * (core/tensor/broadcast.h), the call site, the record and the sums of gradients are one for all. */
#pragma once

#include "core/autograd/tape.h"
#include "core/tensor/broadcast.h"

typedef struct oct_binary {
    const char *name;
    void (*value)(int64_t n, const float *a, const float *b, float *restrict y);
    /* The gradient of an input in y, which holds the output's; NULL: it is the output's. */
    void (*grad[2])(int64_t n, const float *a, const float *b, float *restrict y);
} oct_binary;

extern const oct_binary oct_binary_add, oct_binary_sub, oct_binary_mul, oct_binary_div;

/* y = f(a, b), value by value; the smaller input repeats along channels or positions. f32. */
oct_tensor *oct_binary_apply(oct_context *cx, const oct_binary *f, oct_tensor *a, oct_tensor *b);

/* Hands the gradients of both inputs over; values[i] are those of node->input[i], which may hold codes; NULL of a sum
 * or a difference, whose gradients need none. grad: the output's, borrowed, which is used up. */
void oct_binary_add_grads(oct_context *cx, const oct_binary *f, const oct_node *node,
                          const float *const values[2], float *grad);
