/* A parameter has a value and a gradient.
 *
 * A parameter owns its value, and lives as long as somebody holds it: its module, and every oct_params
 * (params.h) that it is bound to. So a tree may change or end while it is bound (prepare, folding); what
 * has left it stays where it was until unbind. During training its gradient lives as parts: one vector
 * for each maximal aligned subtree of this rank's leaves (core/base/leaves.h).
 */
#pragma once

#include "core/tensor/move.h"
#include "core/tensor/tensor.h"

/* Values from a file must lie in this range. Both 0: any. */
typedef struct oct_value_range {
    double min, max;
} oct_value_range;

/* A layout of gradient rows that is not the parameter's own: `transpose` makes a value in the
 * parameter's layout from a row, by moves of elements only. */
typedef struct oct_leaf_layout {
    void (*transpose)(const struct oct_leaf_layout *layout, const float *row, float *value);
    int64_t groups, depth, outs; /* for the function */
} oct_leaf_layout;

/* A parameter that is another use of a tensor that an earlier parameter has, maybe in another order, has no life of its
 * own: its gradient is added to that of the earlier one (oct_params_reduce), and it takes its value after each
 * update (oct_optim_step). */
typedef struct oct_tie {
    oct_param *first; /* held */
    oct_file_order first_order, order;
} oct_tie;

struct oct_param {
    char *name;       /* in its module: "weight" */
    oct_tensor value; /* f32, owned */
    bool decay;
    bool frozen; /* the optimizer leaves it as it is */
    /* Another parameter has the same tensor: what changes values of one layer alone may not. */
    bool tied;
    oct_tie *tie; /* owned; NULL: it has a life of its own */
    int references;
    /* while a tape is alive: */
    int uses;                    /* recorded, not yet run backward */
    float *rows;                 /* leaf gradients between first begin and last end; borrowed */
    struct oct_param *next_open; /* of those with rows, in their context */
    /* From the rows' layout to the parameter's; no function: it is the same. */
    oct_leaf_layout row_layout;
    /* bound by oct_params_bind: */
    float *parts; /* part p of this parameter at parts + p * stride */
    int64_t stride;
    int64_t offset; /* in the blocks */
    int max_parts;
    bool folded; /* in this step */
    /* The total after oct_params_reduce, only read: others may read it there, too. */
    const float *grad;
    float *own_grad; /* where this rank may have it (oct_param_own_grad) */
    oct_value_range range;
};

/* Ties a parameter to an earlier one, which is not tied to others itself, and whose orders these are. */
oct_status oct_param_tie(oct_param *param, const oct_file_order *order, oct_param *first,
                         const oct_file_order *first_order);
/* Makes it a parameter of its own again. */
void oct_param_untie(oct_param *param);
/* Whether an optimizer changes it, by a gradient that counts. */
static inline bool oct_param_learns(const oct_param *param)
{
    return !param->frozen && !param->tie;
}
/* Returns the total gradient in memory that this rank may write, copied there if need be, where param->grad is then. */
float *oct_param_own_grad(oct_param *param);
/* Drops a reference; the last one ends the parameter. */
void oct_param_release(oct_param **param);
