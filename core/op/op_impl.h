/* Ops share these checks of their inputs. */
#pragma once

#include "core/autograd/tape.h"

/* Fails the context unless x holds f32 values. */
bool oct_needs_f32(oct_context *cx, const char *op, const oct_tensor *x);

/* Fails the context unless x holds as many samples as the context's leaves: for ops that sum over
 * samples. */
bool oct_needs_batch(oct_context *cx, const char *op, const oct_tensor *x);

/* Fails the context unless a and b have one shape. */
bool oct_needs_one_shape(oct_context *cx, const char *op, const oct_tensor *a, const oct_tensor *b);

/* Values of one sample of a tensor; -1 on overflow. */
int64_t oct_sample_numel(const oct_shape *shape);

/* A square window that goes over images (h, w, c) and has oh x ow positions. */
typedef struct oct_pool_window {
    int kernel, stride, padding;
    int64_t h, w, c, oh, ow;
} oct_pool_window;

/* Fills in the sizes for x (N, H, W, C). Fails the context unless the window fits into it. */
bool oct_pool_window_fit(oct_context *cx, const char *op, const oct_tensor *x,
                         oct_pool_window *window);
