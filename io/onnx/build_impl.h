/* The sources of the builder share this:
 *
 * view.c               how a value lies in a tensor
 * build_pattern.c      what several nodes compute together
 * build_layout.c       views are laid out, modules are called
 * build_name.c         names of files and paths
 * build_window.c       convolutions, pools, batch norm, images padded and resized
 * build_linear.c       products with weights, and of two activations
 * build_elementwise.c  functions of one value, and what is composed of them
 * build_arithmetic.c   sums and products of two values, or of one and a constant
 * build_move.c         what only moves values
 * build_norm.c         normalizations, means, softmax
 * build.c              all nodes in their order, and what cannot be built
 *
 * A builder function is called for a node whose inputs are all there. It sets the views of its outputs, or
 * returns OCT_PREPARE (or OCT_USAGE, as modules do that are made from wrong numbers) with one sentence that ends
 * with a remedy; the node's name is put before it.
 */
#pragma once

#include "core/autograd/context.h"
#include "io/onnx/build.h"
#include "io/onnx/view.h"

/* The function of a pattern's last node: its type, inputs and numbers (eps, bounds, ...). */
typedef struct oct_onnx_fused {
    const char *type; /* of build_list.def; NULL: the node stands for itself */
    int32_t input[2];
    int inputs;
    double number[2];
    const oct_onnx_node *inner;  /* the node of the pattern whose attributes count */
    int64_t before[2], after[2]; /* of a Conv: what a Pad before it adds */
} oct_onnx_fused;

/* A layer's weights and bias, and how they go into it. */
typedef struct oct_onnx_layer {
    const oct_onnx_value *weight, *bias; /* bias: NULL where there is none */
    double alpha, beta;                  /* factors of the two */
    oct_file_order order;                /* of the weights */
    int32_t output;                      /* the first result of a module with them */
} oct_onnx_layer;

typedef struct oct_onnx_builder {
    const oct_onnx_graph *graph;
    const oct_onnx_build_options *options;
    oct_module *network;
    int64_t output;      /* the value that counts */
    oct_onnx_view *view; /* of each value that has one */
    bool *has_view;
    int32_t *producer;           /* the node of each value; -1 */
    int32_t *reads;              /* of each value, by nodes that are needed and as the output */
    int32_t *last_reader;        /* the last node that reads it; -1 */
    oct_onnx_layer *first_layer; /* of each constant: the first layer that has it as its weights */
    uint8_t *usage;              /* of each constant: in what ways, for build_name.c */
    oct_onnx_fused *fused;       /* of each node */
    bool *needed, *absorbed;     /* nodes; absorbed: another one computes its result */
    int64_t current;             /* the node that is built now */
    int32_t result; /* the value that its first output is; another node's that it has taken in */
    char path[208]; /* of its modules */
    bool named;     /* a module has this path */
} oct_onnx_builder;

typedef oct_status (*oct_onnx_builder_function)(oct_onnx_builder *b, const oct_onnx_node *n);

/* Finds groups of nodes that compute one known function, and sets `fused` of the last node of each. */
void oct_onnx_find_patterns(oct_onnx_builder *b);
/* The type and an input of a node, as a pattern has left them. */
const char *oct_build_type(const oct_onnx_builder *b, int64_t node);
int oct_build_inputs(const oct_onnx_builder *b, int64_t node);
int32_t oct_build_input(const oct_onnx_builder *b, int64_t node, int i);
/* A constant of one element; its value. */
bool oct_build_scalar(const oct_onnx_builder *b, int32_t value, double *x);
/* Reads the bounds of a Clip; false when they are computed. */
bool oct_build_bounds(const oct_onnx_builder *b, const oct_onnx_node *n, double *lo, double *hi);
/* Sets the path of a node's modules, from the name of its first parameter or else its own: "layer1.0.conv1". */
void oct_build_set_path(oct_onnx_builder *b, const oct_onnx_node *n);
/* Copies a constant, times a factor, into the parameter or buffer `name` of the module whose result is `output`, and
 * records the constant's name for it. It is frozen where the constant does not come from the file's parameters. */
oct_status oct_build_fill(oct_onnx_builder *b, int32_t output, const char *name,
                          const oct_onnx_value *constant, const oct_file_order *order,
                          double factor);
/* Copies a constant in that way, element by element in its order, without a factor. */
oct_status oct_build_fill_flat(oct_onnx_builder *b, int32_t output, const char *name,
                               const oct_onnx_value *v);
