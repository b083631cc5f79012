/* Undoing a step: what a step may change is copied before it, and put back when the step is not to count. That is what
 * a checkpoint holds of a model and its optimizer: parameters, buffers, the optimizer's state, averages. So a step
 * that was undone leaves the same bits as one that was not taken. */
#pragma once

#include "core/base/registry.h"
#include "core/nn/module.h"
#include "core/optim/optim.h"

/* What becomes of a step in which a number is infinite or NaN. */
#define OCT_NONFINITE_LIST(X)                                                                      \
    X(OCT_NONFINITE_STOP, "stop") /* it fails */                                                   \
    X(OCT_NONFINITE_SKIP, "skip") /* it is undone, and the next one may go on */
typedef enum oct_nonfinite { OCT_NONFINITE_LIST(OCT_WORD_ID) } oct_nonfinite;
extern const oct_registry oct_nonfinite_table;

typedef struct oct_step_undo {
    struct oct_undo_span *spans;
    size_t count, capacity, bytes;
    uint8_t *copy; /* of all spans, one behind the other; NULL: not made yet */
    int64_t updates;
    bool average_begun;
} oct_step_undo;

/* Lists what is copied, with memory for all of it, unless that was done already. root and optim stay where they are
 * until destroy. */
oct_status oct_step_undo_create(oct_step_undo *undo, oct_module *root,
                                const oct_optim *optim) OCT_NODISCARD;
void oct_step_undo_destroy(oct_step_undo *undo);
void oct_step_undo_keep(oct_step_undo *undo, const oct_optim *optim);
void oct_step_undo_put_back(const oct_step_undo *undo, oct_optim *optim);
