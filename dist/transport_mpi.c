/* Messages of MPI, point to point, on a communicator of their own. */
#include "core/base/mem.h"
#include "core/base/text.h"
#include "dist/comm_impl.h"

#include <limits.h>
#include <math.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

typedef struct mpi_transport {
    oct_transport base; /* first: its functions find the rest after it */
    char library[64], host[MPI_MAX_PROCESSOR_NAME];
    double deadline_s;
    MPI_Comm comm; /* a duplicate, errors returned */
    MPI_Request *requests;
    size_t requests_capacity;
    int *done;
    size_t done_capacity;
    MPI_Status *statuses;
    size_t statuses_capacity;
} mpi_transport;

static const double awake_s = 1;

/* OCT_LOST with MPI's sentence, unless what it has returned is success. */
static oct_status check_mpi(int error)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (error == MPI_SUCCESS) return OCT_OK;
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
    *request = MPI_REQUEST_NULL;
    return check_mpi(transfer->receives
                         ? MPI_Irecv(data, bytes, MPI_BYTE, peer, MPI_ANY_TAG, t->comm, request)
                         : MPI_Isend(data, bytes, MPI_BYTE, peer, tag, t->comm, request));
}

static void cancel_transfer(oct_transport *self, size_t number)
{
    MPI_Request *request = &((mpi_transport *)self)->requests[number];
    if (*request != MPI_REQUEST_NULL) MPI_Cancel(request);
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
    OCT_TRY(check_mpi(error));
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
    if (count == 0)
        return check_mpi(
            MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, t->comm, &done, MPI_STATUS_IGNORE));
    const int error = MPI_Testsome((int)count, t->requests, &done, t->done, t->statuses);
    if (error != MPI_ERR_IN_STATUS) OCT_TRY(check_mpi(error));
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
    return check_mpi(MPI_Allreduce(MPI_IN_PLACE, x, (int)n, MPI_FLOAT, MPI_SUM, t->comm));
}

/* Where the end is not orderly, MPI keeps the duplicate: all ranks would have to free it. */
static void close_duplicate(oct_transport *self, bool orderly)
{
    mpi_transport *t = (mpi_transport *)self;
    if (orderly) MPI_Comm_free(&t->comm);
    OCT_FREE_ALL(&t->requests, &t->done, &t->statuses, &t);
}

static void close_transport(oct_transport *self, bool orderly)
{
    mpi_transport *t = (mpi_transport *)self;
    const double deadline_s = t->deadline_s;
    close_duplicate(self, orderly && t->comm != MPI_COMM_NULL);
    oct_mpi_leave(orderly, deadline_s);
}

/* Waits until all ranks have begun what this is a request of. Octet's own process has the watchdog for that; others have
 * this deadline. */
static oct_status wait_for_all(const mpi_transport *t, MPI_Request *request)
{
    static const struct timespec nap = {.tv_nsec = 100000};
    const double deadline_s = oct_process_is_own() ? HUGE_VAL : t->deadline_s;
    double waited_s = 0; /* while this process was awake */
    for (int done = 0; !done;) {
        const double begin = oct_seconds();
        OCT_TRY(check_mpi(MPI_Test(request, &done, MPI_STATUS_IGNORE)));
        if (!done) nanosleep(&nap, NULL);
        waited_s += fmin(oct_seconds() - begin, awake_s);
        OCT_CHECK(done || waited_s < deadline_s, OCT_LOST,
                  "a communicator was not opened by all of its %d ranks within %g s; look for the "
                  "rank that does not call oct_comm_open, or is stuck or stopped",
                  t->base.size, deadline_s);
    }
    return OCT_OK;
}

/* Makes t->comm a duplicate, whose errors are returned, not fatal. Until all ranks are there it is not begun, since MPI
 * could make no other communicator before its end. Should it not end even so, MPI may write to `t` later, which then is
 * MPI's: NULL. */
