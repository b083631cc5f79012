/* Steps of an integer program become operators of TFLite here: tflite_steps_*.c have the tables of all kinds. */
#pragma once

#include "io/export/format.h"
#include "io/export/program_parts.h"
#include "io/export/tflite_writer.h"

/* What can make a code differ from the step's. */
#define OCT_TO_TFLITE_LOSS_LIST(X)                                                                 \
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

typedef enum oct_to_tflite_loss_kind {
#define X(id, words) OCT_TO_TFLITE_LOSS_##id,
    OCT_TO_TFLITE_LOSS_LIST(X)
#undef X
        OCT_TO_TFLITE_LOSSES
} oct_to_tflite_loss_kind;

/* An int8 model that is being written. Tensors of values have four dimensions, (1, H, W, C). */
typedef struct oct_to_tflite_program {
    oct_to_tflite_writer *w;
    const oct_export *job;
    const oct_program *program;
    int *values; /* tensors by value */
    int output;  /* the tensor that the model returns */
    oct_export_loss losses[OCT_TO_TFLITE_LOSSES];
} oct_to_tflite_program;

/* Writes a step; the tables are by kind, NULL where TFLite has no form for it. */
typedef int oct_to_tflite_write(oct_to_tflite_program *p, const oct_step *step);
extern oct_to_tflite_write *const oct_to_tflite_product_steps[OCT_STEP_KINDS];
extern oct_to_tflite_write *const oct_to_tflite_code_steps[OCT_STEP_KINDS];

/* These are what writers of steps share. */

void oct_to_tflite_lose(oct_to_tflite_program *p, oct_to_tflite_loss_kind kind,
                        const oct_step *step);
/* A tensor for a value, (1, H, W, C). */
int oct_to_tflite_value(oct_to_tflite_program *p, int32_t value);
/* The tensor of a step's input, as (1, h, w, c). */
int oct_to_tflite_input(oct_to_tflite_program *p, const oct_step *step, int i, int64_t h, int64_t w,
                        int64_t c);
int oct_to_tflite_reshape(oct_to_tflite_writer *w, int x, int ndim, const int64_t *dims);
/* The real values of a tensor of codes. */
int oct_to_tflite_dequantize(oct_to_tflite_program *p, int x);
/* Codes cut to logical bounds where these are narrower than signed bytes. */
int oct_to_tflite_cut(oct_to_tflite_program *p, int32_t value, int x, int32_t lo, int32_t hi);
/* Looks up a table of codes of `value` for each code of x, or one of each channel, one after another. */
int oct_to_tflite_lookup(oct_to_tflite_program *p, int x, int32_t value, const uint8_t *table,
                         bool channels);
/* Concatenates n tensors by their channels to y, by operators of no more inputs than TFLM takes; x is written over. */
int oct_to_tflite_concat(oct_to_tflite_program *p, int n, int *x, int y);
/* Puts `before` and `after` rows, columns and channels of a code (of floats: zeros) around x. */
int oct_to_tflite_pad(oct_to_tflite_program *p, int x, const int64_t before[3],
                      const int64_t after[3], int32_t code);
/* Reads the given places of a dimension. */
int oct_to_tflite_gather(oct_to_tflite_writer *w, int x, int axis, int64_t n,
                         const int32_t *places);
