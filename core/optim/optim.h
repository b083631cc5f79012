/* Optimizers over the bound parameters. State (slots) is flat, in the order of oct_params. */
#pragma once

#include "core/nn/param.h"

typedef enum oct_optim_kind { OCT_SGD, OCT_ADAMW } oct_optim_kind;

typedef struct oct_optim_config {
    oct_optim_kind kind;
    float momentum; /* SGD */
    bool nesterov;
    float beta1, beta2, eps; /* AdamW */
    float weight_decay;      /* where decay is set; SGD: added to the gradient; AdamW: decoupled */
} oct_optim_config;

typedef struct oct_optim {
    oct_optim_config config;
    int num_slots;  /* SGD 1 (momentum), AdamW 2 */
    float *slot[2]; /* params->numel each, zeros at first */
    int64_t numel;
    int64_t updates; /* done so far (AdamW's bias correction) */
} oct_optim;

oct_status oct_optim_create(oct_optim *optim, const oct_optim_config *config,
                            const oct_params *params) OCT_NODISCARD;
void oct_optim_destroy(oct_optim *optim);
/* One update from params->grads. Formulas as torch.optim.SGD and torch.optim.AdamW, in float. */
void oct_optim_step(oct_optim *optim, oct_params *params, float lr);
