/* The integer program inside a model file: the group "program". */
#pragma once

#include "io/hdf5/hdf5.h"
#include "quant/program/program.h"

enum { OCT_MODEL_STEPS_MAX = 4096, OCT_MODEL_VALUES_MAX = 8192 };

/* Whether text has no control characters but those of plain lines, since it is shown on terminals. */
bool oct_is_plain_text(const char *text);

oct_status oct_model_write_program(oct_h5 *h5, const oct_program *program) OCT_NODISCARD;
/* *program is zeroed before, and to be freed by the caller, also on failure. What it holds is in
 * range; whether it is a program says oct_program_check. */
oct_status oct_model_read_program(oct_h5 *h5, oct_program *program) OCT_NODISCARD;
