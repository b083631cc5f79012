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
    oct_free(&self->name);
    oct_free(&self->value.data);
    oct_free(&self);
}
