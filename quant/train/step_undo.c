/* Spans of memory are copied, and put back. */
#include "quant/train/step_undo.h"

#include "core/base/mem.h"

#include <string.h>

static const void *const nonfinite_words[] = {OCT_NONFINITE_LIST(OCT_WORD_ITEM)};
const oct_registry oct_nonfinite_table = OCT_REGISTRY("a mode", nonfinite_words);

oct_status oct_step_undo_create(oct_step_undo *undo, const oct_step_state *state)
{
    undo->state = state;
    return undo->copy ? OCT_OK : oct_alloc(&undo->copy, state->bytes, 1);
}

void oct_step_undo_destroy(oct_step_undo *undo)
{
    oct_free(&undo->copy);
    *undo = (oct_step_undo){0};
}

void oct_step_undo_keep(oct_step_undo *undo, const oct_optim *optim)
{
    undo->updates = optim->updates;
    undo->average_begun = optim->average.begun;
    for (size_t i = 0; i < undo->state->count; i++) {
        const oct_state_span *span = &undo->state->spans[i];
        if (span->bytes > 0) memcpy(undo->copy + span->offset, span->data, span->bytes);
    }
}

void oct_step_undo_put_back(const oct_step_undo *undo, oct_optim *optim)
{
    optim->updates = undo->updates;
    optim->average.begun = undo->average_begun;
    for (size_t i = 0; i < undo->state->count; i++) {
        const oct_state_span *span = &undo->state->spans[i];
        if (span->bytes > 0) memcpy(span->data, undo->copy + span->offset, span->bytes);
    }
}

static void swap_bytes(uint8_t *a, uint8_t *b, size_t bytes)
{
    uint8_t some[4096];
    for (size_t at = 0; at < bytes; at += sizeof some) {
        const size_t n = bytes - at < sizeof some ? bytes - at : sizeof some;
        memcpy(some, a + at, n);
        memcpy(a + at, b + at, n);
        memcpy(b + at, some, n);
    }
}

void oct_step_undo_swap(oct_step_undo *undo, oct_optim *optim)
{
    const int64_t updates = optim->updates;
    const bool begun = optim->average.begun;
    optim->updates = undo->updates;
    optim->average.begun = undo->average_begun;
    undo->updates = updates;
    undo->average_begun = begun;
    for (size_t i = 0; i < undo->state->count; i++) {
        const oct_state_span *span = &undo->state->spans[i];
        swap_bytes(span->data, undo->copy + span->offset, span->bytes);
    }
}
