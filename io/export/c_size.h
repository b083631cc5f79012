/* What the C form of a program takes as constants, before it is written. */
#pragma once

#include "quant/program/program.h"

/* Fills in the bytes of each step's arrays and layer (KWS_CONSTANT_BYTES is their sum); -1 where C has no form for a step.
 * The program has passed its check. OCT_RESOURCE when memory is out. */
oct_status oct_c_constant_bytes(const oct_program *program, int64_t *bytes) OCT_NODISCARD;
