/* An ONNX model is written node by node.
 *
 * A writer keeps its first failure, after which every function returns at once, NULL where it names a tensor; so
 * what writes layers has no error plumbing, and oct_to_onnx_writer_end returns it.
 *
 * Tensors are known by their names. What a layer makes on its way is called "<layer>/<operator>_<number>", its
 * constants "<layer>/<name>_<number>"; names without a slash are the caller's. */
#pragma once

#include "core/tensor/conv_shape.h"
#include "core/tensor/tensor.h"

typedef struct oct_to_onnx_writer oct_to_onnx_writer;

/* opset: of the operators. */
oct_status oct_to_onnx_writer_create(oct_to_onnx_writer **w, int64_t opset) OCT_NODISCARD;
void oct_to_onnx_writer_destroy(oct_to_onnx_writer **w);
/* Gives the model's bytes; *bytes is oct_alloc'ed. version: of Octet, which the file names. */
oct_status oct_to_onnx_writer_end(oct_to_onnx_writer *w, const char *version, void **bytes,
                                  size_t *size) OCT_NODISCARD;

/* Keeps a name for the model's input or output: a tensor of another layer that would have it gets "_" after it. */
const char *oct_to_onnx_keep_name(oct_to_onnx_writer *w, const char *name);

oct_status oct_to_onnx_status(const oct_to_onnx_writer *w);
/* Fails the writer with a problem; more than one may be added. Returns NULL. */
void *oct_to_onnx_fail(oct_to_onnx_writer *w, oct_status code, const char *format, ...)
    OCT_PRINTF(3, 4);

/* What comes from now on belongs to this layer. The name must live as long as the writer. */
void oct_to_onnx_layer_begin(oct_to_onnx_writer *w, const char *layer);
const char *oct_to_onnx_layer_name(const oct_to_onnx_writer *w);
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
/* Adds a ReduceMean over n axes; opset 18 made an input of its attribute. */
const char *oct_to_onnx_mean(oct_to_onnx_writer *w, const char *x, int n, const int64_t *axes);
/* These give the node that was added last an attribute, or its output another name. */
void oct_to_onnx_int_set(oct_to_onnx_writer *w, const char *name, int64_t value);
void oct_to_onnx_ints_set(oct_to_onnx_writer *w, const char *name, int n, const int64_t *values);
/* Sets kernel_shape, strides and pads to those of the windows. */
void oct_to_onnx_windows_set(oct_to_onnx_writer *w, const oct_conv_shape *s);
#define OCT_TO_ONNX_INTS(w, name, ...)                                                             \
    oct_to_onnx_ints_set((w), (name), (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),   \
                         (int64_t[]){__VA_ARGS__})
void oct_to_onnx_float_set(oct_to_onnx_writer *w, const char *name, float value);
void oct_to_onnx_text_set(oct_to_onnx_writer *w, const char *name, const char *value);
const char *oct_to_onnx_output_named(oct_to_onnx_writer *w, const char *name);

/* Adds a constant, whose data are copied. name: NULL for one of the writer's own. */
const char *oct_to_onnx_constant(oct_to_onnx_writer *w, const char *name, oct_dtype dtype, int ndim,
                                 const int64_t *dims, const void *data);
const char *oct_to_onnx_scalar(oct_to_onnx_writer *w, float value);
const char *oct_to_onnx_list(oct_to_onnx_writer *w, int n,
                             const int64_t *values); /* s64, one dimension */
#define OCT_TO_ONNX_LIST(w, ...)                                                                   \
    oct_to_onnx_list((w), (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),               \
                     (int64_t[]){__VA_ARGS__})

/* Declares an input or output of the model, whose first dimension is the batch. */
void oct_to_onnx_declare_input(oct_to_onnx_writer *w, const char *name, oct_dtype dtype,
                               const oct_shape *shape);
void oct_to_onnx_declare_output(oct_to_onnx_writer *w, const char *name, oct_dtype dtype,
                                const oct_shape *shape);
/* Adds a line to the model's properties; both are copied. */
void oct_to_onnx_property(oct_to_onnx_writer *w, const char *key, const char *value);
/* The output of the node that was added last; NULL: there is none. */
const char *oct_to_onnx_last_output(const oct_to_onnx_writer *w);
