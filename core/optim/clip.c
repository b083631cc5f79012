/* The norm is that of one vector, of all parameters in their order. */
#include "core/optim/clip.h"

#include "core/optim/square_sum.h"

#include <math.h>

double oct_clip_grads(oct_params *params, double most)
{
    double sum = 0;
    for (size_t i = 0; i < params->count; i++) {
        const oct_param *param = params->items[i];
        if (oct_param_learns(param)) sum += oct_square_sum(param->grad, oct_numel(&param->value));
    }
    const double norm = sqrt(sum), factor = most / (norm + 1e-6);
    if (factor < 1) oct_params_scale_grads(params, (float)factor);
    return norm;
}
