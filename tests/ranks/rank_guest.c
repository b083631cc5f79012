/* Octet in a program that is an MPI program itself: rank_guest KIND. Nothing here ends the process but a check.
 *
 *     first       the program has MPI; communicators come and go, and nothing of them is left
 *     began       Octet starts MPI, twice two communicators, and ends it when the program exits
 *     threads     two threads, each with communicators of its own at the same time
 *     finalized   the program ends MPI while a communicator is open
 *     lost        a rank that does not come and one that does not answer; the program's own MPI works on
 */
#include "core/base/mem.h"
#include "tests/ranks/rank.h"

#include <dirent.h>
#include <math.h>
#include <mpi.h>
#include <pthread.h>
#include <sys/prctl.h>

static _Atomic int copies;

int MPI_Comm_idup(MPI_Comm comm, MPI_Comm *copy, MPI_Request *request)
{
    copies++;
    return PMPI_Comm_idup(comm, copy, request);
}

int MPI_Comm_free(MPI_Comm *comm)
{
    copies--;
    return PMPI_Comm_free(comm);
}

int MPI_Finalize(void)
{
    printf("MPI ends\n");
    return PMPI_Finalize();
}

/* What a communicator could leave: threads, files, mapped files, memory, signals, the environment. */
typedef struct traces {
    int64_t threads, files, maps, variables, bytes, death_signal;
    void (*pipe)(int);
    MPI_Errhandler handler;
} traces;

static int count_entries(const char *folder)
{
    int count = 0;
    DIR *all = opendir(folder);
    while (all && readdir(all))
        count++;
    if (all) closedir(all);
    return count;
}

static int count_shared_maps(void)
{
    char line[4096];
    int count = 0;
    FILE *file = fopen("/proc/self/maps", "re");
    while (file && fgets(line, sizeof line, file))
        count += strstr(line, "octet") != NULL;
    if (file) fclose(file);
    return count;
}

static traces look(void)
{
    struct sigaction pipe;
    int death_signal = 0;
    traces t = {.threads = count_entries("/proc/self/task"),
                .files = count_entries("/proc/self/fd"),
                .maps = count_shared_maps(),
                .bytes = (int64_t)oct_mem_live()};
    for (char **at = environ; *at; at++)
        t.variables++;
    sigaction(SIGPIPE, NULL, &pipe);
    t.pipe = pipe.sa_handler;
    prctl(PR_GET_PDEATHSIG, &death_signal);
    t.death_signal = death_signal;
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &t.handler);
    return t;
}

static oct_comm *open_part(MPI_Comm program)
{
    oct_comm *comm;
    RANK_OK(NULL, oct_comm_open_mpi(&comm, (int)MPI_Comm_c2f(program), 20));
    return comm;
}

static void expect(oct_status wanted, oct_status got, const char *words)
{
    RANK_CHECK(NULL, got == wanted && strstr(oct_error_message(0), words), "%d, wanted \"%s\": %s",
               (int)got, words, oct_error_message(0));
}

static void expect_refusal(int handle, const char *words)
{
    oct_comm *comm;
    expect(OCT_USAGE, oct_comm_open_mpi(&comm, handle, 20), words);
    RANK_CHECK(NULL, comm == NULL, "a refused communicator");
}

static void *call_from_a_thread(void *user)
{
    oct_comm *comm;
    expect(OCT_USAGE, oct_comm_open(&comm, 20), "Octet is called by another one");
    return user;
}

