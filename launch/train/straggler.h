/* Straggler detection: how long the steps of a run take, and which rank keeps the others waiting.
 *
 * A rank's own time is that of its step without what it waited for others; each step's control reduction takes the
 * times of the step before to all ranks. The slowest rank is named when it has taken 1.5 times the median, for its
 * share of the leaves too, in 20 steps in a row: once, and again only after 20 steps without. */
#pragma once

#include "core/base/collective.h"

enum { OCT_STRAGGLER_STEPS = 15 };

typedef struct oct_straggler {
    const oct_collective *group; /* borrowed */
    int64_t *own_ns;  /* of each rank; owned; what travels: each rank knows its own before */
    int64_t spent_ns; /* by this rank in the step before; 0: there was none */
    oct_leaves before, at_hand; /* what the ranks shared in that step, and in this one */
    double begin_s, waited_s;
    /* The rank that was slowest in each of the last `steps` steps; and whether it was named, with the steps since in
     * which it was not slow. */
    int slow, steps;
    bool named;
    int well;
    double took_s[OCT_STRAGGLER_STEPS]; /* the last steps, waiting included, in a ring */
    int64_t taken;
} oct_straggler;

oct_status oct_straggler_init(oct_straggler *straggler, const oct_collective *group) OCT_NODISCARD;
void oct_straggler_deinit(oct_straggler *straggler);
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
