/* All parameters of a module tree are bound to one block of gradients, reduced over ranks, and
 * checked.
 *
 * The parts of all parameters lie in one block, and so do the totals, which take the place of the first parts, of
 * this rank or of another one of its host: the optimizer is one loop. The block is cut into buckets of neighbouring
 * parameters, whose sums over the ranks begin one after another from the last parameter on, as a backward makes their
 * gradients: fixed by the module tree, so the same on all ranks.
 */
#pragma once

#include "core/base/collective.h"
#include "core/nn/module.h"

/* Parameters [first, end) of the list, which have these columns of the block. */
typedef struct oct_bucket {
    size_t first, end;
    int64_t offset, numel;
} oct_bucket;

typedef struct oct_params {
    const oct_collective *group; /* has the memory of the block */
    oct_param **items;           /* pre-order of the module tree; held */
    size_t count, capacity;
    int64_t numel; /* of all */
    float *parts;  /* max_parts x numel */
    int max_parts;
    /* numel: where this rank may change the totals; with a single rank they are there */
    float *grads;
    oct_bucket *buckets;
    size_t num_buckets, begun; /* begun: whose sums have, in this step */
} oct_params;

/* Collects the parameters below root. full: the leaves of a full batch on this rank, which bound
 * the number of parts of every smaller batch. A parameter that is bound elsewhere is from now on bound
 * here. */
oct_status oct_params_bind(oct_params *params, oct_module *root, const oct_leaves *full);
/* Binds as oct_params_bind, with the gradients in memory of `group`, whose ranks will sum them. The group outlives the
 * binding. */
oct_status oct_params_bind_on(oct_params *params, oct_module *root, const oct_leaves *full,
                              const oct_collective *group);
/* Frees the gradients and drops the references to the parameters; those bound elsewhere since stay so. */
void oct_params_unbind(oct_params *params);
/* True when none of them has been bound elsewhere since. */
bool oct_params_are_bound(const oct_params *params);
/* True when the parameters below root are still those that were bound. */
bool oct_params_are_of(const oct_params *params, oct_module *root);

/* Begins the sums over the ranks of the buckets (runs of parameters) whose gradients are complete. Called during a
 * backward; oct_params_reduce follows, or where the backward failed sums_finish of the group. */
oct_status oct_params_begin_allreduce(oct_params *params, const oct_collective *group,
                                      const oct_leaves *leaves);
/* Sums the parts of the gradients over all ranks; collective. The totals stay valid until the ranks synchronize for the
 * next backward. A parameter that no op used has gradient 0. */
oct_status oct_params_reduce(oct_params *params, const oct_collective *group,
                             const oct_leaves *leaves);
/* Returns grads with all totals in it, to be changed. */
float *oct_params_own_grads(oct_params *params);
/* Says where the next backwards put the parts of one leaf: to grads, since others may still read the totals where
 * parts are (aside); or to their place again. For a backward that is not reduced; what grads had is lost. */
void oct_params_put_parts(oct_params *params, bool aside);
void oct_params_scale_grads(oct_params *params, float factor); /* the totals */
/* Finds the first parameter whose total gradient, or else its value, is not finite, by its place in items; -1: there is
 * none. Of values after an update the same on all ranks. */
int64_t oct_params_find_bad(const oct_params *params, bool grads);
/* Fails with OCT_NUMERIC: the gradient, or else the value, of items[place] is bad, which its path below root names. */
oct_status oct_params_fail(const oct_params *params, int64_t place, bool grads, oct_module *root);
/* Clears the uses, rows and sums of the last step; called before the forward of each. */
void oct_params_zero(oct_params *params);
