/* Evaluation and calibration run forwards without a tape over many samples, some at a time, in bounded
 * memory.
 *
 * The first sample goes alone. It shows how much memory a sample takes, and, where the model's
 * containers only hand tensors on (oct_module_calls_only), who reads what last: from then on activations
 * are freed after their last reader. No bit depends on how many samples go together.
 */
#pragma once

#include "core/autograd/context.h"
#include "core/base/leaves.h"
#include "core/nn/module.h"

typedef struct oct_forward {
    oct_context *cx;   /* borrowed */
    oct_module *model; /* borrowed; its tree and mode stay as they are meanwhile */
    oct_lifetimes *lifetimes;
    int64_t sample_bytes; /* of activations at a time; 0: no sample has run yet */
} oct_forward;

oct_status oct_forward_begin(oct_forward *f, oct_context *cx, oct_module *model) OCT_NODISCARD;
void oct_forward_end(oct_forward *f);

/* How many samples may go next, of `most`: 1 at first, then as many as fit, at least one a thread. */
int64_t oct_forward_samples(const oct_forward *f, int64_t most);
/* x: the leaves' local samples, of this shape. *y lives until the next run. */
oct_status oct_forward_run(oct_forward *f, oct_leaves leaves, oct_shape shape, float *x,
                           const oct_tensor **y) OCT_NODISCARD;
