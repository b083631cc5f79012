/* A float network is what a checkpoint holds, as exporters see it: the calls of its evaluation in order, with the
 * parameters wherever prepare has moved them.
 *
 * It is looked at before prepare, when the model is as its author wrote it; prepare takes its float modules
 * over as they are, so their parameters are found again after it. */
#pragma once

#include "core/autograd/context.h"
#include "core/graph/trace.h"

/* Formats see a float layer in this form, be it a call in a float network or a float fallback of an int8 model; and
 * they see its arrays in the layouts that PyTorch and ONNX have: channels before rows and columns. */
enum { OCT_LAYER_ARRAYS = 64 };

/* A parameter or buffer in the layout of the module that owns it. */
typedef struct oct_layer_array {
    const char *name; /* "weight" */
    oct_shape shape;
    const float *data;
} oct_layer_array;

/* The shape of a tensor, whose batch counts 1. */
typedef struct oct_layer_tensor {
    oct_shape shape;
    /* Where four dimensions (N, H, W, C) have been flattened: these, since other programs flatten
     * (N, C, H, W). Otherwise ndim 0. */
    oct_shape plane;
} oct_layer_tensor;

typedef struct oct_float_layer {
    const char *type; /* of the module */
    const char *name; /* "layer1.0.conv1" */
    oct_op_args args;
    oct_layer_array array[OCT_LAYER_ARRAYS];
    int num_arrays;
} oct_float_layer;

const oct_layer_array *oct_layer_array_find(const oct_float_layer *layer,
                                            const char *name); /* NULL */

/* Does such a layer only pass its input on? */
bool oct_layer_passes(const char *type);
/* Describes x in another shape; a row (N, C) notes as its plane the image that it was flattened from. */
oct_layer_tensor oct_layer_view(const oct_layer_tensor *x, oct_shape shape);

/* An array with the dimensions and the order that PyTorch has. */
typedef struct oct_torch_array {
    int ndim;
    int64_t dim[OCT_MAX_DIMS];
    float *data; /* owned */
} oct_torch_array;
/* Copies an array of a layer into PyTorch's layout. input: of the layer; its plane orders columns of a linear one. */
oct_status oct_torch_array_make(oct_torch_array *made, const oct_float_layer *layer,
                                const oct_layer_array *array, const oct_layer_tensor *input);

/* A module that owned parameters or buffers before prepare. */
typedef struct oct_float_network_owner {
    const oct_module
        *module; /* NULL: gone, such as a batch norm that was folded into its convolution */
    const oct_module_type *type;
    char *path;
    bool found; /* in the prepared model */
} oct_float_network_owner;

typedef struct oct_float_network {
    oct_trace trace; /* of the float model; its modules may be gone: */
    oct_float_network_owner *owners;
    size_t num_owners, cap_owners;
    int64_t *owner_of;         /* by node of the trace; -1: none */
    oct_layer_tensor *tensors; /* by value of the trace */
    int64_t folded;            /* batch norms that are gone */
} oct_float_network;

/* Traces a float model before prepare, and lists the owners of its parameters. example: the shapes of its inputs. */
oct_status oct_float_network_open(oct_float_network *network, oct_module *root,
                                  const oct_example *example);
/* Finds the owners in the prepared model, which must outlive the network. OCT_PREPARE where parameters are gone. */
oct_status oct_float_network_find(oct_float_network *network, oct_module *root);
void oct_float_network_close(oct_float_network *network);

/* Gives an owner as a layer, be it called or not, which borrows from network and model; one that is gone passes its
 * input on (type "identity"). */
void oct_float_network_owner_layer(const oct_float_network *network, int64_t owner,
                                   oct_float_layer *layer);
