/* A float network is what a checkpoint holds, as exporters see it: the calls of its evaluation in order, with the
 * parameters wherever prepare has moved them.
 *
 * It is looked at before prepare, when the model is as its author wrote it; prepare takes its float modules
 * over as they are, so their parameters are found again after it. */
#pragma once

#include "core/graph/trace_run.h"
#include "io/export/layer.h"

/* A module that owned parameters or buffers before prepare. */
typedef struct oct_float_network_owner {
    const oct_module
        *module; /* NULL: gone, such as a batch norm that was folded into its convolution */
    const oct_module_type *type;
    char *path;
} oct_float_network_owner;

typedef struct oct_float_network {
    oct_trace trace; /* of the float model; its modules may be gone: */
    oct_float_network_owner *owners;
    size_t num_owners, cap_owners;
    int64_t *owner_of;         /* by node of the trace; -1: none */
    oct_layer_tensor *tensors; /* by value of the trace */
    int64_t folded;            /* batch norms that are gone */
} oct_float_network;

/* Looks at a float model before prepare. example: shapes. */
oct_status oct_float_network_open(oct_float_network *network, oct_module *root,
                                  const oct_example *example) OCT_NODISCARD;
/* Finds its modules again in what has become of the model, which must outlive the network. OCT_PREPARE where
 * parameters are gone. */
oct_status oct_float_network_find(oct_float_network *network, oct_module *root) OCT_NODISCARD;
void oct_float_network_close(oct_float_network *network);

/* Gives node i of the trace as a layer, which borrows from network and model; a layer that is gone passes its
 * input on (type "identity"). */
void oct_float_network_layer(const oct_float_network *network, int64_t i, oct_float_layer *layer);
/* Gives an owner as a layer, be it called or not. */
void oct_float_network_owner_layer(const oct_float_network *network, int64_t owner,
                                   oct_float_layer *layer);
/* Is no call before i of the same owner? */
bool oct_float_network_is_first_call(const oct_float_network *network, int64_t i);
