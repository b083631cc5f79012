/* Float layers become operators of ONNX here: onnx_layer.c has the table of all types.
 *
 * Tensors of four dimensions, (N, H, W, C) in Octet, are (N, C, H, W) in the file; others are as they are. */
#pragma once

#include "core/tensor/move.h"
#include "core/tensor/pad.h"
#include "io/export/layer.h"
#include "io/export/onnx_writer.h"

/* A tensor of the file. name NULL: something has failed. */
typedef struct oct_to_onnx_ref {
    const char *name;
    oct_layer_tensor tensor;
} oct_to_onnx_ref;

/* The shape that a tensor has in the file. */
oct_shape oct_to_onnx_shape(const oct_shape *shape);
/* Gives x with its numbers in Octet's order where they are flattened in the other one. */
oct_to_onnx_ref oct_to_onnx_ordered(oct_to_onnx_writer *w, oct_to_onnx_ref x);
/* Gives x in another shape. */
oct_to_onnx_ref oct_to_onnx_view(oct_to_onnx_writer *w, oct_to_onnx_ref x, oct_shape shape);
/* Give a tensor channels last, in Octet's own shape, and back. */
const char *oct_to_onnx_channels_last(oct_to_onnx_writer *w, oct_to_onnx_ref x);
oct_to_onnx_ref oct_to_onnx_channels_first(oct_to_onnx_writer *w, const char *name,
                                           oct_shape shape);
/* The axis in the file of dimension `dim` of a tensor with `ndim` dimensions. */
int64_t oct_to_onnx_axis(int ndim, int dim);
/* Adds a reshape whose batch stays: dims of the others. */
const char *oct_to_onnx_reshape(oct_to_onnx_writer *w, const char *x, int n, const int64_t *dims);

/* Reads numbers in another order. */
oct_to_onnx_ref oct_to_onnx_move(oct_to_onnx_writer *w, oct_to_onnx_ref x, const oct_move_map *map);

/* Puts values around x; constant: of x's type. */
oct_to_onnx_ref oct_to_onnx_pad(oct_to_onnx_writer *w, oct_to_onnx_ref x, const oct_pad_shape *pad,
                                const char *constant);

/* An operator of two tensors. One may be of fewer numbers, which stand beside all of the other's: (N, C) beside
 * (N, H, W, C). */
oct_to_onnx_ref oct_to_onnx_pair(oct_to_onnx_writer *w, const char *type,
                                 const oct_to_onnx_ref *both);

/* A layer with its inputs. */
typedef struct oct_to_onnx_layer_call {
    const oct_float_layer *layer;
    const oct_to_onnx_ref *input;
    int num_inputs;
    bool own_names; /* its arrays keep their names, "layer1.conv.weight" */
} oct_to_onnx_layer_call;

typedef struct oct_to_onnx_layer_type {
    const char *type;
    int inputs; /* it takes; 0: any number from 1 on */
    int args;   /* it has; -1: any number */
    oct_to_onnx_ref (*write)(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c);
} oct_to_onnx_layer_type;

/* Writes a layer; fails the writer with a problem (OCT_PREPARE) that names it where there is no form for it. */
oct_to_onnx_ref oct_to_onnx_layer_write(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c);

/* What the files of layers share: argument i as a whole number. */
int64_t oct_to_onnx_arg(const oct_to_onnx_layer_call *c, int i);
/* An array of the layer, as a constant in PyTorch's layout. */
const char *oct_to_onnx_array(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c,
                              const char *array);
/* The same of an array (C) that belongs to the tensor, of as many dimensions. */
const char *oct_to_onnx_channel_array(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c,
                                      const char *array);

#define OCT_TO_ONNX_LAYERS(table)                                                                  \
    extern const oct_to_onnx_layer_type oct_to_onnx_##table[];                                     \
    extern const size_t oct_to_onnx_##table##_count
OCT_TO_ONNX_LAYERS(weight_layers);
OCT_TO_ONNX_LAYERS(math_layers);
OCT_TO_ONNX_LAYERS(shape_layers);
