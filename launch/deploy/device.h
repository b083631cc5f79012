/* What an int8 model asks of a device, for one sample: room for constants and values, and products; and the work of the
 * training that it came from. */
#pragma once

#include "core/nn/module.h"
#include "io/recipe/recipe.h"
#include "quant/program/program.h"

/* Of each layer, and of all. */
typedef enum oct_device_figure {
    OCT_DEVICE_FLASH,    /* bytes of constants as the C form has them */
    OCT_DEVICE_SCRATCH,  /* bytes of values: up to where they reach while a layer runs */
    OCT_DEVICE_PRODUCTS, /* multiply-adds of codes */
    OCT_DEVICE_FIGURES
} oct_device_figure;
extern const char *const oct_device_figure_names[OCT_DEVICE_FIGURES]; /* "flash" */

typedef struct oct_device {
    const oct_program *program;        /* borrowed */
    int64_t (*of)[OCT_DEVICE_FIGURES]; /* of each step; owned */
    int64_t all[OCT_DEVICE_FIGURES];   /* scratch: as the runtime plans it */
} oct_device;

/* Finds the figures of a program that has passed its check. */
oct_status oct_device_of(oct_device *device, const oct_program *program);
void oct_device_free(oct_device *device);
/* Names the three layers with most of a figure: "head.0 86 %, features.10 8 %"; empty when it is 0. */
oct_status oct_device_largest(const oct_device *device, oct_device_figure figure, oct_text *text);
/* Bytes of all parameters of a module and those in it, in float. */
int64_t oct_float_bytes(oct_module *root);
/* Bytes of the constants of all steps. */
int64_t oct_int8_bytes(const oct_program *program);
/* Bytes of the constants of a step: codes, biases, multipliers and tables; the arrays of a float layer. */
int64_t oct_step_bytes(const oct_program *program, const oct_step *step);

/* Multiply-adds of a model's convolutions and linear layers for one sample. A multiplication with padding, or with the
 * zeros between the values of a transposed convolution's input, is none. */
typedef struct oct_multiply_adds {
    int64_t forward, grad_weight;
    int64_t grad_input; /* 0 for a layer with no other layer with weights before it */
} oct_multiply_adds;

/* Returns the multiply-adds of a convolution for one sample. input_step_h, _w: rows and columns from one value of its input
 * to the next, with zeros between (0 as 1: none). */
int64_t oct_conv_multiply_adds(const oct_conv_shape *s, int input_step_h, int input_step_w);
int64_t oct_step_multiply_adds(const oct_step *step); /* 0: it is no convolution */
/* Sums over a program's steps: the forward, and both gradients as if it were trained. */
oct_status oct_program_multiply_adds(const oct_program *program, oct_multiply_adds *work);
