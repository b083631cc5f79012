/* These count the multiply-adds of a model's convolutions and linear layers for one sample. A
 * multiplication with padding, or with the zeros between the values of a transposed convolution's
 * input, is none. */
#pragma once

#include "quant/program/program.h"

typedef struct oct_multiply_adds {
    int64_t forward, grad_weight;
    int64_t grad_input; /* none for layers that no other with weights comes before */
} oct_multiply_adds;

/* input_step: how many rows and columns the values of a convolution's input are apart (1: it was not dilated). */
int64_t oct_conv_multiply_adds(const oct_conv_shape *s, int input_step_h, int input_step_w);
oct_multiply_adds oct_program_multiply_adds(const oct_program *program);
