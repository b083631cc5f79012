/* What the parts of the format tflite share: the writer of a model, operator by operator, and steps of an int8
 * model. */
#pragma once

#include "core/base/arena.h"
#include "core/base/text.h"
#include "core/tensor/tensor.h"
#include "io/export/format.h"
#include "io/export/program_parts.h"

/* A TFLite model is written operator by operator, as a FlatBuffer with the numbers of TFLite's schema.
 *
 * A writer keeps its first failure, after which every function returns at once, OCT_TFLITE_NONE where it names a
 * tensor; so what writes steps has no error plumbing, and oct_to_tflite_finish returns it.
 *
 * Tensors are numbers. Codes are signed bytes there, 128 less than Octet's, and so are their zero points. */
enum {
    OCT_TFLITE_NONE = -1,
    OCT_TFLITE_DIMS = 6,
    OCT_TFLITE_SIGN = 128,
    OCT_TFLITE_OPTIONS_MAX = 8
};

typedef enum oct_tflite_type {
    OCT_TFLITE_FLOAT = 0,
    OCT_TFLITE_S32 = 2,
    OCT_TFLITE_U8 = 3,
    OCT_TFLITE_S8 = 9,
} oct_tflite_type;

/* Operators, each with its number, the version that has signed bytes, the number of its options, and the types that
 * TFLM's kernel takes and gives beside indices (tflite.c): f floats, b signed bytes, u bytes, i whole numbers. */
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

typedef struct oct_tflite_tensor {
    int number;
    oct_tflite_type type;
    int ndim;
    int64_t dims[OCT_TFLITE_DIMS];
    size_t scales; /* how many; their zero points are equal */
    float *scale;
    int64_t zero_point;
    int axis;
    const char *name;
    size_t bytes;     /* of its numbers, of a sample */
    const void *data; /* NULL: no constant */
    int64_t buffer; /* of the file: a constant's own, set when this is written; 0: the empty one */
} oct_tflite_tensor;

/* An operator with its tensors. */
typedef struct oct_tflite_call {
    oct_tflite_operator kind;
    const char *layer;
    int inputs, outputs, options;
    int32_t *input, *output;
    oct_tflite_option option[OCT_TFLITE_OPTIONS_MAX];
} oct_tflite_call;

typedef struct oct_tflite_property {
    const char *key, *value;
} oct_tflite_property;

/* A growing list of pointers into the arena. */
typedef struct oct_tflite_list {
    void **item;
    size_t count, capacity;
} oct_tflite_list;

typedef struct oct_to_tflite_writer {
    oct_status status;
    oct_arena *arena;  /* of all that is held until it is written */
    const char *layer; /* the next tensors get names after it; lives as long as the writer */
    oct_tflite_list tensors, calls, properties, inputs, outputs; /* the last two: tensors */
} oct_to_tflite_writer;

/* Fails the writer with a problem; more than one may be added. Returns OCT_TFLITE_NONE. */
int oct_to_tflite_fail(oct_to_tflite_writer *w, oct_status code, const char *format, ...)
    OCT_PRINTF(3, 4);
/* Gives memory that lives as long as the writer, with a copy of data (NULL: its values are not set); NULL after a
 * failure. */
void *oct_to_tflite_alloc(oct_to_tflite_writer *w, const void *data, size_t bytes);
/* A tensor by its number, while nothing has failed. */
static inline oct_tflite_tensor *oct_to_tflite_at(const oct_to_tflite_writer *w, int tensor)
{
    OCT_ASSERT(tensor >= 0 && (size_t)tensor < w->tensors.count);
    return w->tensors.item[tensor];
}

/* Adds a tensor and returns its number; scales are copied. */
int oct_to_tflite_tensor(oct_to_tflite_writer *w, oct_tflite_type type, int ndim,
                         const int64_t *dims, oct_tflite_quant quant);
/* Adds a tensor with constant data, which are memory that the writer has given. */
int oct_to_tflite_constant(oct_to_tflite_writer *w, oct_tflite_type type, int ndim,
                           const int64_t *dims, oct_tflite_quant quant, const void *data);
/* A constant of one dimension, or of none where n is 0: one number. */
int oct_to_tflite_list(oct_to_tflite_writer *w, int n, const int32_t *values);
#define OCT_TO_TFLITE_LIST(w, ...)                                                                 \
    oct_to_tflite_list((w), (int)(sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t)),             \
                       (int32_t[]){__VA_ARGS__})
/* A tensor like another one, of other sizes. */
int oct_to_tflite_like(oct_to_tflite_writer *w, int tensor, int ndim, const int64_t *dims);
void oct_to_tflite_rename(oct_to_tflite_writer *w, int tensor, const char *format, ...)
    OCT_PRINTF(3, 4);

/* Adds an operator. */
void oct_to_tflite_operator(oct_to_tflite_writer *w, oct_tflite_operator kind, int inputs,
                            const int *input, int outputs, const int *output, int options,
                            const oct_tflite_option *option);
/* Arguments of these: a count and an array. */
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
/* Adds an operator with one output, which it returns. */
int oct_to_tflite_apply(oct_to_tflite_writer *w, oct_tflite_operator kind, int inputs,
                        const int *input, int output, int options, const oct_tflite_option *option);

/* Writes the file, with the bytes and, where `tflm` is set, what TFLM needs to run it. Returns the writer's failure,
 * and fails for each operator that TFLM's kernels do not take. */
