/* What goes wrong in practice: rank_fault KIND RANK [DEADLINE]. The named rank misbehaves, the others go on
 * with sums; a rank whose wait fails prints the sentence and ends the job, as the command does. The deadline
 * is that of the sums: processes of a busy machine may need seconds until all of them have started. */
#include "core/base/mem.h"
#include "dist/comm_impl.h"
#include "tests/ranks/rank.h"

#include <signal.h>
#include <unistd.h>

enum { N = 6000, LEAVES = 8, START_S = 40 };

static oct_status one_step(const oct_collective *all, int64_t n, float *rows, float *out)
{
    oct_leaves leaves = oct_leaves_split(LEAVES, 1, all->rank, all->size);
    int64_t stop = 0;
    if (leaves.local > 0) oct_tree_fold_f32(&leaves, rows, n);
    OCT_TRY(all->tree_sum_f32(all, &leaves, rows, n, out));
    return all->max_i64(all, &stop, 1);
}

static oct_status misbehave(const oct_collective *all, const char *kind, float *rows, float *out)
{
    int64_t values[4] = {0};
    if (strcmp(kind, "kill") == 0) kill(getpid(), SIGKILL);
    if (strcmp(kind, "stopped") == 0) kill(getpid(), SIGSTOP);
    if (strcmp(kind, "sleep") == 0) sleep(60);
    if (strcmp(kind, "late") == 0) usleep(400000);
    if (strcmp(kind, "exit") == 0) _exit(3);
    if (strcmp(kind, "assert") == 0) OCT_ASSERT(kind[0] == 'b');
    if (strcmp(kind, "stop") == 0) oct_abort(5);
    if (strcmp(kind, "order") == 0) return all->max_i64(all, values, 4);
    if (strcmp(kind, "length") == 0) return one_step(all, N / 3, rows, out);
    return OCT_OK;
}

int main(int argc, char **argv)
{
    if (argc < 3) return 2;
    if (strcmp(argv[1], "before") == 0) oct_abort(6); /* before MPI starts */
    oct_comm *comm = rank_open(START_S);
    if (argc > 3) comm->state->deadline_s = rank_number(argv[3]);
    const oct_collective *all = oct_comm_collective(comm);
    float *rows, *out;
    RANK_OK(comm, oct_alloc(&rows, (size_t)LEAVES * N, sizeof(*rows)));
    RANK_OK(comm, oct_alloc(&out, N, sizeof(*out)));

    oct_status status = OCT_OK;
    for (int step = 0; step < 20 && status == OCT_OK; step++) {
        if (step == 10 && all->rank == rank_number(argv[2]))
            status = misbehave(all, argv[1], rows, out);
        if (status == OCT_OK) status = one_step(all, N, rows, out);
    }
    if (status != OCT_OK) {
        /* once lost, always lost */
        RANK_CHECK(comm, all->agree(all, OCT_OK) == OCT_LOST, "a broken communicator still works");
        oct_abort(rank_report(status));
    }
    oct_free(&rows);
    oct_free(&out);
    oct_comm_close(&comm);
    printf("ended\n");
    return 0;
}
