/* The order of features: where a model flattens an image, its features stand as (h, w, c), and those of a
 * framework with channels first as (c, h, w). So the columns of a linear layer after a flatten change places,
 * and the rows of one whose output becomes an image. */
#pragma once

#include "core/graph/trace_run.h"

/* The image that features were, or become; c 0: none, or one in which all orders are the same. */
typedef struct oct_feature_order {
    int64_t h, w, c;
} oct_feature_order;

/* Of a module's first call. */
typedef struct oct_module_order {
    const oct_module *module;
    oct_feature_order in, out;
} oct_module_order;

typedef struct oct_model_order {
    oct_module_order *modules;
    int64_t count;
    const oct_module *last_layer; /* the linear layer or convolution that is called last; or NULL */
} oct_model_order;

/* Traces the model in evaluation mode on the example. */
oct_status oct_model_order_of(oct_model_order *order, oct_module *root,
                              const oct_example *example) OCT_NODISCARD;
void oct_model_order_free(oct_model_order *order);
/* NULL: the module is not called. */
const oct_module_order *oct_module_order_of(const oct_model_order *order, const oct_module *module);
