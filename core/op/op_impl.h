/* What the ops share: checks of their inputs. */
#pragma once

#include "core/autograd/tape.h"

/* Fails the context unless x holds f32 values. */
bool oct_needs_f32(oct_context *cx, const char *op, const oct_tensor *x);

/* Fails the context unless x holds as many samples as the context's leaves: for ops that sum over
 * samples. */
bool oct_needs_batch(oct_context *cx, const char *op, const oct_tensor *x);

/* Fails the context unless a and b have one shape. */
bool oct_needs_one_shape(oct_context *cx, const char *op, const oct_tensor *a, const oct_tensor *b);

/* Fails the context unless a square window fits into x (N, H, W, C); *oh, *ow: positions. */
bool oct_needs_window(oct_context *cx, const char *op, const oct_tensor *x, int kernel, int stride,
                      int padding, int64_t *oh, int64_t *ow);
