/* What convolutions that end in codes, those that end in float, and batch norms on their own share. */
#pragma once

#include "quant/program/step.h"

enum { OCT_NUM_CONV_FIELDS = 22 };
extern const oct_step_field oct_conv_fields[OCT_NUM_CONV_FIELDS];

/* Check types and bounds of the second addend, the multipliers and the clipping; sums of 8-bit inputs stay
 * within int32 and those of 16-bit inputs within 2^47. */
oct_status oct_conv_check(const oct_program *program, const oct_step *step) OCT_NODISCARD;
oct_status oct_epilogue_check(const oct_program *program, const oct_step *step) OCT_NODISCARD;
int64_t oct_conv_packed_bytes(const oct_program *program, const oct_step *step,
                              const oct_kernel *kernel);
void oct_conv_pack(const oct_program *program, const oct_step *step, const oct_kernel *kernel,
                   void *packed);
int64_t oct_conv_scratch_bytes(const oct_program *program, const oct_step *step,
                               const oct_kernel *kernel);
void oct_conv_run(const oct_step_run *r);