oct_status oct_to_tflite_finish(oct_to_tflite_writer *w, const char *version, bool tflm,
                                oct_exported *out);

enum { OCT_TFLM_CONCATENATED = 10 }; /* inputs of one CONCATENATION of TFLM, at most */

/* Steps of an integer program become operators of TFLite here: tflite_steps_*.c have the tables of all kinds. */

/* What can make a code differ from the step's. */
#define OCT_TO_TFLITE_DIFF_LIST(X)                                                                 \
    X(QUOTIENT, "rounds x * (1 / scale) where this model's target rounds x / scale: a code may "   \
                "differ by one (quant.target: tflite trains the first)")                           \
    X(SHIFT, "rounds half to even where this model's target shifts and rounds otherwise: a code "  \
             "may differ by one")                                                                  \
    X(ADDEND, "takes a second addend before it rounds, which TFLite has in floats alone: codes "   \
              "may differ by one (quant.target: tflite has no such fusion)")                       \
    X(FLOAT, "hands over floats, which TFLite computes in floats: outputs differ in the last "     \
             "bits (quant.target: tflite keeps codes)")                                            \
    X(SUM, "adds with multipliers of 21 bits where this model's target has other ones: a code "    \
           "may differ by one (quant.target: tflite trains that)")                                 \
    X(PRODUCT, "rounds a product's factor or zero point another way: a code may differ by one "    \
               "(quant.target: tflite trains that)")                                               \
    X(AVERAGE, "averages codes, halves away from 0: a code may differ by one (quant.target: "      \
               "tflite trains that)")                                                              \
    X(RATIO, "has a ratio of scales beyond those that XNNPACK takes, so its delegate refuses the " \
             "whole file: run it without, where codes may differ by one")                          \
    X(SOFTMAX, "is computed in float: a code may differ by one")                                   \
    X(BILINEAR, "has weights between pixels that lie in the middle of two in 1/2048: a code may "  \
                "differ by one")                                                                   \
    X(TWICE,                                                                                       \
      "rounds twice with multipliers of 31 bits, as TFLM and CMSIS-NN do; XNNPACK, where it "      \
      "runs the file instead, rounds once, and a code may differ by one")                          \
    X(MULTIPLIER, "multiplies sums by 15 bits, as its target does: a code may differ by one")      \
    X(FALLBACK, "stays float: its outputs, and so codes after it, may differ in the last bits")

typedef enum oct_to_tflite_diff_kind {
#define X(id, words) OCT_TO_TFLITE_DIFF_##id,
    OCT_TO_TFLITE_DIFF_LIST(X)
#undef X
        OCT_TO_TFLITE_DIFFS
} oct_to_tflite_diff_kind;

/* An int8 model that is being written. Tensors of values have four dimensions, (1, H, W, C). */
typedef struct oct_to_tflite_program {
    oct_to_tflite_writer *w;
    const oct_export *job;
    const oct_program *program;
    int *values; /* tensors by value */
    int output;  /* the tensor that the model returns */
    oct_export_diff diffs[OCT_TO_TFLITE_DIFFS];
} oct_to_tflite_program;

/* Writes a step; the tables are by kind, NULL where TFLite has no form for it. */
typedef int oct_to_tflite_write(oct_to_tflite_program *p, const oct_step *step);
extern oct_to_tflite_write *const oct_to_tflite_product_steps[OCT_STEP_KINDS];
extern oct_to_tflite_write *const oct_to_tflite_code_steps[OCT_STEP_KINDS];

/* These are what writers of steps share. */

/* A tensor for a value, (1, H, W, C). */
int oct_to_tflite_value(oct_to_tflite_program *p, int32_t value);
/* The tensor of a step's input, as (1, h, w, c). */
int oct_to_tflite_input(oct_to_tflite_program *p, const oct_step *step, int i, int64_t h, int64_t w,
                        int64_t c);
int oct_to_tflite_reshape(oct_to_tflite_writer *w, int x, int ndim, const int64_t *dims);
/* y as the step's output, (1, H, W, C). */
int oct_to_tflite_output(oct_to_tflite_program *p, const oct_step *step, int y);
/* The real values of a tensor of codes. */
int oct_to_tflite_dequantize(oct_to_tflite_program *p, int x);
/* Clips codes to bounds (counted from the zero point) where these are narrower than signed bytes. */
int oct_to_tflite_clip(oct_to_tflite_program *p, int32_t value, int x, int32_t lo, int32_t hi);
/* Looks up a table of codes of `value` for each code of x, or one of each channel, one after another. */
int oct_to_tflite_lookup(oct_to_tflite_program *p, int x, int32_t value, const uint8_t *table,
                         bool channels);
/* Concatenates n tensors by their channels to y, by operators of no more inputs than TFLM takes; x is written over. */
int oct_to_tflite_concat(oct_to_tflite_program *p, int n, int *x, int y);
/* Puts `before` and `after` rows, columns and channels of a code, unsigned as in Octet (of floats: zeros), around x. */
int oct_to_tflite_pad(oct_to_tflite_program *p, int x, const int64_t before[3],
                      const int64_t after[3], int32_t code);
/* Reads the given places of a dimension. */
int oct_to_tflite_gather(oct_to_tflite_writer *w, int x, int axis, int64_t n,
                         const int32_t *places);
