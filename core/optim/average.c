/* Averages are kept span by span of the model's memory. */
#include "core/optim/optim.h"

#include "core/base/cpu.h"
#include "core/base/mem.h"
#include "core/nn/modules.h"

#include <string.h>

typedef struct oct_average_span {
    float *data; /* of the model */
    int64_t numel, offset;
} oct_average_span;

/* Appends a tensor of the model to those that are averaged; offset: of its average in average->values. */
static oct_status add_span(oct_average *average, const oct_tensor *tensor)
{
    OCT_TRY(
        oct_grow(&average->spans, &average->capacity, average->count + 1, sizeof *average->spans));
    const oct_average_span *last = average->spans + average->count - 1;
    average->spans[average->count] = (oct_average_span){
        .data = oct_f32(tensor),
        .numel = oct_numel(tensor),
        .offset = average->count > 0 ? last->offset + last->numel : 0,
    };
    average->count++;
    return OCT_OK;
}

static oct_status add_statistics(void *user, oct_module *module)
{
    if (module->type != &oct_batch_norm_type) return OCT_OK;
    for (size_t i = 0; i < module->num_buffers; i++)
        OCT_TRY(add_span(user, &module->buffers[i].tensor));
    return OCT_OK;
}

oct_status oct_average_create(oct_average *average, const oct_average_options *options,
                              oct_module *root, const oct_params *params)
{
    oct_status status = OCT_OK;
    *average = (oct_average){.options = *options};
    if (options->decay == 0) return OCT_OK;
    for (size_t i = 0; i < params->count; i++)
        OCT_TRY_OUT(add_span(average, &params->items[i]->value));
    OCT_TRY_OUT(oct_module_walk(root, add_statistics, average));
    if (average->count > 0) {
        const oct_average_span *last = average->spans + average->count - 1;
        status = oct_alloc(&average->values, (size_t)(last->offset + last->numel), sizeof(float));
    }
out:
    if (status != OCT_OK) oct_average_destroy(average);
    return status;
}

void oct_average_destroy(oct_average *average)
{
    oct_free(&average->spans);
    oct_free(&average->values);
    *average = (oct_average){0};
}

/* average += share * (value - average) */
OCT_CLONES
static void move_towards(int64_t n, float *restrict to, const float *restrict from, float share)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += share * (from[i] - to[i]);
}

void oct_average_update(oct_average *average, int64_t updates)
{
    const double t = (double)(updates - 1), early = (1 + t) / (10 + t);
    double decay = average->options.decay;
    /* Less for the first updates, where a warm-up is wanted. */
    if (average->options.warmup && early < decay) decay = early;
    const float share = (float)(1 - decay);
    if (!average->values) return;
    OCT_ASSERT(!average->in_model);
    for (size_t i = 0; i < average->count; i++) {
        const oct_average_span *span = &average->spans[i];
        float *to = average->values + span->offset;
        if (average->begun)
            move_towards(span->numel, to, span->data, share);
        else
            memcpy(to, span->data, (size_t)span->numel * sizeof(float));
    }
    average->begun = true;
}

void oct_average_swap(oct_average *average, bool want_averages)
{
    if (!average->begun || average->in_model == want_averages) return;
    for (size_t i = 0; i < average->count; i++) {
        float *model = average->spans[i].data, *other = average->values + average->spans[i].offset;
        for (int64_t k = 0; k < average->spans[i].numel; k++) {
            const float held = model[k];
            model[k] = other[k];
            other[k] = held;
        }
    }
    average->in_model = want_averages;
}

float *oct_average_of(const oct_average *average, const oct_tensor *tensor)
{
    for (size_t i = 0; average->values && i < average->count; i++)
        if (average->spans[i].data == tensor->data)
            return average->values + average->spans[i].offset;
    return NULL;
}
