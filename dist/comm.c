/* A communicator starts and ends the ranks, and those of a host share memory.
 *
 * Each rank offers a file of memory without a name, and the offers travel with the names of the hosts. The first rank
 * of a node gives its file a size and the others open it by way of /proc, so there is nothing in a file system that
 * could be left over: the memory is freed with the last process that has it. Ranks are a node where consecutive ones
 * are on one host, as many on each host. Where that is not so, or memory cannot be had on one of the hosts, each rank
 * is a node of its own and all is sent by messages. */
#include "core/base/log.h"
#include "core/base/mem.h"
#include "dist/comm_impl.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

static const double default_deadline_s = 300;

/* The memory of a node: one cache line for each rank, then the slots of all ranks. */
typedef struct shared_memory {
    uint64_t mark;
    char pad[56];
    oct_rank_line lines[];
} shared_memory;

static size_t shared_bytes(const oct_rank_node *node)
{
    return sizeof(shared_memory) +
           (size_t)node->ranks *
               (sizeof(oct_rank_line) + (size_t)OCT_NODE_SLOTS * node->slot_bytes);
}

/* Returns how many ranks each host has, where that is the same number and they follow each other; else 1. */
static int count_ranks_of_node(const oct_comm *comm)
{
    const int size = comm->base.size;
    int ranks = 1;
    while (ranks < size && strcmp(comm->hosts[ranks].name, comm->hosts[0].name) == 0)
        ranks++;
    for (int r = 0; r < size; r++)
        if (strcmp(comm->hosts[r].name, comm->hosts[r - r % ranks].name) != 0) return 1;
    return size % ranks == 0 ? ranks : 1;
}

/* Divides the shared memory of a node (NULL: false) into a line for the progress of each rank and slots for vectors. */
static bool set_node_memory(oct_rank_node *node, void *memory)
{
    shared_memory *all = memory;
    if (!memory) return false;
    node->memory = memory;
    node->bytes = shared_bytes(node);
    node->lines = all->lines;
    node->slots = (char *)(all->lines + node->ranks);
    return true;
}

/* The first rank of a node makes the memory, all pages of it, so that none is found missing later. */
static bool make_node_memory(oct_rank_node *node, const oct_host *mine)
{
    const off_t bytes = (off_t)shared_bytes(node);
    if (mine->memory < 0 || ftruncate(mine->memory, bytes) != 0 ||
        fallocate(mine->memory, 0, 0, bytes) != 0 ||
        !set_node_memory(node, oct_memory_map(mine->memory, shared_bytes(node))))
        return false;
    ((shared_memory *)node->memory)->mark = mine->mark;
    return true;
}

/* Collective: sets *all to whether `good` is true on all ranks. */
static oct_status check_on_all_ranks(const oct_comm *comm, bool good, bool *all)
{
    int64_t bad = good ? 0 : 1;
    OCT_TRY(oct_exchange_max(comm, &bad, 1));
    *all = bad == 0;
    return OCT_OK;
}

static void leave_node(oct_rank_node *node)
{
    if (node->memory) munmap(node->memory, node->bytes);
    *node = (oct_rank_node){.ranks = node->ranks}; /* which rows know (sums.c) */
}

/* Collective: maps the memory of the node on all of its ranks, or on none of the job's. */
static oct_status share_node_memory(const oct_comm *comm, oct_rank_node *node)
{
    const oct_host *mine = &comm->hosts[comm->base.rank], *first = &comm->hosts[node->first];
    const size_t bytes = shared_bytes(node);
    /* A limit on the length of files (ulimit -f) holds for files of memory, too, and rows are long. */
    struct rlimit limit;
    const bool long_files = getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY;
    bool good = mine != first || make_node_memory(node, mine);
    OCT_TRY(check_on_all_ranks(comm, good, &good));
    if (good && mine != first)
        /* A container may count processes of its own, so what is found there is compared. */
        good = set_node_memory(node, oct_memory_of_process(first->pid, first->memory, bytes)) &&
               ((shared_memory *)node->memory)->mark == first->mark;
    OCT_TRY(check_on_all_ranks(comm, good, &good));
    OCT_TRY(check_on_all_ranks(comm, long_files, &node->shows_rows));
    if (good) return OCT_OK;
    leave_node(node);
    oct_log(OCT_LOG_WARN,
            "the ranks of a host cannot share %s of memory, so they sum by messages, which is "
            "slower; they must see each other's /proc",
            oct_text_size((int64_t)bytes).text);
    return OCT_OK;
}

/* Every rank learns the host of every other one and offers memory, and they enter the nodes. Where there is no
 * memory to share, or none is asked for (0), each rank is a node, which is no failure. */
