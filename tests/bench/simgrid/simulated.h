/* Included before each source of dist/ that is compiled for the simulator (run says which), so that thousands of ranks
 * fit into one process. Control flow, messages and their lengths stay those of the sources; long vectors are neither
 * copied nor added, but take the time for it.
 */
#pragma once

#include "dist/comm_impl.h"

#include <mpi.h>
#include <sched.h>
#include <string.h>

/* The same as memcpy and oct_tree_merge for less than OCT_SIM_LONG bytes a vector, which take no time; longer
 * vectors keep what they had, and the rank sleeps. A merge names its function of reduce.c. */
enum { OCT_SIM_LONG = 4096 };
void *oct_sim_copy(void *to, const void *from, size_t bytes);
int oct_sim_merge(const char *where, const oct_leaves *run, oct_subtree *parts, void **vectors,
                  int num_parts, int64_t n, size_t width);

/* The clock. Reading it takes a microsecond, as a poll does. The intervals of a rank that polls in vain grow to 20
 * microseconds. */
double oct_sim_seconds(void);

/* Says whether this rank may sleep until what it waits for is there, instead of polling: where no sums go on besides.
 * What it does is the same, sooner simulated. */
void oct_sim_may_sleep(bool may);
int oct_sim_testsome(int count, MPI_Request *requests, int *done, int *which, MPI_Status *statuses);
int oct_sim_look_around(MPI_Comm comm, int *found);
/* The same as oct_exchange_signal, which wakes those who sleep. */
void oct_sim_signal(const oct_comm *comm, uint64_t progress);

/* Returns the buffer of a message of this tag: data, or for long pieces of sums a buffer that all ranks share and that
 * the simulator does not copy. */
void *oct_sim_buffer(const void *data, int bytes, int tag);

/* The same as MPI_Allreduce of floats; the additions take the time of merges. */
int oct_sim_allreduce(float *x, int n, MPI_Comm comm);

/* Returns the zero bytes that a rank may have as its vectors; no page of them is ever touched. */
void *oct_sim_vectors(size_t bytes);

#ifdef OCT_SIMULATED
#define oct_seconds oct_sim_seconds
#define sched_yield() 0
#define MPI_Isend(data, bytes, type, peer, tag, comm, request)                                     \
    (MPI_Isend)(oct_sim_buffer(data, bytes, tag), bytes, type, peer, tag, comm, request)
/* A receive takes any tag; `tag` is what transport_mpi.c knows of it. */
#define MPI_Irecv(data, bytes, type, peer, any, comm, request)                                     \
    (MPI_Irecv)(oct_sim_buffer(data, bytes, tag), bytes, type, peer, any, comm, request)
#define MPI_Testsome oct_sim_testsome
/* It has no MPI_Comm_idup, and these two wait. */
#define MPI_Ibarrier(comm, request) MPI_Barrier(comm)
#define MPI_Comm_idup(comm, copy, request) MPI_Comm_dup(comm, copy)
#define MPI_Test(request, done, status) (*(done) = 1, (void)(request), MPI_SUCCESS)
#define MPI_Iprobe(peer, tag, comm, found, status) oct_sim_look_around(comm, found)
#define MPI_Allreduce(in, x, n, type, op, comm) oct_sim_allreduce(x, n, comm)
#endif

#ifdef OCT_SIMULATED_SUMS
#define memcpy oct_sim_copy
#define oct_tree_merge(...) oct_sim_merge(__func__, __VA_ARGS__)
#define oct_exchange_signal oct_sim_signal
#endif