static void refuse_what_is_wrong(int rank, int size)
{
    MPI_Comm half, pair, freed;
    pthread_t thread;
    oct_comm *none = NULL;
    oct_comm_close(&none);
    oct_comm_close(NULL);
    RANK_CHECK(NULL, oct_comm_rank(NULL) == 0 && oct_comm_size(NULL) == 1, "NULL is not alone");
    expect(OCT_USAGE, oct_comm_open(NULL, 20), "without a place for it: NULL");
    expect(OCT_USAGE, oct_comm_open(&none, -1), "deadline is -1 s");
    expect(OCT_USAGE, oct_comm_open(&none, NAN), "deadline is nan s");
    expect_refusal((int)MPI_Comm_c2f(MPI_COMM_NULL), "not MPI_COMM_NULL");
    expect_refusal(123456789, "MPI knows no communicator");
    MPI_Comm_dup(MPI_COMM_WORLD, &freed);
    const int handle = (int)MPI_Comm_c2f(freed);
    PMPI_Comm_free(&freed);
    expect_refusal(handle, "MPI knows no communicator");
    if (size > 1) {
        MPI_Comm_split(MPI_COMM_WORLD, rank == 0, 0, &half);
        MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank == 0 ? 1 : 0, 5, &pair);
        expect_refusal((int)MPI_Comm_c2f(pair), "intercommunicator");
        PMPI_Comm_free(&pair);
        PMPI_Comm_free(&half);
    }
    pthread_create(&thread, NULL, call_from_a_thread, NULL);
    pthread_join(thread, NULL);
}

/* 200 communicators of all ranks or of the odd or even ones, last rank first; the program's errors stay its own. */
static void come_and_go(int rank)
{
    traces before = {0};
    MPI_Comm part;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &part);
    for (int i = 0; i < 200; i++) {
        int64_t most = rank;
        oct_comm *comm = open_part(i % 2 ? part : MPI_COMM_WORLD);
        const oct_collective *all = oct_comm_collective(comm);
        if (all->size > 1) RANK_OK(comm, all->max_i64(all, &most, 1));
        RANK_CHECK(comm, i % 2 == 0 || most == oct_comm_size(comm) * 2 - 2 + rank % 2, "most %d",
                   (int)most);
        oct_comm_close(&comm);
        RANK_CHECK(NULL, copies == 0, "%d copies of communicators are left", copies);
        if (i == 3) before = look();
    }
    const traces after = look();
    RANK_CHECK(NULL, memcmp(&before, &after, sizeof before) == 0,
               "left: %lld threads, %lld files, %lld maps, %lld bytes, or something changed",
               (long long)(after.threads - before.threads), (long long)(after.files - before.files),
               (long long)after.maps, (long long)(after.bytes - before.bytes));
    PMPI_Comm_free(&part);
}

