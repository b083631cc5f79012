/* Spans of memory are copied, and put back. */
#include "quant/step_undo.h"

#include "core/base/mem.h"

#include <string.h>

static const void *const nonfinite_words[] = {OCT_NONFINITE_LIST(OCT_WORD_ITEM)};
const oct_registry oct_nonfinite_table = OCT_REGISTRY("a mode", nonfinite_words);

typedef struct oct_undo_span {
    void *data;
    size_t bytes, offset; /* offset: in the copy */
} oct_undo_span;

static oct_status add_span(oct_step_undo *undo, void *data, size_t bytes)
{
    OCT_TRY(oct_grow(&undo->spans, &undo->capacity, undo->count + 1, sizeof *undo->spans));
    undo->spans[undo->count++] = (oct_undo_span){data, bytes, undo->bytes};
    undo->bytes += bytes;
    return OCT_OK;
}

static oct_status add_item(void *user, const oct_state_item *item)
{
    const oct_tensor *tensor = item->tensor;
    return add_span(user, tensor->data, (size_t)oct_numel(tensor) * oct_dtype_bytes(tensor->dtype));
}

/* What stands beside an item in the averages. */
typedef struct averages_walk {
    oct_step_undo *undo;
    const oct_average *average;
} averages_walk;

static oct_status add_average(void *user, const oct_state_item *item)
{
    const averages_walk *walk = user;
    float *other = oct_average_of(walk->average, item->tensor);
    if (!other) return OCT_OK;
    return add_span(walk->undo, other, (size_t)oct_numel(item->tensor) * sizeof *other);
}

static oct_status list_spans(oct_step_undo *undo, oct_module *root, const oct_optim *optim)
{
    OCT_TRY(oct_module_state(root, add_item, undo));
    for (int i = 0; i < optim->num_slots; i++)
        OCT_TRY(add_span(undo, optim->slot[i], (size_t)optim->numel * sizeof(float)));
    return oct_module_state(root, add_average, &(averages_walk){undo, &optim->average});
}

oct_status oct_step_undo_create(oct_step_undo *undo, oct_module *root, const oct_optim *optim)
{
    if (undo->copy) return OCT_OK;
    oct_status status = list_spans(undo, root, optim);
    if (status == OCT_OK) status = oct_alloc(&undo->copy, undo->bytes, 1);
    if (status != OCT_OK) oct_step_undo_destroy(undo);
    return status;
}

void oct_step_undo_destroy(oct_step_undo *undo)
{
    oct_free(&undo->spans);
    oct_free(&undo->copy);
    *undo = (oct_step_undo){0};
}

void oct_step_undo_keep(oct_step_undo *undo, const oct_optim *optim)
{
    undo->updates = optim->updates;
    undo->average_begun = optim->average.begun;
    for (size_t i = 0; i < undo->count; i++) {
        const oct_undo_span *span = &undo->spans[i];
        if (span->bytes > 0) memcpy(undo->copy + span->offset, span->data, span->bytes);
    }
}

void oct_step_undo_put_back(const oct_step_undo *undo, oct_optim *optim)
{
    optim->updates = undo->updates;
    optim->average.begun = undo->average_begun;
    for (size_t i = 0; i < undo->count; i++) {
        const oct_undo_span *span = &undo->spans[i];
        if (span->bytes > 0) memcpy(span->data, undo->copy + span->offset, span->bytes);
    }
}
