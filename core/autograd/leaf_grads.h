/* Parameter gradients and other sums over the samples of a step are taken leaf by leaf.
 *
 * For small parameters a backward adds to one row a leaf; large parameters take the streams of
 * leaf_stream.h.
 */
#pragma once

#include "core/autograd/context.h"
#include "core/nn/param.h"

/* An op that records calls this for each parameter that it uses: uses are counted, so the last one
 * in backward folds. */
void oct_param_used(oct_context *cx, oct_param *param);
/* True when gradients may be added to it now; else the context has failed. */
bool oct_param_needs_grads(oct_context *cx, const oct_param *param);

/* Returns rows of leaf gradients (leaves.local x numel), zeroed at the first use of this backward;
 * add to row i what leaf i contributes, then end. The last end folds them into the parameter's
 * parts. */
float *oct_leaf_grads_begin(oct_context *cx, oct_param *param);
void oct_leaf_grads_end(oct_context *cx, oct_param *param);
/* Ends a backward: folds the rows of parameters that a branch without a gradient used too, and
 * drops all rows of a backward that failed. */
void oct_leaf_grads_close(oct_context *cx);

/* Adds a leaf's own vector to the digest of the context's watch, which that leaf is under. */
void oct_leaf_watch_add(oct_context *cx, const void *vector, size_t bytes);

/* True when the leaves are those of the whole batch; else the context fails, and whoever runs the parts sees
 * that a sum was asked for. */
bool oct_batch_is_whole(oct_context *cx);
/* total (n) = the sum over all leaves of all ranks of rows (leaves.local, n), which are folded in
 * place. False when the context has failed, as it does for a part of a batch. A collective call. */
bool oct_sum_over_ranks(oct_context *cx, double *rows, int64_t n, double *total);
