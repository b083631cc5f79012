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

#include "core/autograd/call.h"
#include "io/onnx/build.h"
#include "io/onnx/view.h"

/* What a pattern has made of a node: another type with these inputs and numbers. */
typedef struct oct_onnx_fused {
    const char *type; /* of build_list.def; NULL: the node stands for itself */
    int32_t input[2];
    int inputs;
    double number[2];
    const oct_onnx_node *inner;  /* the node inside whose attributes count */
    int64_t before[2], after[2]; /* of a Conv: what a Pad before it adds */
} oct_onnx_fused;

/* A layer's weights and bias, and how they go into it. */
typedef struct oct_onnx_layer {
    const oct_onnx_value *weight, *bias; /* bias: NULL where there is none */
    double alpha, beta;                  /* factors of the two */
    oct_file_order order;                /* of the weights */
    int32_t made;                        /* the first result of a module with them */
} oct_onnx_layer;

typedef struct oct_onnx_builder {
    const oct_onnx_graph *graph;
    const oct_onnx_build_options *options;
    oct_module *network;
    int64_t output;      /* the value that counts */
    oct_onnx_view *view; /* of each value that has one */
    bool *has_view;
    int32_t *maker;        /* the node of each value; -1 */
    int32_t *uses;         /* of each value, by nodes that are needed and as the output */
    int32_t *user;         /* the last node that reads it; -1 */
    oct_onnx_layer *owner; /* of each constant: the first layer that has it as its weights */
    uint8_t *used;         /* of each constant: in what ways, for build_name.c */
    oct_onnx_fused *fused; /* of each node */
    bool *needed, *done;   /* nodes; done: another one has taken it in */
    int64_t current;       /* the node that is built now */
    int32_t result; /* the value that its first output is; another node's that it has taken in */
    char path[208]; /* of its modules */
    bool named;     /* a module has this path */
} oct_onnx_builder;

typedef oct_status (*oct_onnx_builder_function)(oct_onnx_builder *b, const oct_onnx_node *n);

/* Pattern: sets `fused`. */
void oct_onnx_find_patterns(oct_onnx_builder *b);
/* The type and an input of a node, as a pattern has left them. */
const char *oct_build_type(const oct_onnx_builder *b, int64_t node);
int oct_build_inputs(const oct_onnx_builder *b, int64_t node);
int32_t oct_build_input(const oct_onnx_builder *b, int64_t node, int i);
/* A constant of one element; its value. */
bool oct_build_scalar(const oct_onnx_builder *b, int32_t value, double *x);
/* Reads the bounds of a Clip; false when they are computed. */
bool oct_build_bounds(const oct_onnx_builder *b, const oct_onnx_node *n, double *lo, double *hi);
/* Name: the path of a node's modules, and of the tensors of a file. */
void oct_build_set_path(oct_onnx_builder *b, const oct_onnx_node *n);
/* Copies a constant, times a factor, into the parameter or buffer `name` of the module that made a result, and writes
 * its name down. It is frozen where the constant does not come from parameters of the file. */
oct_status oct_build_fill(oct_onnx_builder *b, int32_t made, const char *name,
                          const oct_onnx_value *constant, const oct_file_order *order,
                          double factor) OCT_NODISCARD;
/* The same of a list of numbers, in their order. */
oct_status oct_build_fill_flat(oct_onnx_builder *b, int32_t made, const char *name,
                               const oct_onnx_value *v) OCT_NODISCARD;
/* Says whether training leaves that parameter as it is; a buffer it never changes. */
void oct_build_freeze(const oct_onnx_builder *b, int32_t made, const char *name, bool frozen);
/* The parameter or buffer of that module. */
float *oct_build_state(const oct_onnx_builder *b, int32_t made, const char *name, int64_t *count);

/* Layout: */
/* The constant that input i is; NULL: it is computed or left out. */
const oct_onnx_value *oct_build_constant(const oct_onnx_builder *b, const oct_onnx_node *n, int i);
/* A constant of floats that must be there. */
oct_status oct_build_weights(const oct_onnx_builder *b, const oct_onnx_node *n, int i,
                             const oct_onnx_value **constant) OCT_NODISCARD;
