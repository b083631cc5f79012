/* A folded ONNX graph becomes a network of Octet's modules, with the file's weights in it.
 *
 * Parameters keep the file's names as module paths ("layer1.0.conv1.weight"), in the letters that paths may
 * have; oct_network_names gives both. Images become (N, H, W, C), weights with them (view.h).
 */
#pragma once

#include "core/nn/network.h"
#include "io/onnx/graph.h"

typedef struct oct_onnx_build_options {
    int64_t h, w, c; /* of an image as Octet's data sets give it: the network takes (N, h, w, c) */
    const char *output;   /* name of the output that counts; NULL or "": the first */
    bool without_softmax; /* a Softmax or ArgMax at the end is left out: the loss has its own */
    bool without_sigmoid;
} oct_onnx_build_options;

typedef struct oct_onnx_built {
    oct_shape output; /* of the network, dim[0] is the batch: (N, classes) or (N, H, W, classes) */
    int32_t last;     /* the value that it is */
} oct_onnx_built;

/* Builds the network. OCT_PREPARE with a sentence for each kind of node that has no counterpart here, all at
 * once; OCT_DATA when the graph contradicts itself. */
oct_status oct_onnx_build(oct_module **network, const oct_onnx_graph *graph,
                          const oct_onnx_build_options *options, oct_onnx_built *built);

/* Reads, folds and builds. options: h, w and c that are 0 are set as the file declares them. */
oct_status oct_onnx_network(oct_module **network, const oct_onnx_source *source,
                            oct_onnx_build_options *options, oct_onnx_built *built);
/* Sets h, w and c to those of a folded graph's input. */
void oct_onnx_set_size(const oct_onnx_graph *graph, oct_onnx_build_options *options);

/* Gives the network another number of outputs: its last layer with weights, a linear one or a
 * convolution, is made anew with initial values that follow from the seed. What comes after it (functions, pools, a
 * bias apart) goes on, with addends of 0 and factors of 1. OCT_PREPARE when there is no such layer. */
oct_status oct_onnx_new_head(oct_module *network, oct_onnx_built *built, int64_t outputs,
                             uint64_t seed);
