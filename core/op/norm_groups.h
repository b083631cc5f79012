/* A live batch norm takes its statistics over norm groups: aligned runs of leaves, each a subtree of the tree
 * over leaves (core/base/leaves.h). Which samples are a group follows from the batch and the context's
 * `norm_group` alone, never from who owns them, so no bit depends on ranks or threads. The last group of a
 * batch has what is left. Without `norm_group` the whole batch is the one group.
 *
 * Groups inside one rank need no other rank; the others are summed over all ranks, in one sum of
 * the columns of all of them. So are all groups in a step with an audit, which computes some leaf again alone.
 *
 * A forward moves the running values once, whatever the number of groups G:
 *     r += momentum * (sum over g of (n_g / N) s_g  -  r)
 * s_g: the group's mean or unbiased variance; n_g, N: samples of the group, of the batch. So the running mean
 * is that of the batch; the running variance is the one within the groups, as that is what training divides
 * by. TensorFlow's replicas average their moving statistics in this way (VariableAggregation.MEAN); G
 * PyTorch modules over slices of the batch do, if their buffers are averaged.
 * Since these sums are needed by nobody before the next forward, a forward only notes its groups' share, and
 * who began the step sums the notes over the ranks beside the gradients, once for all batch norms.
 */
#pragma once

#include "core/autograd/context.h"
#include "core/op/ops.h"

/* The groups that this rank's leaves touch. */
typedef struct oct_norm_groups {
    oct_leaves leaves;
    int64_t span;  /* leaves of a group; more than there are where the batch is one */
    int64_t first; /* of those touched, as counted in the batch */
    int64_t count; /* of those touched; the whole batch is touched by each rank */
} oct_norm_groups;

/* Returns the norm groups that this rank's leaves touch: runs of cx->norm_group leaves, over which a batch norm takes
 * its statistics. Where these are not live, or norm_group is 0, the whole batch is one group. */
oct_norm_groups oct_norm_groups_of(const oct_context *cx, bool live);
/* Returns the place among the groups touched of the group that has local leaf i. */
int64_t oct_norm_group_at(const oct_norm_groups *groups, int64_t i);
/* Returns the samples of group g of those touched, on all ranks together. */
int64_t oct_norm_group_samples(const oct_norm_groups *groups, int64_t g);
/* Returns the samples of the smallest group of the batch, the same on all ranks. */
int64_t oct_norm_group_least(const oct_norm_groups *groups);
/* totals (count, n): sums over each group touched of rows (leaves.local, n), which are folded in place. False
 * when the context has failed. Collective unless all groups of the batch lie inside ranks. */
bool oct_sum_over_groups(oct_context *cx, const oct_norm_groups *groups, double *rows, int64_t n,
                         double *totals);

/* The statistics of a forward, group by group. */
typedef struct oct_bn_stats {
    const oct_bn_args *args;
    oct_norm_groups groups;
    int64_t channels, positions; /* positions: values that a channel has in a sample */
    float *mean, *inv_std;       /* (count, C), what the forward normalizes by */
    float *noted;                /* (count, 2, C) for the running values; NULL: they move at once */
} oct_bn_stats;
/* One channel's statistics over a group. */
typedef struct oct_bn_batch {
    double mean, var;
    double unbiased; /* variance: var * count / (count - 1), rounded as the caller does it */
} oct_bn_batch;

/* Begins a forward's statistics; fills in stats->noted. Several groups get a note on the context, where their shares of
 * the running values wait for the sum over ranks. False: the context has failed, as where a group has one value a
 * channel. */
bool oct_bn_stats_begin(oct_context *cx, oct_bn_stats *stats);
/* Keeps mean and 1/sigma of channel c in group g, and moves the running values by them, or notes the share of several
 * groups. False: they would not be finite and are unchanged. Of several groups one that is not finite has mean and
 * 1/sigma 0: its rank alone knows, so the step goes on until all ranks see the sum of the notes. */
bool oct_bn_update(const oct_bn_stats *stats, int64_t g, int64_t c, const oct_bn_batch *batch);
/* Makes the statistics of channel c in group g not finite: for a caller who cannot compute with them. */
void oct_bn_invalidate(const oct_bn_stats *stats, int64_t g, int64_t c);

/* The notes of a forward, for whoever began the step, hold what the running values of its batch norms move by. Returns
 * how many numbers these are, a mean and a variance for each channel; 0 where there are no notes. */
int64_t oct_norm_notes_numel(const oct_context *cx);
/* Makes this rank's terms of the sum of the notes over all ranks, in rows (leaves.local, at least 1, times numel). */
void oct_norm_notes_fold(const oct_context *cx, float *rows);
/* Moves the running values by that sum and ends the notes; fails the context of all ranks where one is not finite. */
void oct_norm_notes_take(oct_context *cx, const float *total);
