/* `octet inspect --device` shows what an int8 model asks of a device. */
#pragma once

#include "io/model/model_file.h"

/* Prints to stdout, for one sample: flash (weights, biases, multipliers, tables, layers: as the C form has them), scratch as the runtime plans it,
 * multiply-adds, of each layer and in all, and which layers take most of each. */
oct_status oct_print_device(const oct_model *model, const char *path, bool json) OCT_NODISCARD;
