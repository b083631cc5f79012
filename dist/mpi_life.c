/* MPI belongs to the process, not to a communicator: who starts it, who ends it, and which thread may call it.
 *
 * The program octet starts it with its one communicator and ends it when that is closed, both under the watchdog. In
 * other programs Octet is a guest. It starts MPI only where nobody has, and since MPI starts once, what it began lasts
 * until the program exits. Where that fails with a communicator open, or a rank was lost, it is not ended: MPI_Finalize
 * would wait for ranks that do not come, while mpirun ends the job of a rank that leaves without it. */
#include "dist/comm_impl.h"

#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

static struct {
    pid_t
        began; /* the process in which Octet has started MPI; its children inherit what runs at its exit */
    _Atomic int entered; /* transports */
    _Atomic bool lost;   /* ranks, for which MPI_Finalize would wait */
} life;

/* Asks MPI something that is true or false, at any time of its life. */
static bool ask(int (*question)(int *))
{
    int answer = 0;
    question(&answer);
    return answer != 0;
}

/* The library says "Open MPI v4.1.4, package: ...", "MPICH Version:\t4.0.2\n..." or "Intel(R) MPI Library 2021.9
 * for ...". */
const char *oct_mpi_library(void)
{
    static const char *const before[] = {" v", " Version:\t", " Version: "};
    static _Thread_local char library[64];
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

/* Prepares Octet's own process for MPI_Init: it dies with its mpirun, and Open MPI gets settings that work here unless the
 * user has set them. */
static void prepare_mpi_init(void)
{
    int local_rank, local = 0;
    oct_rank_table_enter();
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

oct_status oct_mpi_runs(bool *runs)
{
    *runs = ask(MPI_Initialized);
    return *runs ? oct_mpi_check() : OCT_OK;
}

oct_status oct_mpi_check(void)
{
    int level = MPI_THREAD_SINGLE;
    OCT_CHECK(!ask(MPI_Finalized), OCT_USAGE,
              "MPI is finalized, so the ranks cannot reach each other any more; call MPI_Finalize "
              "when Octet's communicators are closed");
    MPI_Query_thread(&level);
    OCT_CHECK(
        level >= MPI_THREAD_SERIALIZED || ask(MPI_Is_thread_main), OCT_USAGE,
        "MPI was started for its main thread alone, and Octet is called by another one; start "
        "it with MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE");
    return OCT_OK;
}

/* At the exit of a program in which Octet has started MPI. */
static void end_at_exit(int exit_status, void *unused)
{
    (void)unused;
    if (getpid() != life.began || life.lost || (life.entered > 0 && exit_status != 0)) return;
    if (!ask(MPI_Finalized) && ask(MPI_Is_thread_main)) MPI_Finalize();
}

oct_status oct_mpi_enter(double deadline_s)
{
    int threads, rank, size, wanted;
    life.entered++;
    if (!ask(MPI_Initialized)) {
        if (oct_process_is_own()) prepare_mpi_init();
        oct_watchdog_begin(OCT_RANK_IN_INIT, deadline_s);
        const int error = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &threads);
        oct_watchdog_end();
        OCT_CHECK(error == MPI_SUCCESS, OCT_LOST, "MPI did not start");
        life.began = getpid();
        if (!oct_process_is_own()) on_exit(end_at_exit, NULL);
    }
    if (life.began == 0) return OCT_OK;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    oct_launched(&rank, &wanted);
    OCT_CHECK(size >= wanted, OCT_USAGE,
              "the launcher started %d ranks, but %s sees %d: the launcher belongs to "
              "another MPI library; use the mpirun of %s",
              wanted, oct_mpi_library(), size, oct_mpi_library());
    return OCT_OK;
}

void oct_mpi_leave(bool orderly, double deadline_s)
{
    if (!orderly) life.lost = true;
    life.entered--;
    if (!orderly || !oct_process_is_own()) return;
    oct_watchdog_begin(OCT_RANK_IN_FINALIZE, deadline_s);
    MPI_Finalize();
    oct_watchdog_end();
}
