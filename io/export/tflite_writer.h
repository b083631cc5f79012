/* A TFLite model is written operator by operator, as a FlatBuffer with the numbers of TFLite's schema.
 *
 * A writer keeps its first failure, after which every function returns at once, OCT_TFLITE_NONE where it names a
 * tensor; so what writes steps has no error plumbing, and oct_to_tflite_end returns it.
 *
 * Tensors are numbers. Codes are signed bytes there, 128 less than Octet's, and so are their zero points. */
#pragma once

#include "core/tensor/tensor.h"

typedef struct oct_to_tflite_writer oct_to_tflite_writer;

enum { OCT_TFLITE_NONE = -1, OCT_TFLITE_DIMS = 6, OCT_TFLITE_SIGN = 128 };

typedef enum oct_tflite_type {
    OCT_TFLITE_FLOAT = 0,
    OCT_TFLITE_S32 = 2,
    OCT_TFLITE_U8 = 3,
    OCT_TFLITE_S8 = 9,
} oct_tflite_type;

/* Operators, each with its number, the version that has signed bytes, the number of its options, and the types that
 * TFLM's kernel takes and gives beside indices (tflite_tflm.h): f floats, b signed bytes, u bytes, i whole numbers. */
#define OCT_TFLITE_OPERATORS(X)                                                                    \
    X(ADD, 0, 2, 11, "fbi")                                                                        \
    X(AVERAGE_POOL_2D, 1, 2, 5, "fb")                                                              \
    X(CONCATENATION, 2, 2, 10, "fbi")                                                              \
    X(CONV_2D, 3, 3, 1, "fb")                                                                      \
    X(DEPTHWISE_CONV_2D, 4, 3, 2, "fb")                                                            \
    X(DEQUANTIZE, 6, 2, 38, "fbu")                                                                 \
    X(LOGISTIC, 14, 2, 0, "fb")                                                                    \
    X(MAX_POOL_2D, 17, 2, 5, "fb")                                                                 \
    X(MUL, 18, 2, 21, "fbi")                                                                       \
    X(RESHAPE, 22, 1, 17, "fbui")                                                                  \
    X(RESIZE_BILINEAR, 23, 3, 15, "fb")                                                            \
    X(SOFTMAX, 25, 2, 9, "fb")                                                                     \
    X(TANH, 28, 2, 0, "fb")                                                                        \
    X(PAD, 34, 2, 22, "fb")                                                                        \
    X(GATHER, 36, 2, 23, "fb")                                                                     \
    X(TRANSPOSE, 39, 2, 26, "fb")                                                                  \
    X(SUB, 41, 2, 28, "fbi")                                                                       \
    X(SPLIT, 49, 2, 35, "fbi")                                                                     \
    X(CAST, 53, 1, 37, "fbi")                                                                      \
    X(MAXIMUM, 55, 2, 39, "fbi")                                                                   \
    X(ARG_MAX, 56, 2, 40, "fbi")                                                                   \
    X(MINIMUM, 57, 2, 39, "fbi")                                                                   \
    X(PADV2, 60, 2, 43, "fbi")                                                                     \
    X(SLICE, 65, 2, 48, "fbi")                                                                     \
    X(RESIZE_NEAREST_NEIGHBOR, 97, 3, 74, "fbi")                                                   \
    X(QUANTIZE, 114, 1, 99, "fbui")

typedef enum oct_tflite_operator {
#define X(name, number, version, options, tflm) OCT_TFLITE_##name,
    OCT_TFLITE_OPERATORS(X)
#undef X
        OCT_TFLITE_KINDS
} oct_tflite_operator;

/* A number among an operator's options: its field, its width in bytes, and its value (of floats the bits). */
typedef struct oct_tflite_option {
    int field, width;
    int64_t value;
} oct_tflite_option;

