/* The state is a list of spans of memory, which are digested, copied and put back. */
#include "quant/train/step_state.h"

#include "core/base/int_math.h"
#include "core/base/mem.h"

#include <string.h>

static const void *const nonfinite_words[] = {OCT_NONFINITE_LIST(OCT_WORD_ITEM)};
const oct_registry oct_nonfinite_table = OCT_REGISTRY("a mode", nonfinite_words);

static oct_status add_span(oct_step_state *state, void *data, size_t bytes)
{
    OCT_TRY(oct_grow(&state->spans, &state->capacity, state->count + 1, sizeof *state->spans));
    state->spans[state->count++] = (oct_state_span){data, bytes, state->bytes};
    state->bytes += bytes;
    return OCT_OK;
}

static oct_status add_item(void *user, const oct_state_item *item)
{
    const oct_tensor *tensor = item->tensor;
    return add_span(user, tensor->data, (size_t)oct_numel(tensor) * oct_dtype_bytes(tensor->dtype));
}

/* Visits the items that have an average. */
typedef struct averages_walk {
    oct_step_state *state;
    const oct_average *average;
} averages_walk;

static oct_status add_average(void *user, const oct_state_item *item)
{
    const averages_walk *walk = user;
    float *other = oct_average_of(walk->average, item->tensor);
    if (!other) return OCT_OK;
    return add_span(walk->state, other, (size_t)oct_numel(item->tensor) * sizeof *other);
}

oct_status oct_step_state_list(oct_step_state *state, oct_module *root, const oct_optim *optim)
{
    if (state->spans) return OCT_OK;
    averages_walk averages = {state, &optim->average};
    oct_status status = oct_module_state(root, add_item, state);
    for (int i = 0; i < optim->num_slots && status == OCT_OK; i++)
        status = add_span(state, optim->slot[i], (size_t)optim->numel * sizeof(float));
    if (status == OCT_OK) status = oct_module_state(root, add_average, &averages);
    if (status != OCT_OK) oct_step_state_free(state);
    return status;
}

void oct_step_state_free(oct_step_state *state)
{
    oct_free(&state->spans);
    *state = (oct_step_state){0};
}

uint64_t oct_step_state_digest(const oct_step_state *state, int64_t k, int64_t n)
{
    const int64_t bytes = (int64_t)state->bytes;
    const int64_t begin = bytes / n * k + oct_min_i64(k, bytes % n);
    const int64_t end = begin + bytes / n + (k < bytes % n);
    uint64_t both[2] = {0};
    for (size_t i = 0; i < state->count; i++) {
        const oct_state_span *span = &state->spans[i];
        const int64_t first = oct_max_i64(begin - (int64_t)span->offset, 0);
        const int64_t last = oct_min_i64(end - (int64_t)span->offset, (int64_t)span->bytes);
        if (first >= last) continue;
        both[1] = oct_digest((const char *)span->data + first, (size_t)(last - first));
        both[0] = oct_digest(both, sizeof both);
    }
    return both[0];
}

void oct_step_undo_destroy(oct_step_undo *undo)
{
    oct_free(&undo->copy);
    *undo = (oct_step_undo){0};
}

oct_status oct_step_undo_keep(oct_step_undo *undo, const oct_step_state *state,
                              const oct_optim *optim)
{
    if (!undo->copy) OCT_TRY(oct_alloc(&undo->copy, state->bytes, 1));
    undo->state = state;
    undo->updates = optim->updates;
    undo->average_begun = optim->average.begun;
    for (size_t i = 0; i < undo->state->count; i++) {
        const oct_state_span *span = &undo->state->spans[i];
        if (span->bytes > 0) memcpy(undo->copy + span->offset, span->data, span->bytes);
    }
    return OCT_OK;
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
        uint8_t *now = span->data, *kept = undo->copy + span->offset, some[4096];
        for (size_t at = 0; at < span->bytes; at += sizeof some) {
            const size_t n = span->bytes - at < sizeof some ? span->bytes - at : sizeof some;
            memcpy(some, now + at, n);
            memcpy(now + at, kept + at, n);
            memcpy(kept + at, some, n);
        }
    }
}
