/* The wait policy decides how the threads of a rank wait for each other between two pieces of work. */
#pragma once

#include "launch/base/args.h"

/* Threads that each have a core wait awake; where cores are shared, that takes them from the threads
 * that are waited for. The OpenMP runtime reads its policy when the program is loaded, so this rank, when
 * mpirun or srun put more threads than cores on its host, starts itself once more, asleep between
 * pieces of work. OMP_WAIT_POLICY or GOMP_SPINCOUNT of the user's own are left as they are. */
oct_status oct_wait_policy(const oct_args *args) OCT_NODISCARD;
/* Makes the processes that this one starts wait asleep. */
void oct_wait_policy_passive(void);

/* This is what a recipe on the command line says of the ranks. It is read here too, so that its
 * mistakes are told before any rank starts. */
typedef struct oct_ranks_wanted {
    int64_t threads;   /* of each; 1 without a recipe */
    double deadline_s; /* --deadline goes before it */
} oct_ranks_wanted;
oct_status oct_ranks_want(const oct_args *args, oct_ranks_wanted *wanted) OCT_NODISCARD;
