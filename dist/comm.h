/* A communicator starts the ranks and supplies the collective interface over MPI point-to-point: octet/comm.h, and what
 * Octet itself asks of it.
 *
 * Every wait is a polled loop with a deadline, so a lost or stuck peer is named instead of hanging.
 */
#pragma once

#include "core/base/collective.h"

#include <octet/comm.h>

/* From now on this process is Octet's own, as that of the program octet is; otherwise Octet is a guest in it. In its own
 * process oct_comm_open and oct_comm_close are called once and start and end MPI within the deadline, or end the
 * process; and signals, the environment and the end of the job are Octet's (README.md). */
void oct_process_own(void);

/* A holder may be destroyed when the communicator is closed: until it releases that, calls only fail. NULL is allowed. */
void oct_comm_hold(const oct_comm *comm);
void oct_comm_release(const oct_comm *comm);

/* From now on a wait may take so long. */
void oct_comm_set_deadline(oct_comm *comm, double deadline_s);

/* NULL: that of this process alone. */
const oct_collective *oct_comm_collective(const oct_comm *comm);
/* Returns how often all ranks have synchronized so far: sums, maxima, agreements. Gradients that are summed beside
 * the backward count once, where their sums end. A rank that is alone never waits. */
int64_t oct_comm_syncs(const oct_comm *comm);
/* Says whether the last thing that all ranks did together was to agree on a failure, unless they went on from it. */
bool oct_comm_agreed(const oct_comm *comm);
void oct_comm_go_on(oct_comm *comm);
const char *oct_comm_host(const oct_comm *comm);
const char *oct_comm_library(const oct_comm *comm); /* "Open MPI 4.1.4", or "none" */

/* Says, before MPI is started and from the environment only, whether a launcher started us. rank
 * is 0 without one. */
bool oct_launched(int *rank, int *size);
/* Says, also from the environment, which of the ranks of this host this one is, and of how many; false where the
 * launcher does not say. */
bool oct_launched_here(int *local_rank, int *local_ranks);

/* Names the MPI library that this program is linked with, "Open MPI 4.1.4" or "MPICH 4.0.2", started or not. */
const char *oct_mpi_library(void);

/* Writes what ranks do, or did last: rank, process, step, operation, since when; a line each, of some of them where they
 * are many. Those of this host by their table; where comm is not NULL, others by their last message. Empty where nothing is
 * known. */
void oct_ranks_report(const oct_comm *comm, char *text, size_t size);

/* Ends the whole job from any rank with this exit status. The only MPI_Abort. */
void oct_abort(int exit_status) __attribute__((noreturn));

/* Sums over the ranks, in place, by the reduction of the library below, with which octet bench compares the own
 * one: it waits without a deadline, and its bits depend on the number of ranks. OCT_USAGE where the
 * library has none. */
oct_status oct_comm_sum_native(const oct_comm *comm, float *x, int64_t n);

/* Checks that all ranks have read the same; collective. what: "test data". OCT_DATA naming the first rank that differs
 * from rank 0. */
oct_status oct_comm_same(const oct_comm *comm, const void *data, size_t bytes, const char *what);