static oct_status enter_node(oct_comm *comm, size_t slot_bytes)
{
    oct_host mine = {.pid = (int32_t)getpid(), .memory = memfd_create("octet-node", MFD_CLOEXEC)};
    snprintf(mine.name, sizeof(mine.name), "%s", comm->host);
    if (getrandom(&mine.mark, sizeof(mine.mark), 0) != sizeof(mine.mark)) mine.mark = 0;
    OCT_TRY(oct_alloc(&comm->hosts, (size_t)comm->base.size, sizeof(*comm->hosts)));
    OCT_TRY(oct_comm_gather(&comm->base, &mine, sizeof(mine), comm->hosts));
    OCT_TRY(oct_exchange_begin(comm, OCT_EXCHANGE_HOSTS));
    OCT_TRY(oct_exchange_broadcast(comm, comm->hosts, (size_t)comm->base.size * sizeof(mine), 0));
    oct_rank_node *node = &comm->state->node;
    const int fd = mine.memory, rank = comm->base.rank;
    const int ranks = slot_bytes > 0 ? count_ranks_of_node(comm) : 1;
    *node = (oct_rank_node){.ranks = ranks, .first = rank - rank % ranks, .slot_bytes = slot_bytes};
    const oct_status status = ranks > 1 ? share_node_memory(comm, node) : OCT_OK;
    if (fd >= 0) close(fd);
    if (!node->memory) *node = (oct_rank_node){.ranks = 1, .first = rank};
    return status;
}

static double seconds_waited(const oct_collective *self)
{
    const oct_comm *comm = oct_comm_of(self);
    return comm->state->waited_s + (comm->besides ? comm->besides->state->waited_s : 0);
}

static oct_rank_text rank_name(const oct_collective *self, int rank)
{
    return oct_text_rank(oct_comm_of(self), rank);
}

/* Makes the state of a communicator over this transport and its collective functions, and takes part in the shared
 * memory of its host, with slots of slot_bytes. Lanes replace `rows`, its list of rows, by that of their
 * communicator. */
static oct_status open_state(oct_comm *comm, oct_transport *transport, double deadline_s,
                             size_t slot_bytes)
{
    OCT_TRY(oct_alloc(&comm->state, 1, sizeof(*comm->state)));
    comm->state->transport = transport;
    comm->state->deadline_s = deadline_s;
    comm->state->rows = &comm->state->own_rows;
    if (transport->size == 1) return OCT_OK;
    comm->base = (oct_collective){.rank = transport->rank,
                                  .size = transport->size,
                                  .waited = seconds_waited,
                                  .name = rank_name};
    oct_supply_sums(&comm->base);
    oct_supply_collect(&comm->base);
    OCT_TRY(oct_alloc(&comm->state->heard, (size_t)transport->size, sizeof(*comm->state->heard)));
    return enter_node(comm, slot_bytes);
}

/* Opens a communicator without lanes over a transport (NULL: one process), which it owns, even after a failure. */
static oct_status open_over(oct_comm **comm, oct_transport *transport, double deadline_s,
                            size_t slot_bytes)
{
    oct_comm *opened = NULL;
    *comm = NULL;
    oct_status status = oct_alloc(&opened, 1, sizeof(*opened));
    if (status == OCT_OK) {
        opened->base = oct_collective_one;
        opened->self = opened;
        opened->library = transport ? transport->name : "none";
        oct_host_name(opened->host);
        if (transport && transport->host)
            snprintf(opened->host, sizeof(opened->host), "%s", transport->host);
        if (transport) status = open_state(opened, transport, deadline_s, slot_bytes);
    }
    if (transport && (!opened || !opened->state)) transport->close(transport, true);
    if (status != OCT_OK) oct_comm_close(&opened);
    *comm = opened;
    return status;
}

oct_status oct_comm_over(oct_comm **comm, oct_transport *transport, double deadline_s)
{
    OCT_TRY(open_over(comm, transport, deadline_s, OCT_NODE_SLOT_BYTES));
    if (!transport || (*comm)->base.size == 1) return OCT_OK;
    /* The lanes for sums besides other work are a list, each with a duplicate of the transport. */
    const size_t slot_bytes = (*comm)->state->node.memory ? OCT_NODE_SLOT_BYTES : 0;
    oct_comm *last = *comm;
    oct_status status = OCT_OK;
    for (int i = 0; i < OCT_SUMS_BESIDES; i++, last = last->besides) {
        oct_transport *duplicate;
        OCT_TRY_OUT(transport->duplicate(transport, &duplicate));
        OCT_TRY_OUT(open_over(&last->besides, duplicate, deadline_s, slot_bytes));
        last->besides->state->rows = (*comm)->state->rows;
    }
out:
    if (status == OCT_LOST) oct_exchange_give_up(*comm, status); /* its lane knows of it alone */
    if (status != OCT_OK) oct_comm_close(comm);
    return status;
}

