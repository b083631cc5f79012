/* Messages of MPI, point to point, on a communicator of their own. */
#include "core/base/mem.h"
#include "dist/comm_impl.h"

#include <limits.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

typedef struct mpi_transport {
    oct_transport base; /* first: its functions find the rest after it */
    char library[64], host[MPI_MAX_PROCESSOR_NAME];
    double deadline_s;
    MPI_Comm comm; /* a duplicate of the world, errors returned */
    MPI_Request *requests;
    size_t requests_capacity;
    int *done;
    size_t done_capacity;
    MPI_Status *statuses;
    size_t statuses_capacity;
} mpi_transport;

static oct_status mpi_failed(int error)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(error, text, &length);
    return oct_fail(OCT_LOST, "%s", text);
}

/* Starts a nonblocking send, or a receive of any tag, which the caller checks, as request `number`. */
static oct_status begin_transfer(oct_transport *self, size_t number, const oct_transfer *transfer,
                                 void *data, int tag)
{
    mpi_transport *t = (mpi_transport *)self;
    OCT_TRY(oct_grow(&t->requests, &t->requests_capacity, number + 1, sizeof(*t->requests)));
    OCT_TRY(oct_grow(&t->done, &t->done_capacity, number + 1, sizeof(*t->done)));
    OCT_TRY(oct_grow(&t->statuses, &t->statuses_capacity, number + 1, sizeof(*t->statuses)));
    const int bytes = (int)transfer->bytes, peer = transfer->peer;
    MPI_Request *request = &t->requests[number];
    const int error = transfer->receives
                          ? MPI_Irecv(data, bytes, MPI_BYTE, peer, MPI_ANY_TAG, t->comm, request)
                          : MPI_Isend(data, bytes, MPI_BYTE, peer, tag, t->comm, request);
    return error == MPI_SUCCESS ? OCT_OK : mpi_failed(error);
}

/* Reads what MPI says of a transfer that has ended. A message that was longer than its receive counts as SIZE_MAX bytes. */
static oct_status read_arrival(const mpi_transport *t, int i, int error, oct_arrival *arrival)
{
    const MPI_Status *status = &t->statuses[i];
    int bytes = 0;
    *arrival = (oct_arrival){.transfer = (size_t)t->done[i], .tag = status->MPI_TAG};
    if (error == MPI_ERR_TRUNCATE) {
        arrival->bytes = SIZE_MAX;
        return OCT_OK;
    }
    if (error != MPI_SUCCESS) return mpi_failed(error);
    MPI_Get_count(status, MPI_BYTE, &bytes);
    arrival->bytes = (size_t)bytes;
    return OCT_OK;
}

/* Asks MPI which requests have ended; without any request a probe lets messages of others move. */
static oct_status test_transfers(oct_transport *self, size_t count, oct_arrival *arrivals,
                                 size_t *ended)
{
    mpi_transport *t = (mpi_transport *)self;
    int done = 0;
    *ended = 0;
    if (count == 0) {
        const int failed =
            MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, t->comm, &done, MPI_STATUS_IGNORE);
        return failed == MPI_SUCCESS ? OCT_OK : mpi_failed(failed);
    }
    const int error = MPI_Testsome((int)count, t->requests, &done, t->done, t->statuses);
    if (error != MPI_SUCCESS && error != MPI_ERR_IN_STATUS) return mpi_failed(error);
    for (int i = 0; i < done; i++) {
        const int own = error == MPI_SUCCESS ? MPI_SUCCESS : t->statuses[i].MPI_ERROR;
        const oct_status status = read_arrival(t, i, own, &arrivals[*ended]);
        if (status != OCT_OK) {
            arrivals[0] = arrivals[*ended];
            *ended = 1;
            return status;
        }
        ++*ended;
    }
    return OCT_OK;
}

static oct_status sum_native(oct_transport *self, float *x, int64_t n)
{
    const mpi_transport *t = (mpi_transport *)self;
    OCT_CHECK(n <= INT_MAX, OCT_USAGE, "MPI sums at most %d elements at a time", INT_MAX);
    const int error = MPI_Allreduce(MPI_IN_PLACE, x, (int)n, MPI_FLOAT, MPI_SUM, t->comm);
    return error == MPI_SUCCESS ? OCT_OK : mpi_failed(error);
}

static void free_transport(mpi_transport *t)
{
    oct_free(&t->requests);
    oct_free(&t->done);
    oct_free(&t->statuses);
    oct_free(&t);
}

static void close_duplicate(oct_transport *self, bool orderly)
{
    mpi_transport *t = (mpi_transport *)self;
    if (orderly) MPI_Comm_free(&t->comm);
    free_transport(t);
}

/* MPI_Finalize waits for all ranks, so the watchdog limits it. It is left out where the end is not orderly: ranks are
 * lost, or MPI did not start. */
static void close_transport(oct_transport *self, bool orderly)
{
    mpi_transport *t = (mpi_transport *)self;
    if (orderly) {
        oct_watchdog_begin(OCT_RANK_IN_FINALIZE, t->deadline_s);
        if (t->comm != MPI_COMM_NULL) MPI_Comm_free(&t->comm);
        MPI_Finalize();
        oct_watchdog_end();
    }
    free_transport(t);
}

