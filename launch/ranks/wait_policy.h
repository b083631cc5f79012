/* The wait policy decides how the threads of a rank wait for each other between two pieces of work. */
#pragma once

#include "launch/base/args.h"

/* Threads wait awake for a tenth of a millisecond, as long as a piece of work may take, then asleep: a longer spin
 * takes the time of a control group's quota, or of other work, from the threads that are waited for. Where the threads
 * of a host's ranks have no core each, they wait asleep at once. The OpenMP runtime reads this when the program is
 * loaded, so a process of several threads starts itself once more. OMP_WAIT_POLICY or GOMP_SPINCOUNT of the user's own
 * are left as they are. */
oct_status oct_wait_policy(const oct_args *args) OCT_NODISCARD;
/* Chooses for the processes that this one starts. */
void oct_wait_policy_choose(bool cores_suffice);

/* This is what a recipe on the command line says of the ranks. It is read here too, so that its
 * mistakes are reported before any rank starts. */
typedef struct oct_ranks_wanted {
    int64_t threads;   /* of each; 1 without a recipe */
    double deadline_s; /* --deadline goes before it */
} oct_ranks_wanted;
oct_status oct_ranks_want(const oct_args *args, oct_ranks_wanted *wanted) OCT_NODISCARD;
