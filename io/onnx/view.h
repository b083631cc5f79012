/* How a value of an ONNX graph lies in a tensor of Octet.
 *
 * ONNX computes on (N, C, H, W) and moves dimensions about; Octet keeps images as (N, H, W, C). So a value is
 * held as a view: each of its dimensions is a row of atoms, an atom a size and a stride within the sample. The
 * result of a convolution is the NHWC tensor seen with the strides (1, W C, C). Transpose, Reshape, Slice,
 * Expand and their kin only change the view; what needs a layout of its own has the view laid out.
 */
#pragma once

#include "io/onnx/graph.h"

enum { OCT_VIEW_ATOMS = 16 };

typedef struct oct_view_atom {
    int64_t size, stride; /* size OCT_ONNX_BATCH: the samples themselves, without a stride */
} oct_view_atom;

typedef struct oct_onnx_view {
    int32_t value;   /* of the network */
    oct_shape shape; /* of its tensor; dim[0] is the batch */
    int dims;
    int num_atoms[OCT_VIEW_ATOMS]; /* of each dimension, from outer to inner; 0: its size is 1 */
    oct_view_atom atom[OCT_VIEW_ATOMS];
    int64_t offset;
} oct_onnx_view;

/* A view with these dimensions (the batch among them) of a tensor that holds them row-major. */
oct_onnx_view oct_view_of(int32_t value, oct_shape shape, int dims, const int64_t *size);
/* A view with these dimensions of a tensor that holds them in another order, in which the batch is left out; dimensions
 * that are not in it have size 1. */
oct_onnx_view oct_view_in_order(int32_t value, oct_shape shape, int dims, const int64_t *size,
                                const int *order, int n);
/* A dimension's size; negative where it holds the batch, as in oct_onnx_value. */
int64_t oct_view_size(const oct_onnx_view *v, int dim);
/* The index in `atom` of a dimension's first atom; of dimension `dims` how many atoms there are. */
int oct_view_first_atom(const oct_onnx_view *v, int dim);
int oct_view_batch(const oct_onnx_view *v);     /* the dimension that holds the batch; -1: none */
int64_t oct_view_numel(const oct_onnx_view *v); /* of a sample */
int64_t oct_view_tensor_numel(const oct_onnx_view *v); /* values of a sample of the tensor */
/* Every value of the tensor is seen once. */
bool oct_view_is_whole(const oct_onnx_view *v);

/* These make another view of the same tensor, or say false when there is none. */
bool oct_view_reshape(const oct_onnx_view *v, int dims, const int64_t *size, oct_onnx_view *out);
/* `count` elements of a dimension, from `start` on by `step`. */
bool oct_view_slice(const oct_onnx_view *v, int dim, int64_t start, int64_t count, int64_t step,
                    oct_onnx_view *out);
/* Dimensions of size 1 become `size`; missing ones are put in front. */
bool oct_view_expand(const oct_onnx_view *v, int dims, const int64_t *size, oct_onnx_view *out);
/* The dimensions in another order, or `n` of them alone. */
oct_onnx_view oct_view_transpose(const oct_onnx_view *v, const int *order, int n);
/* Dimension `dim` repeated as a whole. */
bool oct_view_tile(const oct_onnx_view *v, int dim, int64_t times, oct_onnx_view *out);
/* Replaces the atoms of a dimension by `count` others; false: there are too many. */
bool oct_view_set_atoms(oct_onnx_view *v, int dim, const oct_view_atom *atom, int count);
/* The atoms of a dimension become one of this stride. */
void oct_view_merge(oct_onnx_view *v, int dim, int64_t stride);
/* Copies all atoms in order, with neighbors that go through memory like one merged, also of different dimensions; returns
 * how many. */
int oct_view_merge_atoms(const oct_onnx_view *v, oct_view_atom atom[OCT_VIEW_ATOMS]);
/* Each atom is a dimension of its own. */
oct_onnx_view oct_view_split(const oct_onnx_view *v);
/* Writes the dimensions without the batch in the order in which they lie in memory; returns how many. */
int oct_view_order(const oct_onnx_view *v, int order[OCT_VIEW_ATOMS]);
