/* The format c writes an int8 model as a pair of C99 files. This is what its parts share: c.c puts the pair together,
 * c_header.c writes the second of it, c_step*.c write the calls and constants of each kind of step, c_kernel.c the functions that these call, whose texts
 * are the files of c_kernel/.
 *
 * A kernel is written once for each combination of types that the model has; in its text stand for them
 *     $X $B $Y  the types of the inputs and the output     $N  the variant and the types, "joined_u8_u8_u8"
 *     $A        the type of sums                           $S  of sums that are requantized
 *     $F $E     what is rounded in: float "", double "_wide"
 *     $P        further parameters                         $R  the result, an expression of sum, c and i */
#pragma once

#include "io/export/format.h"
#include "quant/kernel/epilogue.h"
#include "quant/program/step.h"

enum { OCT_TO_C_TEXT = 256 };

typedef struct oct_to_c {
    const oct_export *job;
    const oct_program *program;
    oct_status status;  /* the first failure; nothing is written behind it */
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
    const char *parameters, *result;
    const char *needs[4]; /* kernels that this one calls, or types; up to a NULL */
} oct_to_c_form;

/* Adds to a text; the writer keeps the failure. */
void oct_to_c_add(oct_to_c *w, oct_text *text, const char *format, ...) OCT_PRINTF(3, 4);
void oct_to_c_fail(oct_to_c *w, oct_status status, const char *format, ...) OCT_PRINTF(3, 4);

/* How far a multiplier of 15 bits leaves a product to be shifted behind it (oct_fixed_q15). */
static inline int oct_to_c_behind(const oct_value *y)
{
    return y->dtype == OCT_U16 ? 14 : 22;
}
/* Writes the kernel unless it is there already, behind those that it needs; its name, "conv_u8_u8", is left in `name`. */
void oct_to_c_kernel(oct_to_c *w, const oct_to_c_form *form, char name[OCT_TO_C_TEXT]);
/* The same of a kernel or type without forms. */
void oct_to_c_need(oct_to_c *w, const char *kernel, bool wide);

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
void oct_to_c_constants(oct_to_c *w, const oct_to_c_array *array);
/* Counts the numbers of a layer, conv_layer and the like: so many of 4 and of 8 bytes. */
static inline void oct_to_c_layer(oct_to_c *w, int narrow, int wide)
{
    w->constant_bytes += narrow * 4 + wide * 8;
}

/* Writes the call of a step, with its constants and kernels. */
typedef struct oct_to_c_step_type {
    const char *kind;
    void (*write)(oct_to_c *w, int64_t number);
} oct_to_c_step_type;
extern const oct_to_c_step_type oct_to_c_product_steps[], oct_to_c_code_steps[];
extern const size_t oct_to_c_product_steps_count, oct_to_c_code_steps_count;
const oct_to_c_step_type *oct_to_c_step_type_of(const char *kind); /* NULL: C has no form for it */

enum { OCT_TO_C_NAME = 48, OCT_TO_C_INPUTS = 512 };
/* What both files say. */
typedef struct oct_to_c_file {
    oct_to_c w;
    char name[OCT_TO_C_NAME + 1], macro[OCT_TO_C_NAME + 1]; /* "kws", "KWS" */
    const oct_value *in, *out;
    const oct_step *first; /* the step that makes codes of the only input; NULL: there is none */
    int64_t behind;        /* the number of the step behind it */
    int32_t codes;  /* the value in scratch that the output is dequantized from; -1: none is */
    int64_t golden; /* samples of the self-test */
    oct_text text;
} oct_to_c_file;

/* Writes the header, behind the source, which has found all sizes. */
oct_status oct_to_c_header(oct_to_c_file *f, oct_exported *out) OCT_NODISCARD;
/* Masks what could end a comment or a line of one. */
const char *oct_to_c_comment(const char *text, char masked[128]);
/* "const float *input, const float *input1". */
const char *oct_to_c_inputs(const oct_program *program, char text[OCT_TO_C_INPUTS]);