/* The qparams of a tensor: of all its codes, as Octet has them, or of each channel of weights and biases. */
typedef struct oct_tflite_quant {
    const oct_qparams *codes; /* NULL: see scales */
    const float
        *scales; /* of each place on `axis`; zero points are 0. NULL: floats, or whole numbers */
    int axis;
} oct_tflite_quant;

oct_status oct_to_tflite_writer_create(oct_to_tflite_writer **w) OCT_NODISCARD;
void oct_to_tflite_writer_destroy(oct_to_tflite_writer **w);
/* Gives the model's bytes; *bytes is oct_alloc'ed. */
oct_status oct_to_tflite_end(oct_to_tflite_writer *w, const char *description, void **bytes,
                             size_t *size) OCT_NODISCARD;
oct_status oct_to_tflite_status(const oct_to_tflite_writer *w);
/* Fails the writer with a problem; more than one may be added. Returns OCT_TFLITE_NONE. */
int oct_to_tflite_fail(oct_to_tflite_writer *w, oct_status code, const char *format, ...)
    OCT_PRINTF(3, 4);
/* Tensors that are made from now on are called after this layer, which must live as long as the writer. */
void oct_to_tflite_layer(oct_to_tflite_writer *w, const char *layer);

/* Adds a tensor, or a constant, whose data and scales are copied. */
int oct_to_tflite_tensor(oct_to_tflite_writer *w, oct_tflite_type type, int ndim,
                         const int64_t *dims, oct_tflite_quant quant);
int oct_to_tflite_constant(oct_to_tflite_writer *w, oct_tflite_type type, int ndim,
                           const int64_t *dims, oct_tflite_quant quant, const void *data);
/* A constant of one dimension, or of none where n is 0: one number. */
int oct_to_tflite_list(oct_to_tflite_writer *w, int n, const int32_t *values);
#define OCT_TO_TFLITE_LIST(w, ...)                                                                 \
    oct_to_tflite_list((w), (int)(sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t)),             \
                       (int32_t[]){__VA_ARGS__})
/* A tensor like another one, of other sizes. */
int oct_to_tflite_like(oct_to_tflite_writer *w, int tensor, int ndim, const int64_t *dims);
/* A constant of one number like those of a tensor of codes, or 0 like those of floats. */
int oct_to_tflite_number_like(oct_to_tflite_writer *w, int tensor, int32_t code);
void oct_to_tflite_rename(oct_to_tflite_writer *w, int tensor, const char *format, ...)
    OCT_PRINTF(3, 4);
oct_tflite_type oct_to_tflite_type(const oct_to_tflite_writer *w, int tensor);
int oct_to_tflite_ndim(const oct_to_tflite_writer *w, int tensor);
const int64_t *oct_to_tflite_dims(const oct_to_tflite_writer *w, int tensor);

/* Adds an operator. */
void oct_to_tflite_operator(oct_to_tflite_writer *w, oct_tflite_operator kind, int inputs,
                            const int *input, int outputs, const int *output, int options,
                            const oct_tflite_option *option);
/* One with one output, which it returns. */
#define OCT_TO_TFLITE_INPUTS(...)                                                                  \
    (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (const int[])                               \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define OCT_TO_TFLITE_OPTIONS(...)                                                                 \
    (int)(sizeof((oct_tflite_option[]){__VA_ARGS__}) / sizeof(oct_tflite_option)),                 \
        (const oct_tflite_option[])                                                                \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define OCT_TO_TFLITE_NO_OPTIONS 0, NULL
int oct_to_tflite_made(oct_to_tflite_writer *w, oct_tflite_operator kind, int inputs,
                       const int *input, int output, int options, const oct_tflite_option *option);

/* Declares an input or output of the model, under its name. */
void oct_to_tflite_declare_input(oct_to_tflite_writer *w, int tensor);
void oct_to_tflite_declare_output(oct_to_tflite_writer *w, int tensor);
/* Adds a text to the model's metadata; both are copied. */
void oct_to_tflite_property(oct_to_tflite_writer *w, const char *key, const char *value);
