/* Ends the simulation, with the reason, where a call of ours fails. */
#pragma once

#include "core/base/status.h"

#include <mpi.h>
#include <stdio.h>

#define MUST(call)                                                                                 \
    do {                                                                                           \
        if ((call) != OCT_OK) {                                                                    \
            fprintf(stderr, "%s: %s\n", #call, oct_error_message(0));                              \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                          \
        }                                                                                          \
    } while (0)
