/* Traces a model: runs it once on an example and records what is executed. */
#pragma once

#include "core/graph/trace.h"

/* An example is what a model is traced on: the shapes of its inputs, with any batch. Inputs that only
 * training has, such as the target of a loss that the forward computes, come after the others:
 *     oct_example example = *OCT_EXAMPLE(image, target);
 *     example.count = 1, example.training_count = 2; */
typedef struct oct_example {
    int count;
    int training_count; /* in training mode; 0: count */
    oct_shape shape[OCT_MODEL_INPUTS];
    const float *data[OCT_MODEL_INPUTS]; /* of one sample; NULL: zeros */
} oct_example;
#define OCT_EXAMPLE(...)                                                                           \
    (&(oct_example){.count = (int)(sizeof((oct_shape[]){__VA_ARGS__}) / sizeof(oct_shape)),        \
                    .shape = {__VA_ARGS__}})

/* Runs root in eval mode (restored afterwards) on zeros of these shapes with a batch of 1 and
 * records what is executed. */
oct_status oct_trace_run(oct_trace *trace, oct_module *root,
                         const oct_example *example) OCT_NODISCARD;
/* Records what training executes: containers, whose forwards may branch, are in training mode;
 * atomic modules stay in eval mode, so nothing is observed and no statistic moves. */
oct_status oct_trace_training(oct_trace *trace, oct_module *root,
                              const oct_example *example) OCT_NODISCARD;
/* Records as oct_trace_run, and shows each value as it is made, with its data. */
typedef void (*oct_trace_watch_fn)(void *user, int64_t value, const oct_tensor *tensor);
oct_status oct_trace_watch(oct_trace *trace, oct_module *root, const oct_example *example,
                           oct_trace_watch_fn watch, void *user) OCT_NODISCARD;
