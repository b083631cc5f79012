/* Optimizers update the bound parameters: their updates, the norms that these need, and the averages of weights.
 * Their state is flat, in the order of oct_params. */
#pragma once

#include "core/base/registry.h"
#include "core/nn/params.h"

typedef enum oct_optim_kind {
#define OCT_OPTIM(id, name) OCT_##id,
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

/* The exponential moving average of a model's weights (EMA), and of the running statistics of its batch
 * norms. A model that is judged and deployed by the averages is often better than the one that the last
 * steps have left. The memory here holds whichever of the two the model does not hold: a swap exchanges them. */
typedef struct oct_average_options {
    double decay; /* share of the average that a step leaves; 0: there is no average */
    bool warmup;  /* the decay of update t, from 0, is at most (1 + t) / (10 + t) */
} oct_average_options;

typedef struct oct_average {
    oct_average_options options;
    struct oct_average_span *spans; /* of the model's memory, one after another here */
    size_t count, capacity;
    float *values; /* NULL: there is no average */
    bool begun;    /* there is something in it */
    bool in_model; /* the model holds the averages, and the memory here what is trained */
} oct_average;

enum { OCT_OPTIM_SLOTS_MAX = 4 };

typedef struct oct_optim {
    oct_optim_config config;
    const struct oct_optim_type *type;
    int num_slots;
    float *slot[OCT_OPTIM_SLOTS_MAX]; /* params->numel each, zeros at first */
    int64_t numel;
    int64_t updates; /* done so far, with the one at hand */
    /* Of what is updated; part of a checkpoint as the slots are; none at first. */
    oct_average average;
    /* Whole numbers that whoever makes the gradients keeps from update to update, such as how exact they are; borrowed,
     * and part of a checkpoint where there are some. */
    int64_t *tiers;
    int64_t num_tiers;
} oct_optim;

typedef struct oct_optim_type {
    const char *name;
    const char *uses; /* parameters of optim_list.def that not all have, between blanks */
    /* Names in checkpoints of its state, one float for each of the parameters' in each of them. */
    const char *slot[OCT_OPTIM_SLOTS_MAX];
    /* Updates one bound parameter from param->grad; its state begins at slot[i] + param->offset. */
    void (*update)(const oct_optim *optim, oct_param *param, float lr);
} oct_optim_type;

#define OCT_OPTIM(id, name) extern const oct_optim_type oct_optim_##name;
#include "core/optim/optim_list.def"
extern const oct_registry oct_optim_kind_table;

/* Returns how many state vectors an optimizer of this kind keeps, as large as the parameters: momentum, moments. */
int oct_optim_slots(oct_optim_kind kind);
/* Creates an optimizer for the bound parameters, with its state vectors zero. */
oct_status oct_optim_create(oct_optim *optim, const oct_optim_config *config,
                            const oct_params *params);
void oct_optim_destroy(oct_optim *optim);
/* Makes one update from params->grads. Formulas as torch.optim.SGD and torch.optim.AdamW, in float; LARS and LAMB
 * by their papers. Where config.clip_norm is above 0, the gradients are scaled down to that norm before, as
 * torch.nn.utils.clip_grad_norm_ does; returns the norm that they had, otherwise NAN. */
double oct_optim_step(oct_optim *optim, oct_params *params, float lr);

/* Begins averages of root's bound parameters (params) and batch norm statistics; a decay of 0: of nothing. */
oct_status oct_average_create(oct_average *average, const oct_average_options *options,
                              oct_module *root, const oct_params *params);
void oct_average_destroy(oct_average *average);
/* Takes what the model holds into the averages, after an update: average += (1 - decay) * (value - average),
 * in float. updates: done by now; the first one begins the averages with what the model holds. */
void oct_average_update(oct_average *average, int64_t updates);
/* Swaps the values of the model with those kept beside it, unless the model holds the wanted ones already: its averages,
 * or what is trained. Nothing before the first update. */
void oct_average_swap(oct_average *average, bool want_averages);
/* Returns a tensor's average, or, while the model holds that, its trained values; NULL: there are none. */
float *oct_average_of(const oct_average *average, const oct_tensor *tensor);

/* Returns the sum of the squares of a vector, in double. Its shape follows from n alone, so no bit depends on threads
 * or on the instruction set; squares of floats are exact in double and do not overflow. */
double oct_square_sum(const float *x, int64_t n);