/* Sets whether training leaves a parameter of the module whose result is `output` unchanged. Ignores buffers. */
void oct_build_freeze(const oct_onnx_builder *b, int32_t output, const char *name, bool frozen);
/* The *count elements of the parameter or buffer `name` of the module whose result is `output`; NULL: it has none. */
float *oct_build_data(const oct_onnx_builder *b, int32_t output, const char *name, int64_t *count);

/* Layout: */
/* The constant that input i is; NULL: it is computed or left out. */
const oct_onnx_value *oct_build_constant(const oct_onnx_builder *b, const oct_onnx_node *n, int i);
/* Input i, which must be a constant of float32: weights, a bias, statistics. */
oct_status oct_build_weights(const oct_onnx_builder *b, const oct_onnx_node *n, int i,
                             const oct_onnx_value **constant);
/* The view of input i. A constant whose dimension 0 is 1 becomes a parameter that every sample of the batch sees. */
oct_status oct_build_view(oct_onnx_builder *b, const oct_onnx_node *n, int i, oct_onnx_view *v);
/* The view of input i where ONNX broadcasts it to the node's result: a constant gets dimensions of 1 in front. */
oct_status oct_build_operand(oct_onnx_builder *b, const oct_onnx_node *n, int i, oct_onnx_view *v);
/* Calls add, sub, mul or div on two views, with the shape that ONNX broadcasts them to; *output: the result's view. */
oct_status oct_build_call_binary(oct_onnx_builder *b, const char *type, const oct_onnx_view *left,
                                 const oct_onnx_view *right, oct_onnx_view *output);
/* Sets the view of the node's first output, or of any value; OCT_DATA where the file declares another shape. */
oct_status oct_build_set_result(oct_onnx_builder *b, const oct_onnx_view *v);
oct_status oct_build_set_view(oct_onnx_builder *b, int32_t value, const oct_onnx_view *v);
/* Adds a module of this type, called on these values of the network; *value is its result. One that only moves elements
 * is not added twice for the same input and arguments. */
oct_status oct_build_call(oct_onnx_builder *b, const char *type, const oct_op_args *args,
                          const int32_t *inputs, int n, int32_t *value);
/* Calls a layer on `input`: a new module filled with the file's weights, or, where a module has the same weights, bias
 * and arguments, that one again (shared weights). *is_new: the caller fills in the bias. */
oct_status oct_build_call_layer(oct_onnx_builder *b, const char *type, const oct_op_args *args,
                                const oct_onnx_layer *layer, int32_t input, int32_t *value,
                                bool *is_new);
/* Calls a module that computes each element by itself on the whole tensor of a view, which keeps its dimensions. */
oct_status oct_build_call_unary(oct_onnx_builder *b, const char *type, const oct_op_args *args,
                                oct_onnx_view *v);
/* Puts the view's elements row-major into a tensor of this shape, its dimensions (without the batch) in this order,
 * from outer to inner. Modules move or reshape them only where they do not lie so. */
oct_status oct_build_lay_out(oct_onnx_builder *b, oct_onnx_view *v, const int *order, int n,
                             oct_shape shape);
/* Makes the view see each element of its tensor once, in the order in which they lie now; of 4 dimensions at most. */
oct_status oct_build_lay_out_natural(oct_onnx_builder *b, oct_onnx_view *v);
/* Lays the view out with the marked dimensions after all others, as (N, rest, size) or (N, size): `size` is the product
 * of the marked ones, `rest` that of the others. */
oct_status oct_build_lay_out_last(oct_onnx_builder *b, oct_onnx_view *v,
                                  const bool last[OCT_VIEW_ATOMS]);
/* Lays an image (N, C, H, W), or a sequence (N, C, L) with H = 1, out as a tensor (N, H, W, C). */
oct_status oct_build_lay_out_image(oct_onnx_builder *b, oct_onnx_view *v);
/* The view (N, C, H, W), or of 3 dimensions (N, C, W), of a tensor (N, H, W, C). */
oct_onnx_view oct_build_image(int32_t value, int dims, int64_t h, int64_t w, int64_t c);
/* The constant that the only node that reads the current result adds or multiplies it with (type: Add, Mul), when all
 * its elements lie in `count` dimensions of these sizes, which `after` others of the result's `dims` follow. That node
 * becomes part of the current one, which then computes its result. NULL: there is none. */
const oct_onnx_value *oct_build_take_constant(oct_onnx_builder *b, const char *type, int dims,
                                              const int64_t *size, int count, int after);

/* Every operator. */
#define OCT_ONNX_BUILD(name, function)                                                             \
    oct_status oct_build_##function(oct_onnx_builder *b, const oct_onnx_node *n);
#include "io/onnx/build_list.def"
#undef OCT_ONNX_BUILD
