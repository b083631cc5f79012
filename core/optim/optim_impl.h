/* The optimizers' updates of one bound parameter; optim->updates counts the one at hand. */
#pragma once

#include "core/optim/optim.h"

void oct_sgd_update(const oct_optim *optim, oct_param *param, float lr);
void oct_adamw_update(const oct_optim *optim, oct_param *param, float lr);
