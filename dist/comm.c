/* A communicator starts and ends the ranks, and knows their names. */
#include "dist/comm.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "dist/comm_impl.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* "Open MPI v4.1.4, package: ..." becomes "Open MPI 4.1.4". */
static void read_library(oct_comm *comm)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(text, &length);
    text[strcspn(text, ",\n")] = '\0';
    char *version = strstr(text, " v");
    if (version) memmove(version + 1, version + 2, strlen(version + 2) + 1);
    snprintf(comm->library, sizeof(comm->library), "%.*s", OCT_HOST_BYTES - 1, text);
}

void oct_host_name(char host[OCT_HOST_BYTES])
{
    host[OCT_HOST_BYTES - 1] = '\0';
    if (gethostname(host, OCT_HOST_BYTES - 1) != 0) snprintf(host, OCT_HOST_BYTES, "unknown host");
}

/* Everybody learns every host, so that a missing rank can be named with it. */
static oct_status share_hosts(oct_comm *comm)
{
    size_t bytes = (size_t)comm->base.size * OCT_HOST_BYTES;
    char *hosts = NULL;
    oct_status status = OCT_OK;
    OCT_TRY(oct_alloc(&hosts, bytes, 1));
    OCT_TRY_OUT(oct_comm_gather(&comm->base, comm->host, OCT_HOST_BYTES, hosts));
    OCT_TRY_OUT(oct_exchange_begin(comm, OCT_EXCHANGE_HOSTS));
    OCT_TRY_OUT(oct_exchange_broadcast(comm, hosts, bytes, 0));
    comm->hosts = hosts;
    hosts = NULL;
out:
    oct_free(&hosts);
    return status;
}

static oct_status start_mpi(oct_comm *comm, double deadline_s)
{
    int provided = 0, size = 1, rank = 0;
    OCT_TRY(oct_alloc(&comm->state, 1, sizeof(*comm->state)));
    comm->state->comm = MPI_COMM_NULL;
    comm->state->deadline_s = deadline_s;

    oct_launcher_prepare();
    oct_rank_table_join();
    oct_watchdog_begin(OCT_RANK_IN_INIT, deadline_s);
    int error = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
    oct_watchdog_end();
    OCT_CHECK(error == MPI_SUCCESS, OCT_LOST, "MPI did not start");
    read_library(comm);
    OCT_CHECK(provided >= MPI_THREAD_FUNNELED, OCT_RESOURCE,
              "%s was built without threads; Octet needs MPI_THREAD_FUNNELED", comm->library);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    OCT_TRY(oct_launcher_check_world(size, comm->library));

    oct_watchdog_begin(OCT_RANK_IN_DUP, deadline_s);
    error = MPI_Comm_dup(MPI_COMM_WORLD, &comm->state->comm);
    oct_watchdog_end();
    oct_rank_note_stage(OCT_RANK_RUNNING);
    OCT_CHECK(error == MPI_SUCCESS, OCT_LOST, "MPI gave no communicator");
    MPI_Comm_set_errhandler(comm->state->comm, MPI_ERRORS_RETURN);
    OCT_TRY(oct_alloc(&comm->state->plan_begin, (size_t)size + 1, sizeof(int)));
    comm->base.rank = rank;
    comm->base.size = size;
    if (size == 1) return OCT_OK;
    comm->base.tree_sum_f32 = oct_comm_tree_sum_f32;
    comm->base.tree_sum_f64 = oct_comm_tree_sum_f64;
    comm->base.max_i64 = oct_comm_max_i64;
    comm->base.broadcast = oct_comm_broadcast;
    comm->base.gather = oct_comm_gather;
    comm->base.agree = oct_comm_agree;
    return share_hosts(comm);
}