/* Makes t->comm a duplicate, which all ranks wait for under the watchdog; its errors are returned, not fatal. */
static oct_status duplicate_comm(MPI_Comm original, mpi_transport *t)
{
    oct_watchdog_begin(OCT_RANK_IN_DUP, t->deadline_s);
    const int error = MPI_Comm_dup(original, &t->comm);
    oct_watchdog_end();
    oct_rank_note(OCT_RANK_STAGE, OCT_RANK_RUNNING);
    OCT_CHECK(error == MPI_SUCCESS, OCT_LOST, "MPI gave no communicator");
    MPI_Comm_set_errhandler(t->comm, MPI_ERRORS_RETURN);
    return OCT_OK;
}

/* Opens a transport over a duplicate of the communicator, for a lane; it does not end MPI when it is closed. */
static oct_status open_duplicate(oct_transport *self, oct_transport **opened)
{
    const mpi_transport *first = (const mpi_transport *)self;
    mpi_transport *t;
    OCT_TRY(oct_alloc(&t, 1, sizeof(*t)));
    *t = (mpi_transport){.base = first->base, .deadline_s = first->deadline_s};
    t->base.duplicate = NULL;
    t->base.close = close_duplicate;
    const oct_status status = duplicate_comm(first->comm, t);
    if (status != OCT_OK)
        free_transport(t);
    else
        *opened = &t->base;
    return status;
}

/* The library says "Open MPI v4.1.4, package: ...", "MPICH Version:\t4.0.2\n..." or "Intel(R) MPI Library 2021.9
 * for ...". */
const char *oct_mpi_library(void)
{
    static const char *const before[] = {" v", " Version:\t", " Version: "};
    static char library[64];
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(text, &length);
    text[strcspn(text, ",\n")] = '\0';
    for (size_t i = 0; i < OCT_COUNT(before); i++) {
        char *at = strstr(text, before[i]);
        if (!at) continue;
        const char *version = at + strlen(before[i]);
        memmove(at + 1, version, strlen(version) + 1);
        break;
    }
    snprintf(library, sizeof(library), "%.*s", (int)sizeof(library) - 1, text);
    return library;
}

/* mpirun's thread pool, not its main thread, forks this many ranks on one node. */
static const int64_t launcher_forks_in_threads = 32;

/* Before MPI_Init: signals, and what Open MPI is to choose. */
static void prepare_start(void)
{
    int local_rank, local = 0;
    signal(SIGPIPE, SIG_IGN);
    /* Ranks end with their mpirun, even when that is killed. The signal comes when the thread ends
     * that forked us, hence only where that is mpirun's main thread. */
    if (oct_launched_here(&local_rank, &local) && local < launcher_forks_in_threads)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* Containers forbid process_vm_readv, and the shared-memory transport of Open MPI uses it without a try. */
    char from = 1, to = 0;
    struct iovec own = {&to, 1}, remote = {&from, 1};
    if (process_vm_readv(getpid(), &own, 1, &remote, 1, 0) != 1)
        setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
    /* Open MPI 5 compares its interfaces by the routes of the kernel and prints lines of its own about those that it
     * cannot pair, such as IPv4 with IPv6; by their networks it pairs as many, in silence. */
    if (strncmp(oct_mpi_library(), "Open MPI 4", 10) != 0)
        setenv("OMPI_MCA_reachable", "weighted", 0);
}

/* After MPI_Init: learns who the ranks are, and makes the communicator of this transport. */
static oct_status enter_world(mpi_transport *t, int threads)
{
    snprintf(t->library, sizeof(t->library), "%s", oct_mpi_library());
    OCT_CHECK(threads >= MPI_THREAD_FUNNELED, OCT_RESOURCE,
              "%s was built without threads; Octet needs MPI_THREAD_FUNNELED", t->library);
    int length = 0, rank, wanted;
    MPI_Get_processor_name(t->host, &length);
    MPI_Comm_size(MPI_COMM_WORLD, &t->base.size);
    MPI_Comm_rank(MPI_COMM_WORLD, &t->base.rank);
    oct_launched(&rank, &wanted);
    OCT_CHECK(t->base.size >= wanted, OCT_USAGE,
              "the launcher started %d ranks, but %s sees %d: the launcher belongs to "
              "another MPI library; use the mpirun of %s",
              wanted, t->library, t->base.size, t->library);
    return duplicate_comm(MPI_COMM_WORLD, t);
}

oct_status oct_transport_mpi(oct_transport **transport, double deadline_s)
{
    mpi_transport *t;
    int threads = 0;
    *transport = NULL;
    OCT_TRY(oct_alloc(&t, 1, sizeof(*t)));
    *t = (mpi_transport){.base = {.name = t->library,
                                  .host = t->host,
                                  .begin = begin_transfer,
                                  .test = test_transfers,
                                  .duplicate = open_duplicate,
                                  .sum_native = sum_native,
                                  .close = close_transport},
                         .deadline_s = deadline_s,
                         .comm = MPI_COMM_NULL};
    prepare_start();
    oct_rank_table_enter();
    oct_watchdog_begin(OCT_RANK_IN_INIT, deadline_s);
    const bool started = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &threads) == MPI_SUCCESS;
    oct_watchdog_end();
    const oct_status status =
        started ? enter_world(t, threads) : oct_fail(OCT_LOST, "MPI did not start");
    if (status != OCT_OK)
        close_transport(&t->base, started);
    else
        *transport = &t->base;
    return status;
}
