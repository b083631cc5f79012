/* A parameter lives as long as somebody holds it, and may be tied to an earlier one. */
#include "core/nn/param.h"

#include "core/base/mem.h"

#include <string.h>

oct_status oct_param_tie(oct_param *param, const oct_file_order *order, oct_param *first,
                         const oct_file_order *first_order)
{
    OCT_ASSERT(!param->tie && !first->tie);
    OCT_TRY(oct_alloc(&param->tie, 1, sizeof *param->tie));
    *param->tie = (oct_tie){.first = first, .first_order = *first_order, .order = *order};
    first->references++;
    param->tied = first->tied = true;
    return OCT_OK;
}

void oct_param_untie(oct_param *param)
{
    if (!param->tie) return;
    oct_param_release(&param->tie->first);
    oct_free(&param->tie);
    param->tied = false;
}

float *oct_param_own_grad(oct_param *param)
{
    if (param->grad != param->own_grad)
        memcpy(param->own_grad, param->grad, (size_t)oct_numel(&param->value) * sizeof(float));
    param->grad = param->own_grad;
    return param->own_grad;
}

void oct_param_release(oct_param **param)
{
    oct_param *self = *param;
    *param = NULL;
    if (!self || --self->references > 0) return;
    oct_param_untie(self);
    OCT_FREE_ALL(&self->name, &self->value.data, &self);
}

float *oct_param_values(oct_param *param)
{
    return param ? oct_f32(&param->value) : NULL;
}

oct_shape oct_param_shape(const oct_param *param)
{
    return param ? param->value.shape : (oct_shape){0};
}
