/* A parameter has a name and a value, and lives as long as it is referenced. */
#include "core/nn/param.h"

#include "core/base/mem.h"

#include <string.h>

oct_status oct_param_create(oct_param **param, const char *name, oct_shape shape, bool decay)
{
    *param = NULL;
    int64_t numel = oct_shape_numel(&shape);
    char text[96];
    OCT_CHECK(numel > 0, OCT_DEFECT, "parameter %s cannot have the shape %s", name,
              oct_shape_text(&shape, text));
    oct_param *created;
    oct_status status = oct_alloc(&created, 1, sizeof *created);
    if (status != OCT_OK) return status;
    created->value = (oct_tensor){
        .dtype = OCT_F32, .shape = shape, .needs_grad = true, .trace_value = -1, .graph_value = -1};
    created->decay = decay;
    created->references = 1;
    OCT_TRY_OUT(oct_strdup(&created->name, name));
    OCT_TRY_OUT(oct_alloc(&created->value.data, (size_t)numel, sizeof(float)));
    *param = created;
out:
    if (status != OCT_OK) oct_param_release(&created);
    return status;
}

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
    oct_free(&self->name);
    oct_free(&self->value.data);
    oct_free(&self);
}