static oct_status duplicate_comm(MPI_Comm original, mpi_transport **transport)
{
    mpi_transport *t = *transport;
    MPI_Request request;
    oct_watchdog_begin(OCT_RANK_IN_DUP, t->deadline_s);
    MPI_Ibarrier(original, &request);
    oct_status status = wait_for_all(t, &request);
    if (status == OCT_OK) {
        MPI_Comm_idup(original, &t->comm, &request);
        status = wait_for_all(t, &request);
        if (status != OCT_OK) *transport = NULL;
    }
    oct_watchdog_end();
    oct_rank_note(OCT_RANK_STAGE, OCT_RANK_RUNNING);
    if (status == OCT_OK) MPI_Comm_set_errhandler(t->comm, MPI_ERRORS_RETURN);
    return status;
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
    const oct_status status = duplicate_comm(first->comm, &t);
    if (status == OCT_OK) *opened = &t->base;
    if (status != OCT_OK && t) close_duplicate(&t->base, false);
    return status;
}

/* Whether MPI knows this communicator; *inter: one between two groups. Its errors are for the handlers of these two, which
 * are put back. */
static bool is_known(MPI_Comm comm, int *inter)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const MPI_Comm hear[] = {MPI_COMM_WORLD, MPI_COMM_SELF};
    MPI_Errhandler before[OCT_COUNT(hear)];
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < OCT_COUNT(hear); i++) {
        MPI_Comm_get_errhandler(hear[i], &before[i]);
        MPI_Comm_set_errhandler(hear[i], MPI_ERRORS_RETURN);
    }
    const bool known = MPI_Comm_test_inter(comm, inter) == MPI_SUCCESS;
    for (size_t i = 0; i < OCT_COUNT(hear); i++) {
        MPI_Comm_set_errhandler(hear[i], before[i]);
        MPI_Errhandler_free(&before[i]);
    }
    pthread_mutex_unlock(&lock);
    return known;
}

/* Learns who the ranks of a communicator are, and makes that of this transport. */
static oct_status enter_comm(mpi_transport **transport, MPI_Comm comm)
{
    mpi_transport *t = *transport;
    int length = 0, inter = 0;
    OCT_CHECK(
        comm == MPI_COMM_WORLD || (comm != MPI_COMM_NULL && is_known(comm, &inter)), OCT_USAGE,
        "MPI knows no communicator by this handle; give MPI_Comm_c2f of one that this process "
        "is a member of, not MPI_COMM_NULL");
    OCT_CHECK(!inter, OCT_USAGE,
              "ranks cannot train over an intercommunicator; merge it (MPI_Intercomm_merge)");
    snprintf(t->library, sizeof(t->library), "%s", oct_mpi_library());
    MPI_Get_processor_name(t->host, &length);
    MPI_Comm_size(comm, &t->base.size);
    MPI_Comm_rank(comm, &t->base.rank);
    return duplicate_comm(comm, transport);
}

oct_status oct_transport_mpi(oct_transport **transport, const int *fortran_handle,
                             double deadline_s)
{
    mpi_transport *t;
    *transport = NULL;
    OCT_TRY(oct_alloc(&t, 1, sizeof(*t)));
    *t = (mpi_transport){.base = {.name = t->library,
                                  .host = t->host,
                                  .begin = begin_transfer,
                                  .test = test_transfers,
                                  .duplicate = open_duplicate,
                                  .check = oct_mpi_check,
                                  .cancel = cancel_transfer,
                                  .sum_native = sum_native,
                                  .close = close_transport},
                         .deadline_s = deadline_s,
                         .comm = MPI_COMM_NULL};
    oct_status status = oct_mpi_enter(deadline_s);
    if (status == OCT_OK)
        status = enter_comm(&t, fortran_handle ? MPI_Comm_f2c(*fortran_handle) : MPI_COMM_WORLD);
    if (status == OCT_OK) *transport = &t->base;
    if (status != OCT_OK && t) close_transport(&t->base, status != OCT_LOST);
    return status;
}
