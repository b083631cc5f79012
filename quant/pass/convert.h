/* QAT model -> integer program. The model must be prepared, with its scales frozen. */
#pragma once

#include "quant/pass/prepare.h"
#include "quant/runtime/program.h"

/* input as for prepare. islands (may be NULL) receives the paths of layers that stay float. The
 * program passes oct_program_check and computes, bit for bit, what root computes in eval mode. */
oct_status oct_convert(oct_program *program, oct_module *root, oct_shape input,
                       oct_text *islands) OCT_NODISCARD;
