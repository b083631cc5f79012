/* Optimizers update the bound parameters. Their state is flat, in the order of oct_params. */
#pragma once

#include "core/base/registry.h"
#include "core/optim/average.h"

typedef enum oct_optim_kind {
#define OCT_OPTIM(id, file) OCT_##id,
#include "core/optim/optim_list.def"
} oct_optim_kind;

/* The parameters of an optimizer, as in optim_list.def. weight_decay acts where a parameter's decay is set. */
typedef struct oct_optim_config {
#define OCT_OPTIM_FIELD_REAL float
#define OCT_OPTIM_FIELD_BOOL bool
#define OCT_OPTIM_FIELD_WORD oct_optim_kind
#define OCT_OPTIM_KEY(name, kind, def, min, max, table, same, help) OCT_OPTIM_FIELD_##kind name;
#include "core/optim/optim_list.def"
} oct_optim_config;

enum { OCT_OPTIM_SLOTS_MAX = 4 };

typedef struct oct_optim {
    oct_optim_config config;
    const struct oct_optim_type *type;
    int num_slots;
    float *slot[OCT_OPTIM_SLOTS_MAX]; /* params->numel each, zeros at first */
    int64_t numel;
    int64_t updates; /* done so far, with the one at hand */
    oct_average
        average; /* of what is updated: a part of a checkpoint as the slots are; none at first */
} oct_optim;

typedef struct oct_optim_type {
    const char *name;
    const char *uses; /* parameters of optim_list.def that are not everybody's, between blanks */
    /* Names in checkpoints of its state, one float for each of the parameters' in each of them. */
    const char *slot[OCT_OPTIM_SLOTS_MAX];
    /* Updates one bound parameter from param->grad; its state begins at slot[i] + param->offset. */
    void (*update)(const oct_optim *optim, oct_param *param, float lr);
} oct_optim_type;

#define OCT_OPTIM(id, file) extern const oct_optim_type oct_optim_##file;
#include "core/optim/optim_list.def"
extern const oct_registry oct_optim_kind_table;

int oct_optim_slots(oct_optim_kind kind); /* how many an optimizer keeps */
oct_status oct_optim_create(oct_optim *optim, const oct_optim_config *config,
                            const oct_params *params) OCT_NODISCARD;
void oct_optim_destroy(oct_optim *optim);
/* Makes one update from params->grads. Formulas as torch.optim.SGD and torch.optim.AdamW, in float; LARS and LAMB
 * by their papers. */
void oct_optim_step(oct_optim *optim, oct_params *params, float lr);
