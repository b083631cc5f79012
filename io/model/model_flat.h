/* An int8 model out of a flat file (quant/program/flat_layout.h): all that a model file holds, but float layers. */
#pragma once

#include "io/model/model.h"

bool oct_model_is_flat(const void *bytes, size_t size); /* by the first bytes */
/* Reads the model; *model is zeroed before, and to be freed by the caller, also on failure. bytes lie at a multiple of
 * 64 and stay the caller's. What is said lacks the path. */
oct_status oct_model_read_flat(oct_model *model, const void *bytes, size_t size) OCT_NODISCARD;
