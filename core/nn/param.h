/* Parameters and their gradients.
 *
 * A parameter owns its value, and lives as long as somebody holds it: its module, and every oct_params
 * that it is bound to. So a tree may change or end while it is bound (prepare, folding); what has left
 * it stays where it was until unbind. During training its gradient lives as parts: one vector for each
 * maximal aligned subtree of this rank's leaves (core/base/leaves.h). oct_params gathers all
 * parameters of a module tree: the parts of all of them lie in one block, so the reduction over
 * ranks is one call, and the totals take the place of the first parts, so the optimizer is one loop.
 */
#pragma once

#include "core/autograd/tape.h"

/* What values may come from a file. Both 0: any. */
typedef struct oct_value_range {
    double min, max;
} oct_value_range;

struct oct_param {
    char *name;       /* in its module: "weight" */
    oct_tensor value; /* f32, owned */
    bool decay;
    bool frozen; /* the optimizer leaves it as it is */
    int holders;
    /* while a tape is alive: */
    int uses;                    /* recorded, not yet run backward */
    float *rows;                 /* leaf gradients between first begin and last end; borrowed */
    struct oct_param *next_open; /* of those with rows, in their context */
    oct_leaf_layout
        turn; /* from the rows' layout to the parameter's; no function: it is the same */
    /* bound by oct_params_bind: */
    float *parts; /* part p of this parameter at parts + p * stride */
    int64_t stride;
    int64_t offset; /* in the blocks */
    int max_parts;
    bool folded; /* in this step */
    float *grad; /* the total after oct_params_reduce, in place of part 0 */
    oct_value_range range;
};

/* Zeros, held by the caller. The name is copied; shape and memory are fixed from here on. For
 * core/nn/module.c. */
oct_status oct_param_create(oct_param **param, const char *name, oct_shape shape,
                            bool decay) OCT_NODISCARD;
/* One holder less; the last one's ends the parameter. */
void oct_param_release(oct_param **param);

typedef struct oct_params {
    oct_param **items; /* pre-order of the module tree; held */
    size_t count;
    int64_t numel; /* of all */
    float *parts;  /* max_parts x numel */
    int max_parts;
    float *grads; /* numel: part 0, which the total replaces */
} oct_params;

/* Collects the parameters below root. full: the leaves of a full batch on this rank, which bound
 * the number of parts of every smaller batch. A parameter that is bound elsewhere is from now on bound
 * here. */
oct_status oct_params_bind(oct_params *params, oct_module *root,
                           const oct_leaves *full) OCT_NODISCARD;
void oct_params_unbind(oct_params *params);
/* Whether none of them has been bound elsewhere since. */
bool oct_params_are_bound(const oct_params *params);
/* Whether the parameters below root are still those that were bound. */
bool oct_params_are_of(const oct_params *params, oct_module *root);

/* Collective: sums parts over all ranks into grads. A parameter that no op used has gradient 0. */
oct_status oct_params_reduce(oct_params *params, const oct_collective *group,
                             const oct_leaves *leaves) OCT_NODISCARD;
/* Behind an update: OCT_NUMERIC when a value is not finite any more, naming its parameter by its path
 * below root. Alike on all ranks. */
oct_status oct_params_check_values(const oct_params *params, oct_module *root) OCT_NODISCARD;
/* Before the forward of each step: forgets what the last one left. */
void oct_params_zero(oct_params *params);
