/* What the simulator has in place of memory and clock. */
#include "tests/bench/simgrid/simulated.h"

#include "core/base/mem.h"
#include "dist/comm_impl.h"

#include <fcntl.h>
#include <simgrid/actor.h>
#include <simgrid/engine.h>
#include <simgrid/semaphore.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Bytes per second that a rank copies while the 7 others of its host do so too. A merge costs less than a copy, in the
 * MPI library's sum as well: what has just arrived is in the caches. In rows of a node, a merge of k vectors reads k from
 * memory and writes one, where a copy reads one and writes one. */
static const double copied_per_s = 6.4e9, merge_factor = 0.75;

static const double poll_s = 1e-6, longest_poll_s = 20e-6;

void *oct_sim_copy(void *to, const void *from, size_t bytes)
{
    if (bytes < OCT_SIM_LONG) return memcpy(to, from, bytes);
    sg_actor_sleep_for((double)bytes / copied_per_s);
    return to;
}

int oct_sim_merge(const char *where, const oct_leaves *run, oct_subtree *parts, void **vectors,
                  int num_parts, int64_t n, size_t width)
{
    const double bytes = (double)n * (double)width;
    if (bytes < OCT_SIM_LONG) return oct_tree_merge(run, parts, vectors, num_parts, n, width);
    const int left = oct_tree_merge(run, parts, vectors, num_parts, 0, width);
    const bool in_rows = strcmp(where, "oct_sum_add_share") == 0;
    const double copies = in_rows ? (num_parts + 1) / 2.0 : (num_parts - left) * merge_factor;
    if (left < num_parts) sg_actor_sleep_for(copies * bytes / copied_per_s);
    return left;
}

/* What the simulator knows of a rank. */
typedef struct actor {
    double polled;
    int polls; /* without time passing between them */
    bool may_sleep, sleeps;
    sg_sem_t woken;
} actor;

enum { MOST_RANKS = 1 << 16 };

static actor actors[MOST_RANKS]; /* by process number, which is the rank's and one */

static actor *self(void)
{
    return &actors[sg_actor_self_get_pid() % MOST_RANKS];
}

double oct_sim_seconds(void)
{
    actor *mine = self();
    if (simgrid_get_clock() > mine->polled) mine->polls = 0;
    const double longer = poll_s * (1 + mine->polls++ / 4);
    sg_actor_sleep_for(longer < longest_poll_s ? longer : longest_poll_s);
    mine->polled = simgrid_get_clock();
    return mine->polled;
}

void oct_sim_may_sleep(bool may)
{
    self()->may_sleep = may;
}

int oct_sim_testsome(int count, MPI_Request *requests, int *done, int *which, MPI_Status *statuses)
{
    return self()->may_sleep ? MPI_Waitsome(count, requests, done, which, statuses)
                             : MPI_Testsome(count, requests, done, which, statuses);
}

int oct_sim_look_around(MPI_Comm comm, int *found)
{
    actor *mine = self();
    if (!mine->may_sleep)
        return MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, found, MPI_STATUS_IGNORE);
    if (!mine->woken) mine->woken = sg_sem_init(0);
    mine->sleeps = true;
    sg_sem_acquire(mine->woken);
    return MPI_SUCCESS;
}

void oct_sim_signal(const oct_comm *comm, uint64_t progress)
{
    const oct_rank_node *node = &comm->state->node;
    oct_exchange_signal(comm, progress);
    for (int r = node->first; r < node->first + node->ranks; r++) {
        actor *other = &actors[r + 1];
        if (!other->sleeps) continue;
        other->sleeps = false;
        sg_sem_release(other->woken);
    }
}

/* transport_mpi.c sends pieces of 512 KB at most (exchange.c). */
enum { KIND_MASK = 15, PIECE_BYTES = 512 << 10 };

void *oct_sim_buffer(const void *data, int bytes, int tag)
{
    static void *common;
    void *own;
    const int kind = tag & KIND_MASK;
    memcpy(&own, &data, sizeof own);
    if (bytes < OCT_SIM_LONG ||
        (kind != OCT_EXCHANGE_TREE_SUM && kind != OCT_EXCHANGE_GRADIENT_SUM))
        return own;
    OCT_ASSERT(bytes <= PIECE_BYTES);
    if (!common) common = SMPI_SHARED_MALLOC(PIECE_BYTES);
    return common;
}

static void take_time_of_sum(void *in, void *x, int *n, MPI_Datatype *type)
{
    (void)in, (void)x, (void)type;
    sg_actor_sleep_for(*n * sizeof(float) * merge_factor / copied_per_s);
}

int oct_sim_allreduce(float *x, int n, MPI_Comm comm)
{
    MPI_Op sum;
    MPI_Op_create(take_time_of_sum, 1, &sum);
    const int error = MPI_Allreduce(MPI_IN_PLACE, x, n, MPI_FLOAT, sum, comm);
    MPI_Op_free(&sum);
    return error;
}

void *oct_sim_vectors(size_t bytes)
{
    void *all = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return all == MAP_FAILED ? NULL : all;
}

/* The memory of a node has its pages when they are used, which only few are. */
int fallocate(int file, int mode, off_t at, off_t bytes)
{
    (void)file, (void)mode, (void)at, (void)bytes;
    return 0;
}

/* The simulator grants no thread beside the main one, and there is none. */
int MPI_Init_thread(int *argc, char ***argv, int wanted, int *granted)
{
    *granted = wanted;
    return MPI_Init(argc, argv);
}

int MPI_Query_thread(int *granted)
{
    *granted = MPI_THREAD_MULTIPLE;
    return MPI_SUCCESS;
}
