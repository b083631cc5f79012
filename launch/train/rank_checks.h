/* What shows that a rank is faulty or slow: the replica check and the leaf audit find wrong bits, straggler detection
 * finds the rank that the others wait for. */
#pragma once

#include "core/base/collective.h"
#include "io/batch/loader.h"
#include "quant/train/train_step.h"

/* The replica check: weights and all other state of training have the same bits on all ranks. Where they differ, the
 * memory or the processor of a host is faulty, and the run ends before that spreads: a slice of the state is digested
 * before each step and compared in its control reduction, all of it before a checkpoint is written. */

/* How many steps check all of the state. */
enum { OCT_REPLICA_CHECK_SLICES = 32 };

/* The flags of a step that show whether all ranks have the same digest. */
typedef struct oct_replica_check {
    int64_t digest;      /* of this rank */
    int64_t most, least; /* the flags: maximum over the ranks of the digest, and of its negative */
} oct_replica_check;

/* Collective: compares all of the state after `steps` steps. OCT_LOST where it differs, which names the ranks whose
 * state differs from that of most; of two ranks, both. */
oct_status oct_replica_check_whole(oct_train_step *training, const oct_collective *group,
                                   int64_t steps);

/* The leaf audit: every `audit.every` steps another rank computes one leaf of the step again, and the bits of all that
 * it added to sums are compared. Different bits show that a processor or a memory is faulty. Which leaf, and who
 * computes it again, is a pure function of the step, and goes round. One rank alone audits itself. */

/* A leaf of a batch of an update (by indices), its owner, and the rank that computes it again. */
typedef struct oct_audit_choice {
    int64_t batch, leaf;
    int owner, auditor;
} oct_audit_choice;

/* An update of `batches` batches with `samples` samples each, the last one `last`; leaf: the one to audit. */
typedef struct oct_audited_update {
    int64_t batches, samples, last, leaf;
} oct_audited_update;
oct_audit_choice oct_audit_choose(int64_t number, const oct_audited_update *update, int ranks);

/* Judges an audit whose first two digests differ. digest (2 + ranks): the owner's in the step, the auditor's, and that of
 * each rank when all have computed the leaf again. Sets faulty (ranks): those with a digest that is not the majority's;
 * without a majority, owner and auditor. Returns how many are faulty. */
int oct_audit_judge(const oct_audit_choice *choice, const int64_t *digest, int ranks, bool *faulty);

/* What a trainer needs for it. */
typedef struct oct_leaf_audit {
    oct_loader loader; /* of single leaves */
    float *images;     /* of one leaf; NULL: nothing is ever audited */
    oct_audit_choice choice;
    int64_t done; /* in this process */
} oct_leaf_audit;

/* Straggler detection: how long the steps of a run take, and which rank keeps the others waiting.
 *
 * A rank's own time is that of its step without what it waited for others; each step's control reduction takes the
 * times of the step before to all ranks. The slowest rank is named when it has taken 1.5 times the median, for its
 * share of the leaves too, in 20 steps in a row: once, and again only after 20 steps without. */

enum { OCT_STRAGGLER_STEPS = 15 };

typedef struct oct_straggler {
    const oct_collective *group; /* borrowed */
    /* Of each rank, to be freed by oct_free; it is what travels: each rank knows its own before. */
    int64_t *own_ns;
    int64_t spent_ns;           /* by this rank in the step before; 0: there was none */
    oct_leaves before, at_hand; /* what the ranks shared in that step, and in this one */
    double begin_s, waited_s;
    /* The rank that was slowest in each of the last `steps` steps; and whether it was named, with the steps since in
     * which it was not slow. */
    int slow, steps;
    bool named;
    int steps_not_slow;
    double took_s[OCT_STRAGGLER_STEPS]; /* the last steps, waiting included, in a ring */
    int64_t taken;
} oct_straggler;

oct_status oct_straggler_init(oct_straggler *straggler, const oct_collective *group);
/* Before a step with these leaves of this rank, or with several such batches; and after it, when own_ns holds what all
 * ranks took for the step before: names the rank that is slow in the log. */
void oct_straggler_begin(oct_straggler *straggler, const oct_leaves *leaves);
void oct_straggler_end(oct_straggler *straggler);

/* How long a rank may wait for another within a step: 20 median steps, but 30 s at least; 0: too few steps are known. */
double oct_straggler_deadline(const oct_straggler *straggler);

/* Finds the slowest of the ranks, or -1 where it does not take 1.5 times the median of them, and a millisecond more
 * than that. leaves: of the batch that they shared. *factor: how many times the median it takes. */
int oct_straggler_slowest(const int64_t *own_ns, int ranks, const oct_leaves *leaves,
                          double *factor);
