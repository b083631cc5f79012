/* Optimizers share this. */
#pragma once

#include "core/optim/optim.h"

/* Some elements of a parameter, and of its state. */
typedef struct oct_optim_block {
    int64_t n;
    float *p;
    const float *grad;
    float *slot[OCT_OPTIM_SLOTS_MAX];
} oct_optim_block;

oct_optim_block oct_optim_block_at(const oct_optim *optim, const oct_param *param, int64_t first,
                                   int64_t n);

/* Updates the elements of a block, each by itself. */
typedef void oct_optim_block_fn(const oct_optim_block *block, const void *factors);
/* Updates a parameter block by block; threads share the blocks. */
void oct_optim_update_blocks(const oct_optim *optim, const oct_param *param,
                             oct_optim_block_fn *update, const void *factors);
