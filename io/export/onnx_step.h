/* Steps of an integer program become operators of ONNX here: onnx_steps_*.c have the tables of all kinds. */
#pragma once

#include "io/export/onnx_model.h"
#include "io/export/program_parts.h"

/* Scale and zero point of a value, as constants. */
typedef struct oct_to_onnx_qparams {
    const char *scale, *zero_point;
} oct_to_onnx_qparams;

/* What can make a code differ from the step's. */
#define OCT_TO_ONNX_LOSS_LIST(X)                                                                   \
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

typedef enum oct_to_onnx_loss_kind {
#define X(id, words) OCT_TO_ONNX_LOSS_##id,
    OCT_TO_ONNX_LOSS_LIST(X)
#undef X
        OCT_TO_ONNX_LOSSES
} oct_to_onnx_loss_kind;
extern const char *const oct_to_onnx_loss_words[];

/* An int8 model that is being written. */
typedef struct oct_to_onnx_program {
    oct_to_onnx_writer *w;
    const oct_export *job;
    const oct_program *program;
    oct_to_onnx_ref *values;     /* by value: codes, floats or class numbers */
    oct_to_onnx_qparams *params; /* by value, where they have been needed */
    bool *fresh;                 /* by value: a node made it, which has its step's name */
    oct_export_loss losses[OCT_TO_ONNX_LOSSES];
} oct_to_onnx_program;

/* Writes a step; the tables are by kind, NULL where ONNX has no form for it. */
typedef oct_to_onnx_ref oct_to_onnx_write(oct_to_onnx_program *p, const oct_step *step);
extern oct_to_onnx_write *const oct_to_onnx_product_steps[OCT_STEP_KINDS];
extern oct_to_onnx_write *const oct_to_onnx_code_steps[OCT_STEP_KINDS];

/* The shape that a value has where nothing else decides it: (N, H, W, C), or (N, C) of one position. */
static inline oct_shape oct_to_onnx_value_shape(const oct_value *v)
{
    return v->h == 1 && v->w == 1 ? OCT_SHAPE(1, v->c) : OCT_SHAPE(1, v->h, v->w, v->c);
}

/* What writers of steps share. */
void oct_to_onnx_lose(oct_to_onnx_program *p, oct_to_onnx_loss_kind kind, const oct_step *step);
/* Gives the real values of a value's codes; x: the value, in whatever shape. */
const char *oct_to_onnx_dequantize(oct_to_onnx_program *p, int32_t value, const char *x);
/* Gives a value's codes as types that every operator takes, and codes of these again; and one such code. */
const char *oct_to_onnx_widen(oct_to_onnx_program *p, int32_t value, const char *x);
const char *oct_to_onnx_narrow(oct_to_onnx_program *p, int32_t value, const char *x);
const char *oct_to_onnx_code(oct_to_onnx_program *p, int32_t value, int32_t code);
/* Makes codes of a value of real numbers, cut to logical bounds where these are narrower than its type. */
oct_to_onnx_ref oct_to_onnx_quantize(oct_to_onnx_program *p, int32_t value, oct_to_onnx_ref x,
                                     int32_t lo, int32_t hi);
oct_to_onnx_ref oct_to_onnx_cut(oct_to_onnx_program *p, int32_t value, oct_to_onnx_ref x,
                                int32_t lo, int32_t hi);

/* Writes an int8 model into w. */
oct_status oct_to_onnx_program_write(oct_to_onnx_writer *w, const oct_export *job,
                                     oct_text *notices) OCT_NODISCARD;
