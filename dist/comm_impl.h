/* The sources of dist share what a communicator holds, and transfers in flight.
 *
 * A collective operation is: begin (takes the next sequence number), any number of receives and
 * sends, wait; and again receives, sends, wait for its next phase. Between two ranks messages keep
 * their order, so the next message from a rank must belong to the operation that this rank is in:
 * the tag carries operation and sequence number, and any other message is a schedule gone wrong.
 */
#pragma once

#include "core/base/status.h"
#include "dist/comm.h"
#include "dist/rank_table.h"

#include <stdint.h>

/* A transport carries messages between ranks. Which are sent, what they mean and how long one waits for
 * them is not its matter (exchange.c), so the same sums run over MPI and over threads of one process.
 *
 * Messages from one rank to another arrive in the order in which they were sent. No call blocks, and
 * nothing need move unless `test` is called.
 */
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
    /* Says, before each operation, whether this process and this thread may use it. NULL: they may. */
    oct_status (*check)(void);
    /* Takes a receive in flight back, as far as that can be: it ends soon. NULL: `data` may stay untouched for ever. */
    void (*cancel)(oct_transport *self, size_t number);
    /* Sums by the library's own reduction, in place, for comparison: it waits without a deadline, and its
     * bits depend on the number of ranks. NULL where there is none. */
    oct_status (*sum_native)(oct_transport *self, float *x, int64_t n);
    /* Ends it. orderly: all ranks come here, and nothing is in flight; else only memory is given back. */
    void (*close)(oct_transport *self, bool orderly);
};

/* The ranks can be in these together, as the user reads it. */
#define OCT_EXCHANGE_LIST(X)                                                                       \
    X(TREE_SUM, "sum over leaves")                                                                 \
    X(GRADIENT_SUM, "sum of gradients")                                                            \
    X(MAX, "maximum")                                                                              \
    X(BROADCAST, "broadcast")                                                                      \
    X(GATHER, "gather")                                                                            \
    X(AGREE, "agreement")                                                                          \
    X(SAME, "comparison of ranks")                                                                 \
    X(HOSTS, "start")                                                                              \
    X(CLOSE, "end")

typedef enum oct_exchange {
#define X(name, text) OCT_EXCHANGE_##name,
    OCT_EXCHANGE_LIST(X)
#undef X
} oct_exchange;

/* A host, as its ranks send it to the others at the start. */
typedef struct oct_host {
    char name[OCT_HOST_BYTES];
    int32_t pid, memory; /* the rank's offer of memory to share: its file descriptor, or -1 */
    uint64_t mark;       /* which the memory begins with */
} oct_host;

/* Where the rows of a sum are that the others of the node add up in place: written before its first progress, and
 * read before its last. */
typedef struct oct_rows_place {
    uint64_t id; /* of the rows, never given again by this rank */
    uint64_t bytes, at;
    int32_t file;
} oct_rows_place;

/* A line shows the other ranks of a node how far this one is: the operation that it is in, and what it has
 * done there, a number that never falls. */
typedef struct oct_rank_line {
    _Alignas(64) _Atomic uint64_t operation;
    _Atomic uint64_t progress;
    oct_rows_place rows;
} oct_rank_line;

/* Ranks [first, first + ranks) share memory: a line and two slots each. Without it a rank is a node alone. */
typedef struct oct_rank_node {
    int ranks, first;
    void *memory; /* mapped */
    size_t bytes;
    oct_rank_line *lines;
    char *slots;
    size_t slot_bytes;
    uint64_t pieces; /* of vectors that have gone through the slots, which take turns */
    bool shows_rows; /* the memory of rows (sums.c) can be had on all ranks */
} oct_rank_node;

/* Pieces in slots are small enough for the cache. */
enum { OCT_NODE_SLOTS = 2, OCT_NODE_SLOT_BYTES = 256 << 10 };

enum { OCT_SUMS_BESIDES = 2 };

