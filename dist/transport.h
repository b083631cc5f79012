/* A transport carries messages between ranks. Which are sent, what they mean and how long one waits for
 * them is not its matter (exchange.c), so the same sums run over MPI and over threads of one process.
 *
 * Messages from one rank to another arrive in the order in which they were sent. No call blocks, and
 * nothing need move unless `test` is called.
 */
#pragma once

#include "core/base/status.h"

#include <stdint.h>

typedef struct oct_transfer {
    int peer;
    bool receives;
    size_t bytes;
} oct_transfer;

/* An arrival says that a transfer has ended, and what came. */
typedef struct oct_arrival {
    size_t transfer; /* its number */
    int tag;         /* of the message that was received */
    size_t bytes;    /* of it; more than the transfer's where it was longer */
} oct_arrival;

typedef struct oct_transport oct_transport;
struct oct_transport {
    int rank, size;
    const char *name; /* "Open MPI 4.1.4" */
    const char *host; /* NULL: that of this process */
    /* Begins a transfer with this number; those in flight have the numbers 0, 1, 2, ... A receive takes
     * the next message of its peer, whatever its tag (at most 15 bits). `data` stays untouched until the
     * transfer has ended; a send only reads it. */
    oct_status (*begin)(oct_transport *self, size_t number, const oct_transfer *transfer,
                        void *data, int tag);
    /* Says which of the transfers 0 to count - 1 have ended since the last call; with none it only lets
     * messages move. After a failure
     * *ended is 1 where it concerns one of them, which arrivals[0] names; else 0. */
    oct_status (*test)(oct_transport *self, size_t count, oct_arrival *arrivals, size_t *ended);
    /* Opens a second transport between the same ranks, whose messages do not mix with these; collective. It is
     * closed before this one. */
    oct_status (*duplicate)(oct_transport *self, oct_transport **opened);
    /* Sums by the library's own reduction, in place, for comparison: it waits without a deadline, and its
     * bits depend on the number of ranks. NULL where there is none. */
    oct_status (*sum_native)(oct_transport *self, float *x, int64_t n);
    /* Ends it. orderly: all ranks come here, and nothing is in flight; else only memory is given back. */
    void (*close)(oct_transport *self, bool orderly);
};
