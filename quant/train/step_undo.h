/* Undoing a step: what a step may change, the state of training, is copied before it, and put back when the step is not
 * to count. So a step that was undone leaves the same bits as one that was not taken. */
#pragma once

#include "core/base/registry.h"
#include "quant/train/step_state.h"

/* What becomes of a step in which a number is infinite or NaN. */
#define OCT_NONFINITE_LIST(X)                                                                      \
    X(OCT_NONFINITE_STOP, "stop") /* it fails */                                                   \
    X(OCT_NONFINITE_SKIP, "skip") /* it is undone, and the next one may go on */
typedef enum oct_nonfinite { OCT_NONFINITE_LIST(OCT_WORD_ID) } oct_nonfinite;
extern const oct_registry oct_nonfinite_table;

typedef struct oct_step_undo {
    const oct_step_state *state; /* borrowed */
    uint8_t *copy;               /* of all of it; NULL: not made yet */
    int64_t updates;
    bool average_begun;
} oct_step_undo;

/* Takes the memory for a copy of the state, unless that was done already. */
oct_status oct_step_undo_create(oct_step_undo *undo, const oct_step_state *state) OCT_NODISCARD;
void oct_step_undo_destroy(oct_step_undo *undo);
void oct_step_undo_keep(oct_step_undo *undo, const oct_optim *optim);
void oct_step_undo_put_back(const oct_step_undo *undo, oct_optim *optim);
/* Exchanges what was kept for what there is; done twice, all is as it was. */
void oct_step_undo_swap(oct_step_undo *undo, oct_optim *optim);
