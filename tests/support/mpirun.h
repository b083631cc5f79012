/* Starts a rank program under mpirun from a Criterion test; the one place in tests that knows the
 * launcher's flags. Criterion and MPI_Init do not go together in one process (see tests/README.md). */
#pragma once

#include "tests/support/process.h"
#include "tests/support/tmp.h"

/* program: a name in the build's ranks folder ("rank_reduce"), or a path ("/..."); its arguments end
 * with NULL. More ranks than cores are fine. */
oct_process oct_mpirun(int ranks, double timeout_s, const char *program, ...)
    __attribute__((sentinel));
/* Sets what an mpirun needs that a script starts, with a folder for its files, to be removed after it. */
void oct_mpirun_begin(oct_tmp *own);