/* The view of input i; of a constant that stands where the batch should, a parameter for each sample. */
oct_status oct_build_view(oct_onnx_builder *b, const oct_onnx_node *n, int i,
                          oct_onnx_view *v) OCT_NODISCARD;
/* The same of what is broadcast to the node's result: a constant may have fewer dimensions. */
oct_status oct_build_operand(oct_onnx_builder *b, const oct_onnx_node *n, int i,
                             oct_onnx_view *v) OCT_NODISCARD;
/* Calls a module for two values; one may be broadcast to the other as the node's result says. */
oct_status oct_build_two(oct_onnx_builder *b, const char *type, const oct_onnx_view *left,
                         const oct_onnx_view *right, oct_onnx_view *made) OCT_NODISCARD;
/* Sets the view of the node's result; false dimensions are a defect of the file. */
oct_status oct_build_result(oct_onnx_builder *b, const oct_onnx_view *v) OCT_NODISCARD;
oct_status oct_build_output(oct_onnx_builder *b, int32_t value,
                            const oct_onnx_view *v) OCT_NODISCARD;
/* Calls a new module of the type on values of the network. */
oct_status oct_build_call(oct_onnx_builder *b, const char *type, const oct_op_args *args,
                          const int32_t *inputs, int n, int32_t *value) OCT_NODISCARD;
/* The same of a layer, whose weights are filled in; another node's module with the same ones and the same arguments is
 * called again. The bias is left to the caller: *made says whether there is a module to fill. */
oct_status oct_build_call_layer(oct_onnx_builder *b, const char *type, const oct_op_args *args,
                                const oct_onnx_layer *layer, int32_t input, int32_t *value,
                                bool *made) OCT_NODISCARD;
/* Calls an elementwise module of `count` numbers on what is seen: the view stays, but for its value. */
oct_status oct_build_apply(oct_onnx_builder *b, const char *type, const oct_op_args *args,
                           oct_onnx_view *v) OCT_NODISCARD;
/* Has the view's values lie in a tensor of this shape, its dimensions (without the batch) in this order;
 * moves them only where they do not yet. */
oct_status oct_build_lay_out(oct_onnx_builder *b, oct_onnx_view *v, const int *order, int n,
                             oct_shape shape) OCT_NODISCARD;
/* The same in the order in which they lie now, or in that of the dimensions; of 4 dimensions at most. */
oct_status oct_build_lay_out_natural(oct_onnx_builder *b, oct_onnx_view *v) OCT_NODISCARD;
/* The same with dimension `last` after all others: (N, rest, size) or (N, size). */
oct_status oct_build_lay_last(oct_onnx_builder *b, oct_onnx_view *v,
                              const bool last[OCT_VIEW_ATOMS]) OCT_NODISCARD;
/* (N, C, H, W), or (N, C, L) with H 1, as (N, H, W, C). */
oct_status oct_build_lay_out_image(oct_onnx_builder *b, oct_onnx_view *v) OCT_NODISCARD;
/* The view of such an image of `dims` dimensions. */
oct_onnx_view oct_build_image(int32_t value, int dims, int64_t h, int64_t w, int64_t c);
/* The only node that reads a value, when it is of this type and its other input is a constant; -1: there is
 * none. */
int64_t oct_build_follower(const oct_onnx_builder *b, int32_t value, const char *type,
                           const oct_onnx_value **constant);
/* The node at hand computes what that node does, too. */
void oct_build_take_in(oct_onnx_builder *b, int64_t node);

/* Every operator. */
#define OCT_ONNX_BUILD(name, function)                                                             \
    oct_status oct_build_##function(oct_onnx_builder *b, const oct_onnx_node *n) OCT_NODISCARD;
#include "io/onnx/build_list.def"
#undef OCT_ONNX_BUILD
