/* This file holds the table of optimizers and makes the state of one. */
#include "core/optim/optim_impl.h"

#include "core/base/int_math.h"
#include "core/base/mem.h"

enum { BLOCK = 1 << 14 }; /* elements: what a thread works on stays in its cache */

static const void *const listed[] = {
#define OCT_OPTIM(id, file) &oct_optim_##file,
#include "core/optim/optim_list.def"
};
const oct_registry oct_optim_kind_table = OCT_REGISTRY("an optimizer", listed);

int oct_optim_slots(oct_optim_kind kind)
{
    const oct_optim_type *type = oct_registry_at(&oct_optim_kind_table, kind);
    int count = 0;
    while (count < OCT_OPTIM_SLOTS_MAX && type->slot[count])
        count++;
    return count;
}

oct_status oct_optim_create(oct_optim *optim, const oct_optim_config *config,
                            const oct_params *params)
{
    *optim = (oct_optim){.config = *config,
                         .type = oct_registry_at(&oct_optim_kind_table, config->kind),
                         .num_slots = oct_optim_slots(config->kind),
                         .numel = params->numel};
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
    oct_average_destroy(&optim->average);
}

oct_optim_block oct_optim_block_at(const oct_optim *optim, const oct_param *param, int64_t first,
                                   int64_t n)
{
    oct_optim_block block = {.n = oct_min_i64(n, oct_numel(&param->value) - first),
                             .p = oct_f32(&param->value) + first,
                             .grad = param->grad + first};
    for (int i = 0; i < optim->num_slots; i++)
        block.slot[i] = optim->slot[i] + param->offset + first;
    return block;
}

void oct_optim_update_blocks(const oct_optim *optim, const oct_param *param,
                             oct_optim_block_fn *update, const void *factors)
{
    const int64_t n = oct_numel(&param->value);
#pragma omp parallel for schedule(static) if (n > BLOCK)
    for (int64_t first = 0; first < n; first += BLOCK) {
        const oct_optim_block block = oct_optim_block_at(optim, param, first, BLOCK);
        update(&block, factors);
    }
}

void oct_optim_step(oct_optim *optim, oct_params *params, float lr)
{
    OCT_ASSERT(optim->numel == params->numel);
    optim->updates++;
    for (size_t i = 0; i < params->count; i++)
        if (oct_param_learns(params->items[i])) optim->type->update(optim, params->items[i], lr);
    for (size_t i = 0; i < params->count; i++) {
        const oct_tie *tie = params->items[i]->tie;
        if (tie)
            oct_file_order_move(&tie->first_order, oct_f32(&tie->first->value), &tie->order,
                                oct_f32(&params->items[i]->value), false);
    }
}