typedef struct oct_rows oct_rows; /* sums.c */

/* A message in flight, or a line of the node that is waited for. */
typedef struct oct_wait {
    int peer;
    bool ended;
    bool receives;
    size_t bytes;
    uint64_t progress; /* of the line; 0: a message */
} oct_wait;

/* The last message from a rank. */
typedef struct oct_heard {
    oct_exchange exchange;
    uint32_t sequence; /* 0: there was none */
    double at_s;
} oct_heard;

enum { OCT_REPORT_BYTES = 6000 };

/* This state changes while collectives run; they take the communicator as const. */
typedef struct oct_comm_state {
    oct_transport *transport; /* owned */
    double deadline_s;
    oct_status broken; /* how a wait failed, after which nothing is exchanged any more */
    double waited_s;
    int64_t syncs;    /* so far */
    bool agreed;      /* on a failure, and nothing was done together since */
    oct_heard *heard; /* of each rank */

    oct_exchange exchange; /* the operation this rank is in */
    uint32_t sequence;
    size_t length; /* of the vector that it is about, as the line shows it */

    size_t posted, pending; /* all of them messages, or all of them lines */
    oct_wait *waits;
    size_t waits_capacity;
    oct_arrival *arrivals;
    size_t arrivals_capacity;

    oct_rank_node node;
    oct_rows *own_rows, **rows; /* a list, which lanes share with their communicator */
    uint64_t rows_made;
    /* The most parts of a rank, for the batch seen last. */
    int64_t most_samples, most_leaf;
    int most_parts;
    oct_subtree *parts; /* of all ranks of the node, and their vectors */
    size_t parts_capacity;
    void **vectors;
    size_t vectors_capacity;

    char *scratch;
    size_t scratch_capacity;

    struct oct_sums *sums; /* of a lane: those that have begun and are not waited for */
    void *sum_requests;    /* of these; owned */
    size_t sum_requests_capacity;
    uint64_t sums_begun; /* which take the lanes in turn */
} oct_comm_state;

struct oct_comm {
    oct_collective base;   /* first: its functions find the rest after it */
    oct_comm_state *state; /* NULL without a transport */
    /* The same ranks over a duplicate of the transport, for sums that are not waited for. It has the next of
     * OCT_SUMS_BESIDES such lanes beside it. */
    oct_comm *besides;
    char host[OCT_HOST_BYTES];
    const char *library; /* the transport's name */
    oct_host *hosts;     /* of every rank */
    oct_comm *self;      /* which collectives take as const */
    int holders;         /* that outlive a close */
    bool closed;
};

/* abort.c: whether oct_process_own was called. */
bool oct_process_is_own(void);

/* mpi_life.c. *runs: MPI has been started; OCT_USAGE where it has been ended. */
oct_status oct_mpi_runs(bool *runs);
/* OCT_USAGE where MPI has been ended, or this thread may not call it. */
oct_status oct_mpi_check(void);
/* A transport enters MPI, which starts unless it runs, and leaves it. What Octet has started ends then in its own process,
 * at the exit of the program elsewhere. orderly: as of a transport's close. */
oct_status oct_mpi_enter(double deadline_s);
void oct_mpi_leave(bool orderly, double deadline_s);

/* transport_mpi.c: messages over a duplicate of the communicator with this handle of Fortran's; NULL: of
 * MPI_COMM_WORLD, and MPI starts unless it runs. */
oct_status oct_transport_mpi(oct_transport **transport, const int *fortran_handle,
                             double deadline_s);

/* comm.c: a communicator over a transport, which it owns from now on, even after a failure. */
oct_status oct_comm_over(oct_comm **comm, oct_transport *transport, double deadline_s);

/* process.c. Maps a file of memory of this process; NULL where that cannot be. */
void *oct_memory_map(int file, size_t bytes);
/* Maps the file that another process of the host has open as `file`; NULL where that cannot be, or it has another
 * size. */
