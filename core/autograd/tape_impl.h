/* Between the files of the tape. */
#pragma once

#include "core/autograd/tape.h"

/* May gradients be added to it? Else the context has failed. */
bool oct_param_takes_grads(oct_context *cx, const oct_param *param);
