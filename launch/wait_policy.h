/* How the threads of a rank wait for each other between two pieces of work. */
#pragma once

#include "launch/command.h"

/* Threads that each have a core wait awake; where cores are shared, that takes them from the threads
 * that are waited for. The OpenMP runtime reads its policy when the program is loaded, so this rank, when
 * mpirun or srun put more threads than cores on its host, starts itself once more, asleep between
 * pieces of work. OMP_WAIT_POLICY or GOMP_SPINCOUNT of the user's own are left as they are. */
oct_status oct_wait_policy(const oct_args *args) OCT_NODISCARD;
/* Sets it for the processes that this one starts. */
void oct_wait_policy_passive(void);

/* Threads of a rank: those of a recipe on the command line, which is read here also so that its mistakes
 * are told before any rank starts; 1 for other files. */
oct_status oct_threads_wanted(const oct_args *args, int64_t *threads) OCT_NODISCARD;
