/* What the parts of the format onnx share: the writer of a model, node by node; layers; steps of an int8 model. */
#pragma once

#include "core/tensor/conv_shape.h"
#include "core/tensor/move.h"
#include "core/tensor/pad.h"
#include "core/tensor/tensor.h"
#include "io/export/format.h"
#include "io/export/float_network.h"
#include "io/export/program_parts.h"

/* An ONNX model is written node by node.
 *
 * A writer keeps its first failure, after which every function returns at once, NULL where it names a tensor; so
 * what writes layers has no error plumbing, and oct_to_onnx_writer_end returns it.
 *
 * Tensors are known by their names. What a layer makes on its way is called "<layer>/<operator>_<number>", its
 * constants "<layer>/<name>_<number>"; names without a slash are the caller's. */
typedef struct oct_to_onnx_writer oct_to_onnx_writer;

/* Makes a writer of a model with the operators of version `opset`. */
oct_status oct_to_onnx_writer_create(oct_to_onnx_writer **w, int64_t opset);
void oct_to_onnx_writer_destroy(oct_to_onnx_writer **w);
/* Gives the model's bytes; *bytes is oct_alloc'ed. version: of Octet, which the file names. */
oct_status oct_to_onnx_writer_end(oct_to_onnx_writer *w, const char *version, void **bytes,
                                  size_t *size);

/* Keeps a name for the model's input or output: a tensor of another layer that would have it gets "_" after it. */
const char *oct_to_onnx_keep_name(oct_to_onnx_writer *w, const char *name);

oct_status oct_to_onnx_status(const oct_to_onnx_writer *w);
/* Fails the writer with a problem; more than one may be added. Returns NULL. */
void *oct_to_onnx_fail(oct_to_onnx_writer *w, oct_status code, const char *format, ...)
    OCT_PRINTF(3, 4);

/* What comes from now on belongs to this layer. The name must live as long as the writer. */
void oct_to_onnx_layer_begin(oct_to_onnx_writer *w, const char *layer);
/* A copy of a name that lives as long as the writer; NULL on failure. */
const char *oct_to_onnx_name(oct_to_onnx_writer *w, const char *format, ...) OCT_PRINTF(2, 3);

/* Adds a node with one output and returns the output's name. An input "" is left out; NULL means that something
 * has failed. */
const char *oct_to_onnx_node_add(oct_to_onnx_writer *w, const char *type, int n,
                                 const char *const *input);
#define OCT_TO_ONNX(w, type, ...)                                                                  \
    oct_to_onnx_node_add((w), (type),                                                              \
                         (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)),            \
                         (const char *[]){__VA_ARGS__})
const char *oct_to_onnx_cast(oct_to_onnx_writer *w, const char *x, oct_dtype dtype);
const char *oct_to_onnx_transpose(oct_to_onnx_writer *w, const char *x, int n, const int64_t *perm);
/* Adds a ReduceMean over n axes; opset 18 made an input of its attribute. */
const char *oct_to_onnx_mean(oct_to_onnx_writer *w, const char *x, int n, const int64_t *axes);
/* These give the node that was added last an attribute. */
void oct_to_onnx_int_set(oct_to_onnx_writer *w, const char *name, int64_t value);
void oct_to_onnx_ints_set(oct_to_onnx_writer *w, const char *name, int n, const int64_t *values);
/* Set kernel_shape, strides and pads to those of the windows, and of a convolution dilations and group. */
void oct_to_onnx_windows_set(oct_to_onnx_writer *w, const oct_conv_shape *s);
void oct_to_onnx_conv_set(oct_to_onnx_writer *w, const oct_conv_shape *s);
#define OCT_TO_ONNX_INTS(w, name, ...)                                                             \
    oct_to_onnx_ints_set((w), (name), (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),   \
                         (int64_t[]){__VA_ARGS__})
void oct_to_onnx_float_set(oct_to_onnx_writer *w, const char *name, float value);
void oct_to_onnx_text_set(oct_to_onnx_writer *w, const char *name, const char *value);
/* Renames the output of the node that was added last, and returns the new name; NULL: that is not `output`. */
const char *oct_to_onnx_output_named(oct_to_onnx_writer *w, const char *output, const char *name);

/* Gives zeroed memory that lives as long as the writer; NULL after a failure. */
void *oct_to_onnx_alloc(oct_to_onnx_writer *w, size_t bytes);
/* Adds a constant, whose data are copied. name: NULL for one of the writer's own. */
const char *oct_to_onnx_constant(oct_to_onnx_writer *w, const char *name, oct_dtype dtype, int ndim,
                                 const int64_t *dims, const void *data);
/* Adds a constant without copying its data, which live as long as the writer. */
const char *oct_to_onnx_kept_constant(oct_to_onnx_writer *w, const char *name, oct_dtype dtype,
                                      int ndim, const int64_t *dims, const void *data);
const char *oct_to_onnx_scalar(oct_to_onnx_writer *w, float value);
const char *oct_to_onnx_list(oct_to_onnx_writer *w, int n,
                             const int64_t *values); /* s64, one dimension */
