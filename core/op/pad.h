/* Padding, which values and codes share (core/tensor/pad.h). */
#pragma once

#include "core/autograd/tape.h"
#include "core/tensor/pad.h"

/* Puts values around images (N, H, W, C), or around tensors of fewer dimensions; a dimension that is
 * missing gets none. f32. */
oct_tensor *oct_pad(oct_context *cx, oct_tensor *x, const oct_padding *padding);
/* The backward of a node that padded its input like this: values outside of it get no gradient. */
void oct_pad_add_grad(oct_context *cx, oct_node *node, const oct_pad_shape *shape);
