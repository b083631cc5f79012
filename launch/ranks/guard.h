/* The guard is a process that outlives the one that starts mpirun, for what would be left of a job then: mpirun and
 * ranks that did not notice, and the files that they keep in shared memory.
 *
 * These lie in a folder of the job's own. What killed jobs of this user have left, guard and all, goes when
 * the next one begins. */
#pragma once

#include "core/base/status.h"

#include <sys/types.h>

/* Starts a guard, then makes the folder; NULL where it cannot be had, and then there is no guard. */
const char *oct_guard_begin(void);
/* Starts a guard who knows the table of ranks and whom to watch, in place of the one before; 0: mpirun has ended. */
void oct_guard_watch(pid_t mpirun);
void oct_guard_end(void); /* the folder has gone when this returns */

/* Kills mpirun with what it has started, which may have left its process group and may be stopped. */
void oct_guard_kill(pid_t mpirun);