#define OCT_TO_ONNX_LIST(w, ...)                                                                   \
    oct_to_onnx_list((w), (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),               \
                     (int64_t[]){__VA_ARGS__})

/* Declares an input or output of the model, whose first dimension is the batch. */
void oct_to_onnx_declare(oct_to_onnx_writer *w, bool output, const char *name, oct_dtype dtype,
                         const oct_shape *shape);
/* Adds a line to the model's properties; both are copied. */
void oct_to_onnx_property(oct_to_onnx_writer *w, const char *key, const char *value);

/* Float layers become operators of ONNX here: onnx_layer.c and onnx_layer_math.c have the tables of all types.
 *
 * Tensors of four dimensions, (N, H, W, C) in Octet, are (N, C, H, W) in the file; others are as they are. */

/* A tensor of the file. name NULL: something has failed. */
typedef struct oct_to_onnx_ref {
    const char *name;
    oct_layer_tensor tensor;
} oct_to_onnx_ref;

#define OCT_TO_ONNX_NOTHING ((oct_to_onnx_ref){.name = NULL})
/* Fails the writer with a problem (OCT_PREPARE), so that there is no tensor. */
#define OCT_TO_ONNX_REFUSE(w, ...)                                                                 \
    ((oct_to_onnx_ref){.name = oct_to_onnx_fail((w), OCT_PREPARE, __VA_ARGS__)})

/* The shape that a tensor has in the file. */
oct_shape oct_to_onnx_shape(const oct_shape *shape);
/* Reorders the numbers of a tensor that was flattened from (N, C, H, W) to those of (N, H, W, C); others stay. */
oct_to_onnx_ref oct_to_onnx_ordered(oct_to_onnx_writer *w, oct_to_onnx_ref x);
/* Reshapes x. Where channels come first in the file numbers are reordered, but a flattened image notes its plane. */
oct_to_onnx_ref oct_to_onnx_view(oct_to_onnx_writer *w, oct_to_onnx_ref x, oct_shape shape);
/* Transposes (N, C, H, W) of the file to Octet's (N, H, W, C); tensors of other dimensions stay. */
const char *oct_to_onnx_channels_last(oct_to_onnx_writer *w, oct_to_onnx_ref x);
/* Transposes `name`, of this shape with channels last, to (N, C, H, W) of the file; other dimensions stay. */
oct_to_onnx_ref oct_to_onnx_channels_first(oct_to_onnx_writer *w, const char *name,
                                           oct_shape shape);
/* The axis in the file of dimension `dim` of a tensor with `ndim` dimensions. */
int64_t oct_to_onnx_axis(int ndim, int dim);
/* Adds a reshape that keeps the batch; dims: the n dimensions after it. */
const char *oct_to_onnx_reshape(oct_to_onnx_writer *w, const char *x, int n, const int64_t *dims);

/* Reorders the numbers of x by the loops of the map: oct_move_source says which number each one of the output is. */
oct_to_onnx_ref oct_to_onnx_move(oct_to_onnx_writer *w, oct_to_onnx_ref x, const oct_move_map *map);

/* Pads x; constant: what is put around it in that mode, of x's type. */
oct_to_onnx_ref oct_to_onnx_pad(oct_to_onnx_writer *w, oct_to_onnx_ref x, const oct_pad_shape *pad,
                                const char *constant);

/* Adds an operator of two tensors; either may be broadcast to the other: (N, C) to (N, H, W, C). */
oct_to_onnx_ref oct_to_onnx_binary(oct_to_onnx_writer *w, const char *type,
                                   const oct_to_onnx_ref *both);

/* A layer with its inputs. */
typedef struct oct_to_onnx_layer_call {
    const oct_float_layer *layer;
    const oct_to_onnx_ref *input;
    int num_inputs;
    const void *args; /* oct_<type>_args (core/tensor/op_args.h) */
    const char *op;   /* of its line in the table */
    bool own_names;   /* its arrays keep their names, "layer1.conv.weight" */
} oct_to_onnx_layer_call;

typedef struct oct_to_onnx_layer_type {
    const char *type;
    int inputs; /* it takes; 0: any number from 1 on */
    oct_to_onnx_ref (*write)(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c);
    const char *op; /* the operator that it is written with; NULL: `write` knows */
} oct_to_onnx_layer_type;

extern const oct_to_onnx_layer_type oct_to_onnx_math_layers[]; /* up to one without a type */

/* Writes a layer; fails the writer with a problem (OCT_PREPARE) that names it where there is no form for it. */
oct_to_onnx_ref oct_to_onnx_layer_write(oct_to_onnx_writer *w, const oct_float_layer *layer,
                                        int num_inputs, const oct_to_onnx_ref *input,
                                        bool own_names);

/* For the files of layers: an array (C) of the layer as a constant that belongs to its input, of as many dimensions. */
const char *oct_to_onnx_channel_array(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c,
                                      const char *array);

/* Steps of an integer program become operators of ONNX here: onnx_steps_*.c have the tables of all kinds. */

