/* Formats see a float layer in this form, be it a call in a float network or a float fallback of an int8 model; and
 * they see its arrays in the layouts that PyTorch and ONNX have: channels before rows and columns. */
#pragma once

#include "core/autograd/call.h"

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

/* Does such a layer compute each number from one number of its input alone, so that their order does not
 * matter? Does it only pass its input on? */
bool oct_layer_is_pointwise(const char *type);
bool oct_layer_passes(const char *type);
/* Gives a view of x in another shape the plane that it then has. */
oct_layer_tensor oct_layer_view(const oct_layer_tensor *x, oct_shape shape);

/* An array with the dimensions and the order that PyTorch has. */
typedef struct oct_torch_array {
    int ndim;
    int64_t dim[OCT_MAX_DIMS];
    float *data; /* owned */
} oct_torch_array;
/* Makes it of an array of a layer. input: of the layer. */
oct_status oct_torch_array_make(oct_torch_array *made, const oct_float_layer *layer,
                                const oct_layer_array *array,
                                const oct_layer_tensor *input) OCT_NODISCARD;
