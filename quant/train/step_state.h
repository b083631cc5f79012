/* The state of training is what a checkpoint holds of a model and its optimizer, as it lies in memory: parameters,
 * buffers, the optimizer's state, averages. It is the same on all ranks, to the bit. */
#pragma once

#include "core/nn/module.h"
#include "core/optim/optim.h"

typedef struct oct_state_span {
    void *data;
    size_t bytes, offset; /* offset: in the state */
} oct_state_span;

typedef struct oct_step_state {
    oct_state_span *spans;
    size_t count, capacity, bytes; /* bytes: of all */
} oct_step_state;

/* Lists it, unless that was done already. root and optim stay where they are until it is freed. */
oct_status oct_step_state_list(oct_step_state *state, oct_module *root,
                               const oct_optim *optim) OCT_NODISCARD;
void oct_step_state_free(oct_step_state *state);
/* Digests the k-th of n slices: n calls with all k see every byte. */
uint64_t oct_step_state_digest(const oct_step_state *state, int64_t k, int64_t n);