/* Scale and zero point of a value, as constants. */
typedef struct oct_to_onnx_qparams {
    const char *scale, *zero_point;
} oct_to_onnx_qparams;

/* What can make a code differ from the step's. */
#define OCT_TO_ONNX_DIFF_LIST(X)                                                                   \
    X(QUOTIENT, "rounds x / scale where Octet rounded x * (1 / scale): a code may differ by one "  \
                "(quant.target: onnxruntime trains the first)")                                    \
    X(SHIFT, "rounds half to even where this model's target shifts and rounds otherwise: a code "  \
             "may differ by one")                                                                  \
    X(ADDEND, "adds a second addend in float before rounding: a code may differ by one "           \
              "(quant.target: onnxruntime has no such fusion)")                                    \
    X(SCALES, "adds values of different scales, in float: a code may differ by one "               \
              "(quant.target: onnxruntime gives them one)")                                        \
    X(PRODUCT, "adds the zero point before it rounds a product: a code may differ by one "         \
               "(quant.target: onnxruntime trains that)")                                          \
    X(AVERAGE, "takes the average in float: a code may differ by one (quant.target: onnxruntime "  \
               "has it as a depthwise convolution)")                                               \
    X(AVERAGE_CEIL, "takes the average in float, and runtimes divide windows that ceil_mode lets " \
                    "end beyond the padding by other numbers of positions: codes at the lower "    \
                    "and right edge may differ by several, 6 have been seen (quant.target: "       \
                    "onnxruntime keeps such pools float)")                                         \
    X(FLOAT_CONV, "is a convolution with float outputs, which runtimes compute in float: outputs " \
                  "differ in the last bits")                                                       \
    X(SOFTMAX, "is computed in float: a code may differ by one")                                   \
    X(BILINEAR, "mixes pixels in float: a code may differ by one")                                 \
    X(WIDE, "has codes of 16 bits, which runtimes compute with in float: codes may differ")        \
    X(MULTIPLIER, "multiplies sums by whole numbers of its target, which runtimes multiply by "    \
                  "floats: a code may differ by one")                                              \
    X(FALLBACK, "stays float: its outputs, and so codes after it, may differ in the last bits")

typedef enum oct_to_onnx_diff_kind {
#define X(id, words) OCT_TO_ONNX_DIFF_##id,
    OCT_TO_ONNX_DIFF_LIST(X)
#undef X
        OCT_TO_ONNX_DIFFS
} oct_to_onnx_diff_kind;

/* An int8 model that is being written. */
typedef struct oct_to_onnx_program {
    oct_to_onnx_writer *w;
    const oct_export *job;
    const oct_program *program;
    oct_to_onnx_ref *values;     /* by value: codes, floats or class numbers */
    oct_to_onnx_qparams *params; /* by value, where they have been needed */
    bool *fresh;                 /* by value: a node made it, which has its step's name */
    oct_export_diff diffs[OCT_TO_ONNX_DIFFS];
} oct_to_onnx_program;

/* Writes a step; the tables are by kind, NULL where ONNX has no form for it. */
typedef oct_to_onnx_ref oct_to_onnx_write(oct_to_onnx_program *p, const oct_step *step);
extern oct_to_onnx_write *const oct_to_onnx_product_steps[OCT_STEP_KINDS];
extern oct_to_onnx_write *const oct_to_onnx_code_steps[OCT_STEP_KINDS];

/* The shape that a value has where nothing else decides it: (N, H, W, C), or (N, C) of one position. */
static inline oct_shape oct_to_onnx_value_shape(const oct_value *v)
{
    return oct_value_shape(v, v->h == 1 && v->w == 1 ? 2 : 4);
}

/* What writers of steps share. */

/* A step's first input as an image, (N, H, W, C). */
oct_to_onnx_ref oct_to_onnx_input_plane(oct_to_onnx_program *p, const oct_step *step);
/* Gives the real values of a value's codes; x: the value, in whatever shape. */
const char *oct_to_onnx_dequantize(oct_to_onnx_program *p, int32_t value, const char *x);
/* Casts codes of 16 bits to floats, which hold them exactly and which every operator takes; other codes stay. */
const char *oct_to_onnx_widen(oct_to_onnx_program *p, int32_t value, const char *x);
/* Casts floats that hold codes of 16 bits to such codes; other codes stay. */
const char *oct_to_onnx_narrow(oct_to_onnx_program *p, int32_t value, const char *x);
/* One code of a value as a constant: u8, or a float for codes of 16 bits. */
const char *oct_to_onnx_code(oct_to_onnx_program *p, int32_t value, int32_t code);
/* Makes codes of a value of real numbers, cut to logical bounds where these are narrower than its type. */
oct_to_onnx_ref oct_to_onnx_quantize(oct_to_onnx_program *p, int32_t value, oct_to_onnx_ref x,
                                     int32_t lo, int32_t hi);
/* Clips codes to bounds (counted from the zero point) where these are narrower than the type of the value. */
oct_to_onnx_ref oct_to_onnx_clip(oct_to_onnx_program *p, int32_t value, oct_to_onnx_ref x,
                                 int32_t lo, int32_t hi);
