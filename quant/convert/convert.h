/* QAT model -> integer program. The model must be prepared, with its scales frozen. */
#pragma once

#include "quant/prepare/prepare.h"
#include "quant/program/program.h"

/* Converts a prepared model whose scales are frozen. example: as for oct_prepare. target: the one that the model was
 * prepared for; another one gives OCT_PREPARE, NULL OCT_USAGE. fallbacks (may be NULL) receives a line for each layer that
 * stays float. The program passes oct_program_check and computes, bit for bit, what root computes in eval mode. */
oct_status oct_convert(oct_program *program, oct_module *root, const oct_example *example,
                       const oct_target *target, oct_text *fallbacks);

typedef void (*oct_value_fn)(void *user, int64_t value, const void *data, size_t bytes);
/* Evaluates root on the example's data, one sample, and shows each value of the program that it
 * converts to as the model computes it: a certificate compares them with the program's own. OCT_MISMATCH
 * when the forward took another way on this data than `program` goes. */
oct_status oct_convert_watch(const oct_program *program, oct_module *root,
                             const oct_example *example, oct_value_fn show, void *user);

/* Runs the float fallbacks of programs by the modules that they were (module types with `create`). */
extern const oct_fallback_host oct_module_fallbacks;
/* Makes each float fallback of a program that has passed oct_program_check, and runs it over a sample of zeros:
 * arguments, arrays and shapes fit each other, before a program is run or exported. of_plugins: also
 * those of types that are not built in, OCT_PREPARE where such a type is not known here. OCT_DATA. */
oct_status oct_fallbacks_check(const oct_program *program, bool of_plugins);