void *oct_memory_of_process(int32_t pid, int32_t file, size_t bytes);
/* OCT_USAGE when several tasks were started that cannot find each other. */
oct_status oct_launcher_check(void);
/* Finds mpirun or its daemon among the parents of this process; 0 where it is not to be seen, as in a container
 * with processes of its own. */
int oct_launcher_process(void);
typedef struct oct_launcher_text {
    char text[128];
} oct_launcher_text;
/* `before` and that mpirun or its daemon is stopped, with the remedy; "" where none of them is. */
oct_launcher_text oct_launcher_stopped(const char *before);

/* exchange.c. OCT_LOST where ranks have been lost before. */
oct_status oct_exchange_check(const oct_comm *comm);
/* Forbids further exchanges of the communicator and its lanes: they fail with this status from now on. In a process that
 * goes on, MPI is to write nothing more into the memory of transfers in flight, so these are taken back. */
void oct_exchange_give_up(const oct_comm *comm, oct_status status);
/* Begins the next operation; fails where ranks have been lost before. Of receive and send, `data` stays
 * untouched until the wait; a transfer of 0 bytes is none. */
oct_status oct_exchange_begin(const oct_comm *comm, oct_exchange exchange);
oct_status oct_exchange_receive(const oct_comm *comm, int peer, void *data, size_t bytes);
oct_status oct_exchange_send(const oct_comm *comm, int peer, const void *data, size_t bytes);
/* Shows the node how far this rank is; and waits for the others of it to be as far. Not together with
 * transfers. */
void oct_exchange_signal(const oct_comm *comm, uint64_t progress);
oct_status oct_exchange_await(const oct_comm *comm, uint64_t progress);
/* Shows the node this rank's operation and its length in bytes, so that a rank in another operation is found. */
void oct_exchange_announce(const oct_comm *comm, size_t bytes);
/* Waits for all transfers, or lines. patience multiplies the deadline: a rank that waits for a rank which itself
 * waits gives up later, so that the rank that is truly missing is named. */
oct_status oct_exchange_wait(const oct_comm *comm, int patience);
/* Finds out, without waiting, which transfers or lines (at least one is waited for) have ended; *moved: some have. */
oct_status oct_exchange_poll(const oct_comm *comm, bool *moved);
/* report.c. "rank 2 (node7)" */
oct_rank_text oct_text_rank(const oct_comm *comm, int rank);
/* The name of an oct_exchange in messages: "sum over leaves". Numbers come from other ranks; one out of range gives "an
 * unknown operation". */
const char *oct_exchange_name(int exchange);

/* watchdog.c: a deadline for a call of MPI that has none, in Octet's own process; notes the stage. Ends the process when
 * the deadline passes before oct_watchdog_end, having named those of this host that are missing. */
void oct_watchdog_begin(oct_rank_stage stage, double deadline_s);
void oct_watchdog_end(void);

/* collect.c, inside an operation that has begun: each value becomes its maximum over the ranks. */
oct_status oct_exchange_max(const oct_comm *comm, int64_t *values, int64_t n);
/* Copies data from rank `root` to all others. */
oct_status oct_exchange_broadcast(const oct_comm *comm, void *data, size_t bytes, int root);

/* Each of these puts its functions for several ranks into the collective interface. */
void oct_supply_sums(oct_collective *group);    /* sums.c */
void oct_supply_collect(oct_collective *group); /* collect.c */
/* dst on rank 0 (size * bytes) = src of all ranks, in their order. */
oct_status oct_comm_gather(const oct_collective *self, const void *src, size_t bytes, void *dst);

static inline const oct_comm *oct_comm_of(const oct_collective *self)
{
    return (const oct_comm *)self;
}

/* abort.c: ends this process while another thread of it is inside of MPI; mpirun then ends the job. */
void oct_exit_now(int exit_status) __attribute__((noreturn));
