/* The exponential moving average of a model's weights (EMA), and of the running statistics of its batch
 * norms. A model that is judged and deployed by the averages is often better than the one that the last
 * steps have left.
 *
 * The memory here holds whichever of the two the model does not hold: a swap exchanges them.
 */
#pragma once

#include "core/nn/params.h"

typedef struct oct_average_options {
    double decay; /* share of the average that a step leaves; 0: there is no average */
    bool
        warmup; /* the decay begins low: the smaller of it and (1 + t) / (10 + t), t the updates before */
} oct_average_options;

typedef struct oct_average {
    oct_average_options options;
    struct oct_average_span *spans; /* of the model's memory, one after another here */
    size_t count, capacity;
    float *values; /* NULL: there is no average */
    bool begun;    /* there is something in it */
    bool in_model; /* the model holds the averages, and the memory here what is trained */
} oct_average;

/* params: the bound ones of root. With a decay of 0 it does nothing. */
oct_status oct_average_create(oct_average *average, const oct_average_options *options,
                              oct_module *root, const oct_params *params) OCT_NODISCARD;
void oct_average_destroy(oct_average *average);
/* Takes what the model holds into the averages, after an update: average += (1 - decay) * (value - average),
 * in float. updates: done by now; the first one begins the averages with what the model holds. */
void oct_average_update(oct_average *average, int64_t updates);
/* Puts the averages into the model, or what is trained back there; nothing before the first update. */
void oct_average_put(oct_average *average, bool averages);
/* Where a tensor of the model has its other value here; NULL: it has none. */
float *oct_average_of(const oct_average *average, const oct_tensor *tensor);