static void run_first(void)
{
    int rank, size, over, ranks = 1;
    oct_comm *comm;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const traces before = look();
    RANK_OK(NULL, oct_comm_open(&comm, 0));
    RANK_CHECK(comm, oct_comm_rank(comm) == rank && oct_comm_size(comm) == size, "another place");
    const traces open = look();
    RANK_CHECK(comm,
               open.pipe == before.pipe && open.death_signal == before.death_signal &&
                   open.variables == before.variables && open.handler == before.handler &&
                   open.threads == before.threads,
               "the process is another one");
    oct_comm_close(&comm);
    oct_comm_close(&comm);
    refuse_what_is_wrong(rank, size);
    come_and_go(rank);
    MPI_Allreduce(MPI_IN_PLACE, &ranks, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalized(&over);
    RANK_CHECK(NULL, !over && ranks == size, "MPI is over, or has %d ranks", ranks);
    MPI_Finalize();
    expect(OCT_USAGE, oct_comm_open(&comm, 0), "MPI is finalized");
    if (rank == 0) printf("a guest on %d ranks\n", size);
}

static void run_began(void)
{
    expect_refusal(0, "MPI is not initialized");
    for (int i = 0; i < 2; i++) {
        oct_comm *first, *second;
        int64_t one = 1;
        RANK_OK(NULL, oct_comm_open(&first, 20));
        RANK_OK(NULL, oct_comm_open(&second, 20));
        oct_comm_close(&first);
        const oct_collective *all = oct_comm_collective(second);
        if (all->size > 1) RANK_OK(second, all->max_i64(all, &one, 1));
        if (oct_comm_rank(second) == 0) printf("%d ranks\n", oct_comm_size(second));
        float *rows; /* as of a training that is destroyed later */
        const oct_comm *held = second;
        oct_comm_hold(held);
        RANK_OK(second, all->rows_alloc(all, &rows, 1000, sizeof *rows));
        oct_comm_close(&second);
        if (all->size > 1) expect(OCT_USAGE, all->max_i64(all, &one, 1), "is closed");
        all->rows_free(all, &rows);
        oct_comm_release(held);
    }
    oct_comm *open;
    RANK_OK(NULL, oct_comm_open(&open, 20));
}

/* user: the thread's own communicator of the program. */
static void *use_communicators(void *user)
{
    for (int i = 0; i < 20; i++) {
        oct_comm *comm = open_part(*(MPI_Comm *)user);
        const oct_collective *all = oct_comm_collective(comm);
        for (int64_t turn = 0; turn < 50; turn++) {
            int64_t most = turn + oct_comm_rank(comm);
            RANK_OK(comm, all->max_i64(all, &most, 1));
            RANK_CHECK(comm, most == turn + oct_comm_size(comm) - 1, "most %d", (int)most);
        }
        oct_comm_close(&comm);
    }
    return user;
}

static void run_threads(void)
{
    enum { THREADS = 2 };
    MPI_Comm parts[THREADS];
    pthread_t threads[THREADS];
    int level;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
    for (int i = 0; i < THREADS; i++)
        MPI_Comm_dup(MPI_COMM_WORLD, &parts[i]);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, use_communicators, &parts[i]);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("threads ended\n");
    MPI_Finalize();
}

static void run_finalized(void)
{
    int64_t one = 1;
    oct_comm *comm;
    MPI_Init(NULL, NULL);
    RANK_OK(NULL, oct_comm_open(&comm, 20));
    const oct_collective *all = oct_comm_collective(comm);
    MPI_Finalize();
    expect(OCT_USAGE, all->max_i64(all, &one, 1), "MPI is finalized");
    oct_comm_close(&comm);
    printf("closed\n");
}

/* Rank 1 comes too late to a broadcast, and what it sends then must not be written any more; then it does not open what the
 * others open. */
static void run_lost(void)
{
    char data[64];
    int rank;
    oct_comm *comm;
    MPI_Comm other, later;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    RANK_OK(NULL, oct_comm_open(&comm, 20));
    oct_comm_set_deadline(comm, 1);
    const oct_collective *all = oct_comm_collective(comm);
    if (rank == 1) sleep(2);
    const oct_status status = all->broadcast(all, data, sizeof data, 1);
    if (rank == 0) expect(OCT_LOST, status, "no answer from rank 1 (");
    memset(data, 7, sizeof data);
    if (rank == 0) expect(OCT_LOST, all->agree(all, OCT_OK), "no answer from rank 1 (");
    oct_comm_close(&comm);
    MPI_Barrier(MPI_COMM_WORLD);
    for (size_t i = 0; i < sizeof data; i++)
        RANK_CHECK(NULL, data[i] == 7, "a message came when the wait was over");
    if (rank != 1)
        expect(OCT_LOST, oct_comm_open_mpi(&comm, (int)MPI_Comm_c2f(other), 0.5),
               "was not opened by all of its");
    RANK_CHECK(NULL, comm == NULL, "a communicator with a lost rank");
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Comm_dup(MPI_COMM_WORLD, &later);
    PMPI_Comm_free(&later);
    printf("alive\n");
    MPI_Finalize();
}

int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "";
    if (strcmp(kind, "first") == 0) run_first();
    if (strcmp(kind, "began") == 0) run_began();
    if (strcmp(kind, "threads") == 0) run_threads();
    if (strcmp(kind, "finalized") == 0) run_finalized();
    if (strcmp(kind, "lost") == 0) run_lost();
    return 0;
}
