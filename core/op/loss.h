/* Losses: what a training step makes small. What one is made of, a function of one row of outputs and its gradient, is in
 * octet/task.h. Everything else is here: sums leaf by leaf and along the tree, checks of labels, the record on the tape.
 * To add one, write a file in core/op/loss and a line in loss_list.def, or a plug-in.
 */
#pragma once

#include "core/autograd/tape.h"
#include "core/metric/metric.h"

#define OCT_LOSS(name) extern const oct_loss_kind oct_loss_##name;
#include "core/op/loss_list.def"

/* Those of the list, then those that plug-ins added. */
extern oct_registry oct_loss_table;
const oct_loss_kind *oct_loss_find(const char *name); /* NULL */

typedef struct oct_loss_spec {
    const oct_loss_kind *kind;
    oct_loss_options options;
    const oct_metric *metric; /* that adds, on the same rows and in the same reduction; or NULL */
    /* The gradient is that of the sum over the batch's rows, divided by the rows of this many samples: for a
     * caller that adds up several batches. 0: divided by the weight of the batch's rows. */
    int64_t divisor_samples;
} oct_loss_spec;

/* The result, the same on all ranks. */
typedef struct oct_loss {
    double loss_sum; /* over the global batch, by the fixed tree */
    double weight;   /* of its rows: divide by it */
    double counted;  /* the same, 0 where no row counts */
    double divisor;  /* of the gradient */
    double metric;   /* NAN where none is measured */
} oct_loss;

/* Collective: the loss of y as a scalar tensor, to run oct_backward from; its backward needs no gradient
 * given. y: (N, K); or (N, ..., K) where a sample has a row for each place between; or of any shape, each
 * sample one row of values. Labels are copied, what else the goals and the options point to must last until the
 * backward has run. OCT_DATA when a label is no class, OCT_PEER when one of another rank is none. */
oct_tensor *oct_loss_apply(oct_context *cx, const oct_loss_spec *spec, oct_tensor *y,
                           const oct_goals *goals, oct_loss *result);
