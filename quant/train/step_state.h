/* The state of training is what a checkpoint holds of a model and its optimizer, as it is in memory: parameters,
 * buffers, the optimizer's state, averages. It is the same on all ranks, to the bit. */
#pragma once

#include "core/base/registry.h"
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

/* What becomes of a step in which a number is infinite or NaN. */
#define OCT_NONFINITE_LIST(X)                                                                      \
    X(OCT_NONFINITE_STOP, "stop") /* it fails */                                                   \
    X(OCT_NONFINITE_SKIP, "skip") /* it is undone, and the next one may go on */
typedef enum oct_nonfinite { OCT_NONFINITE_LIST(OCT_WORD_ID) } oct_nonfinite;
extern const oct_registry oct_nonfinite_table;

/* Undoing a step: the state is copied before it, and put back when the step is not to count. So a step that was undone
 * leaves the same bits as one that was not taken. */
typedef struct oct_step_undo {
    const oct_step_state *state; /* borrowed */
    uint8_t *copy;               /* of all of it; NULL: not made yet */
    int64_t updates;
    bool average_begun;
} oct_step_undo;

/* Copies the state, which is borrowed; the first call takes the memory. */
oct_status oct_step_undo_keep(oct_step_undo *undo, const oct_step_state *state,
                              const oct_optim *optim) OCT_NODISCARD;
void oct_step_undo_destroy(oct_step_undo *undo);
/* Exchanges what was kept for what there is: that puts the state back; done twice, all is as it was. */
void oct_step_undo_swap(oct_step_undo *undo, oct_optim *optim);
