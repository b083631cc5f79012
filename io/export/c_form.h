/* The format c writes an int8 model as a pair of C99 files. This is what its parts share: c.c puts the pair together,
 * c_header.c writes the second of it, c_step*.c write the calls and constants of each kind of step, c_kernel.c the functions that these call, whose texts
 * are the files of c_kernel/.
 *
 * A kernel is written once for each combination of types that the model has; in its text stand for them
 *     $X $B $Y  the types of the inputs and the output     $N  the variant and the types, "sum_u8_u8_u8"
 *     $A        the type of sums                           $S  of sums that are requantized
 *     $F $E     what is rounded in: float "", double "_wide"
 *     $P        further parameters                         $Q  the function that rounds
 *     $C        what it takes between a sum and the bounds, an expression of c and i
 *     $R        the result of a layer, which is another text
 * Functions and types that a text calls, and that have texts of their own, are written before it. */
#pragma once

#include "io/export/format.h"
#include "quant/kernel/epilogue.h"
#include "quant/program/step.h"

enum { OCT_TO_C_TEXT = 256 };

typedef struct oct_to_c {
    const oct_export *job;
    const oct_program *program;
    oct_status status;  /* the first failure; nothing is written after it */
    oct_text kernels;   /* functions and types */
    oct_text written;   /* their names, a line each */
    oct_text constants; /* arrays and layers */
    oct_text calls;     /* of the layers, in the order in which they run */
    int64_t *offsets;   /* of each value in scratch; -1: the caller's */
    int64_t scratch_bytes, constant_bytes;
    bool holds[OCT_S64 + 1]; /* types of values in scratch */
    bool wide;               /* something is rounded in double */
    bool counts;             /* only the bytes of constants; their numbers are not written */
} oct_to_c;

/* What a kernel is written for. */
typedef struct oct_to_c_form {
    const char *kernel;
    const char *variant; /* in front of the types in its name; NULL: none */
    oct_dtype x, second, y, acc;
    bool pair; /* with a second input */
    bool wide; /* rounds in double */
    const char *parameters, *function, *constants, *result;
} oct_to_c_form;

/* Adds to a text; the writer keeps the failure. */
void oct_to_c_add(oct_to_c *w, oct_text *text, const char *format, ...) OCT_PRINTF(3, 4);
/* Keeps a failure; further ones of the same status are added to the first. */
void oct_to_c_fail(oct_to_c *w, oct_status status, const char *format, ...) OCT_PRINTF(3, 4);

/* Writes the kernel unless it is there already, after those that it calls; its name, "conv_u8_u8", is left in `name`. */
void oct_to_c_kernel(oct_to_c *w, const oct_to_c_form *form, char name[OCT_TO_C_TEXT]);

/* A rounding in a kernel: its function, and what that takes between a sum and the bounds. */
typedef struct oct_to_c_rounding {
    char function[OCT_TO_C_TEXT], constants[OCT_TO_C_TEXT];
} oct_to_c_rounding;
/* The rounding of sums and products to codes of y. multiplier, shift: C expressions of a rounding by whole numbers;
 * factor: of one by floats. */
oct_to_c_rounding oct_to_c_rounds(const oct_to_c *w, const oct_value *y, const char *multiplier,
                                  const char *shift, const char *factor);

/* "uint8_t", and "u8". */
const char *oct_to_c_type(oct_dtype dtype);
/* How a value is named in calls, "scratch.u8 + 128". */
const char *oct_to_c_value(const oct_to_c *w, int32_t value, char text[OCT_TO_C_TEXT]);

/* The array "<name>_<step>" of constants. */
typedef struct oct_to_c_array {
    const char *name;
    int64_t step;
    oct_dtype dtype;
    int64_t count;
    const void *data;
} oct_to_c_array;
/* Adds an array to the constants; where the writer counts, only its bytes. */
void oct_to_c_constants(oct_to_c *w, const oct_to_c_array *array);
/* Counts the bytes of a struct conv_layer or the like, which has `narrow` numbers of 4 bytes and `wide` of 8. */
static inline void oct_to_c_count_layer(oct_to_c *w, int narrow, int wide)
{
    w->constant_bytes += narrow * 4 + wide * 8;
}

/* The call of a step that is being written: its inputs and output, and how calls name the first input and the output. */
typedef struct oct_to_c_call {
    const oct_step *step;
    int64_t number;
    const oct_value *x, *second, *y; /* second: NULL without */
    char from[OCT_TO_C_TEXT], to[OCT_TO_C_TEXT];
} oct_to_c_call;
/* Writes the kernel of a form, whose types are those of the call, and begins the call: "    conv_u8_u8(". acc: sums of
 * 16-bit inputs have 64 bits, others where the form says so. */
void oct_to_c_begin_call(oct_to_c *w, const oct_to_c_call *c, const oct_to_c_form *form);
/* Writes the call, with its constants and kernels. */
typedef void oct_to_c_write(oct_to_c *w, oct_to_c_call *c);
extern oct_to_c_write *const oct_to_c_product_steps[OCT_STEP_KINDS];
extern oct_to_c_write *const oct_to_c_code_steps[OCT_STEP_KINDS];
/* NULL: C has no form for it. */
static inline oct_to_c_write *oct_to_c_writer_of(const oct_step *step)
{
    oct_to_c_write *found = oct_to_c_product_steps[step->kind];
    return found ? found : oct_to_c_code_steps[step->kind];
}
/* Fills in the call of step `number` and writes it by `write`. */
void oct_to_c_write_call(oct_to_c_write *write, oct_to_c *w, int64_t number);

enum { OCT_TO_C_NAME = 48, OCT_TO_C_INPUTS = 512 };
/* What both files say. */
typedef struct oct_to_c_file {
    oct_to_c w;
    char name[OCT_TO_C_NAME + 1], macro[OCT_TO_C_NAME + 1]; /* "kws", "KWS" */
    const oct_value *in, *out;
    const oct_step
        *quantizer;          /* the step that makes codes of the only input; NULL: there is none */
    int64_t after_quantizer; /* the number of the step after it */
    int32_t
        output_codes; /* the value in scratch that the output is dequantized from; -1: none is */
    int64_t golden;   /* samples of the self-test; 0: there is none */
    oct_text text;
} oct_to_c_file;

/* Writes the header, after the source, which has found all sizes. */
oct_status oct_to_c_header(oct_to_c_file *f, oct_exported *out);
/* Masks what could end a comment or a line of one. */
const char *oct_to_c_comment(const char *text, char masked[128]);
/* "const float *input, const float *input1". */
const char *oct_to_c_inputs(const oct_program *program, char text[OCT_TO_C_INPUTS]);
