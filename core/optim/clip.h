/* Gradients are clipped by the norm of all of them together. */
#pragma once

#include "core/nn/params.h"

/* Multiplies the total gradients by most / (norm + 1e-6) where that is below 1, as
 * torch.nn.utils.clip_grad_norm_ does; frozen parameters count nothing. Returns the norm before. */
double oct_clip_grads(oct_params *params, double most);
