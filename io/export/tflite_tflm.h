/* TensorFlow Lite for Microcontrollers (TFLM) of August 2026, 90b983c: what a TFLite file asks of it. */
#pragma once

#include "core/base/text.h"
#include "io/export/tflite_writer.h"

/* Fails the writer for each operator that TFLM's kernels do not take, by its layer's name. */
void oct_tflm_check(oct_to_tflite_writer *w);
enum { OCT_TFLM_CONCATENATED = 10 }; /* inputs of one CONCATENATION, at most */
/* Gives the names of a file's operators, which a program registers, with spaces between them, and the bytes of the
 * tensors between them as TFLM's greedy planner lays them into its arena. */
oct_status oct_tflm_needs(const oct_to_tflite_writer *w, oct_text *operators,
                          int64_t *arena) OCT_NODISCARD;
