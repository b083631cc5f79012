/* Optimizer state and the choice between optimizers. */
#include "core/optim/optim.h"

#include "core/base/mem.h"
#include "core/optim/optim_impl.h"

oct_status oct_optim_create(oct_optim *optim, const oct_optim_config *config,
                            const oct_params *params)
{
    *optim = (oct_optim){.config = *config, .numel = params->numel};
    optim->num_slots = config->kind == OCT_SGD ? 1 : 2;
    oct_status status = OCT_OK;
    for (int i = 0; i < optim->num_slots; i++)
        OCT_TRY_OUT(oct_alloc(&optim->slot[i], (size_t)params->numel, sizeof(float)));
out:
    if (status != OCT_OK) oct_optim_destroy(optim);
    return status;
}

void oct_optim_destroy(oct_optim *optim)
{
    for (size_t i = 0; i < OCT_COUNT(optim->slot); i++)
        oct_free(&optim->slot[i]);
}

void oct_optim_step(oct_optim *optim, oct_params *params, float lr)
{
    OCT_ASSERT(optim->numel == params->numel);
    optim->updates++;
    for (size_t i = 0; i < params->count; i++) {
        if (params->items[i]->frozen) continue;
        if (optim->config.kind == OCT_SGD)
            oct_sgd_update(optim, params->items[i], lr);
        else
            oct_adamw_update(optim, params->items[i], lr);
    }
}