oct_status oct_comm_open(oct_comm **comm, double deadline_s)
{
    int rank, size;
    oct_comm *opened = NULL;
    oct_status status = OCT_OK;
    *comm = NULL;

    oct_assert_hook(oct_abort_defect);
    OCT_TRY(oct_launcher_check());
    OCT_TRY(oct_alloc(&opened, 1, sizeof(*opened)));
    opened->base = oct_collective_one;
    snprintf(opened->library, sizeof(opened->library), "none");
    oct_host_name(opened->host);
    if (oct_launched(&rank, &size)) OCT_TRY_OUT(start_mpi(opened, deadline_s));
    *comm = opened;
    opened = NULL;
out:
    oct_comm_close(&opened);
    return status;
}

static void state_free(oct_comm_state **state)
{
    oct_comm_state *s = *state;
    oct_free(&s->requests);
    oct_free(&s->transfers);
    oct_free(&s->done);
    oct_free(&s->answers);
    oct_free(&s->plan);
    oct_free(&s->plan_begin);
    oct_free(&s->scratch);
    oct_free(&s->vectors);
    oct_free(state);
}

/* MPI_Finalize waits for all ranks without a deadline, so ours comes first. */
static void end_mpi(oct_comm *comm)
{
    int64_t here = 0;
    oct_status status = OCT_OK;
    if (comm->base.size > 1) {
        OCT_TRY_OUT(oct_exchange_begin(comm, OCT_EXCHANGE_CLOSE));
        OCT_TRY_OUT(oct_exchange_max(comm, &here, 1));
    }
    oct_watchdog_begin(OCT_RANK_IN_FINALIZE, comm->state->deadline_s);
    if (comm->state->comm != MPI_COMM_NULL) MPI_Comm_free(&comm->state->comm);
    MPI_Finalize();
    oct_watchdog_end();
    return;
out:
    if (oct_rank_may_report()) oct_log_anyone(OCT_LOG_ERROR, "%s", oct_fail_text(0));
    oct_abort(oct_status_exit(status));
}

void oct_comm_close(oct_comm **comm)
{
    int started = 0;
    if (!*comm) return;
    MPI_Initialized(&started);
    if ((*comm)->state) {
        if (started && !(*comm)->state->broken) end_mpi(*comm);
        state_free(&(*comm)->state);
    }
    oct_free(&(*comm)->hosts);
    oct_free(comm);
}

const oct_collective *oct_comm_collective(const oct_comm *comm)
{
    return &comm->base;
}

int oct_comm_rank(const oct_comm *comm)
{
    return comm->base.rank;
}

int oct_comm_size(const oct_comm *comm)
{
    return comm->base.size;
}

const char *oct_comm_host(const oct_comm *comm)
{
    return comm->host;
}

const char *oct_comm_library(const oct_comm *comm)
{
    return comm->library;
}

int64_t oct_digest(const void *data, size_t bytes)
{
    uint64_t digest = 0xcbf29ce484222325u ^ (uint64_t)bytes;
    for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
        uint64_t word = 0;
        size_t left = bytes - at;
        memcpy(&word, (const char *)data + at, left < sizeof(word) ? left : sizeof(word));
        digest = (digest ^ word) * 0x100000001b3u;
    }
    return (int64_t)digest;
}

oct_status oct_comm_same(const oct_comm *comm, const void *data, size_t bytes, const char *what)
{
    int size = comm->base.size;
    if (size == 1) return OCT_OK;
    int64_t mine = oct_digest(data, bytes), first = mine;
    OCT_TRY(oct_exchange_begin(comm, OCT_EXCHANGE_SAME));
    OCT_TRY(oct_exchange_broadcast(comm, &first, sizeof(first), 0));
    int64_t differs = mine == first ? 0 : size - comm->base.rank;
    OCT_TRY(oct_exchange_max(comm, &differs, 1));
    char zero[128], other[128];
    OCT_CHECK(differs == 0, OCT_LOST,
              "%s differ between %s and %s: a defect, or memory of one of the hosts is bad; start "
              "again from the last checkpoint",
              what, oct_rank_text(comm, 0, zero), oct_rank_text(comm, size - (int)differs, other));
    return OCT_OK;
}