/* handle: Fortran's of a communicator; NULL: of all processes that were started. */
static oct_status open_mpi(oct_comm **comm, const int *handle, double deadline_s)
{
    int rank, size;
    bool runs;
    oct_transport *transport = NULL;
    OCT_CHECK(comm, OCT_USAGE, "a communicator was opened without a place for it: NULL");
    *comm = NULL;
    OCT_CHECK(deadline_s >= 0, OCT_USAGE,
              "a communicator's deadline is %g s; it must be positive, or 0 for %g s", deadline_s,
              default_deadline_s);
    if (deadline_s == 0) deadline_s = default_deadline_s;
    OCT_TRY(oct_mpi_runs(&runs));
    OCT_CHECK(runs || !handle, OCT_USAGE,
              "MPI is not initialized, so it has no communicator; call MPI_Init before");
    if (!runs) OCT_TRY(oct_launcher_check());
    /* MPI itself knows the ranks: one process alone that has started it finds a launcher's variables, too. */
    if (runs || oct_launched(&rank, &size))
        OCT_TRY(oct_transport_mpi(&transport, handle, deadline_s));
    return oct_comm_over(comm, transport, deadline_s);
}

oct_status oct_comm_open(oct_comm **comm, double deadline_s)
{
    return open_mpi(comm, NULL, deadline_s);
}

oct_status oct_comm_open_mpi(oct_comm **comm, int fortran_handle, double deadline_s)
{
    return open_mpi(comm, &fortran_handle, deadline_s);
}

/* Synchronizes all ranks under our deadline before the transport ends, which may wait for them without one. */
static void synchronize_at_end(const oct_comm *comm)
{
    int64_t nothing = 0;
    oct_status status = OCT_OK;
    OCT_TRY_OUT(oct_exchange_begin(comm, OCT_EXCHANGE_CLOSE));
    OCT_TRY_OUT(oct_exchange_max(comm, &nothing, 1));
    return;
out:
    oct_exchange_give_up(comm, status);
    if (!oct_process_is_own()) return;
    if (oct_rank_may_report()) oct_log_anyone(OCT_LOG_ERROR, "%s", oct_error_message(0));
    oct_abort(oct_status_exit(status));
}

static void free_comm(oct_comm *comm)
{
    oct_comm_state *s = comm->state;
    if (s) {
        OCT_FREE_ALL(&s->sums, &s->sum_requests, &s->heard, &s->waits, &s->parts, &s->vectors,
                     &s->arrivals, &s->scratch, &s);
    }
    oct_free(&comm->hosts);
    oct_free(&comm);
}

void oct_comm_close(oct_comm **comm)
{
    oct_comm *closed = comm ? *comm : NULL;
    if (!closed) return;
    oct_comm_state *s = closed->state;
    if (s && s->broken == OCT_OK) synchronize_at_end(closed);
    oct_comm_close(&closed->besides);
    if (s) {
        s->transport->close(s->transport, s->broken == OCT_OK);
        leave_node(&s->node);
    }
    closed->closed = true;
    if (closed->holders == 0) free_comm(closed);
    *comm = NULL;
}

void oct_comm_hold(const oct_comm *comm)
{
    if (comm) comm->self->holders++;
}

void oct_comm_release(const oct_comm *comm)
{
    if (comm && --comm->self->holders == 0 && comm->closed) free_comm(comm->self);
}

const oct_collective *oct_comm_collective(const oct_comm *comm)
{
    return comm ? &comm->base : &oct_collective_one;
}

int64_t oct_comm_syncs(const oct_comm *comm)
{
    return comm->state ? comm->state->syncs : 0;
}

bool oct_comm_agreed(const oct_comm *comm)
{
    return comm->state && comm->state->agreed;
}

void oct_comm_go_on(oct_comm *comm)
{
    if (comm->state) comm->state->agreed = false;
}

int oct_comm_rank(const oct_comm *comm)
{
    return oct_comm_collective(comm)->rank;
}

int oct_comm_size(const oct_comm *comm)
{
    return oct_comm_collective(comm)->size;
}

const char *oct_comm_host(const oct_comm *comm)
{
    return comm->host;
}

const char *oct_comm_library(const oct_comm *comm)
{
    return comm->library;
}

void oct_comm_set_deadline(oct_comm *comm, double deadline_s)
{
    if (comm->state) comm->state->deadline_s = deadline_s;
    if (comm->besides) oct_comm_set_deadline(comm->besides, deadline_s);
}

oct_status oct_comm_sum_native(const oct_comm *comm, float *x, int64_t n)
{
    if (comm->base.size == 1) return OCT_OK;
    oct_transport *transport = comm->state->transport;
    OCT_CHECK(transport->sum_native, OCT_USAGE, "%s has no sum of its own", comm->library);
    return transport->sum_native(transport, x, n);
}
