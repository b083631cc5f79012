/* Faults of practice: rank_fault KIND RANK [DEADLINE]. The named rank misbehaves, the others go on
 * with sums; a rank whose wait fails prints the sentence and ends the job, as the command does. The deadline
 * is that of the sums: processes of a busy machine may need seconds until all of them have started. KIND
 * bucket-kill and bucket-stop: inside of a sum of gradients after some of its pieces; rows-kill and rows-stop:
 * in one whose rows the others add up in place; mpirun: it is stopped, and then the rank. */
#include "core/base/mem.h"
#include "tests/ranks/rank.h"

enum { N = 6000, LEAVES = 8, BUCKET = 1 << 22, START_S = 40 };

static oct_status one_step(const oct_collective *all, int64_t n, float *rows, float *out)
{
    oct_leaves leaves = oct_leaves_split(LEAVES, 1, all->rank, all->size);
    int64_t stop = 0;
    if (leaves.local > 0) oct_tree_fold_f32(&leaves, rows, n);
    OCT_TRY(all->tree_sum(all, &leaves, rows, n, sizeof(float), out));
    return all->max_i64(all, &stop, 1);
}

static oct_status misbehave(const oct_collective *all, const char *kind, float *rows, float *out)
{
    int64_t values[4] = {0};
    if (strcmp(kind, "kill") == 0) kill(getpid(), SIGKILL);
    if (strcmp(kind, "mpirun") == 0) rank_stop_launcher(4);
    if (strcmp(kind, "stopped") == 0 || strcmp(kind, "mpirun") == 0) kill(getpid(), SIGSTOP);
    if (strcmp(kind, "sleep") == 0) sleep(60);
    if (strcmp(kind, "late") == 0) usleep(400000);
    if (strcmp(kind, "exit") == 0) _exit(3);
    if (strcmp(kind, "assert") == 0) OCT_ASSERT(kind[0] == 'b');
    if (strcmp(kind, "stop") == 0) oct_abort(5);
    if (strcmp(kind, "order") == 0) return all->max_i64(all, values, 4);
    if (strcmp(kind, "length") == 0) return one_step(all, N / 3, rows, out);
    return OCT_OK;
}

/* The rows of the named rank are filled in, and the others, who come a second later so that it cannot have gone on,
 * wait for the share that it would merge. */
static oct_status sum_rows(oct_comm *comm, const char *kind, int guilty)
{
    const oct_collective *all = oct_comm_collective(comm);
    const oct_leaves leaves = oct_leaves_split(all->size, 1, all->rank, all->size);
    float *rows;
    int64_t met = 0;
    oct_status status = OCT_OK;
    RANK_OK(comm, all->rows_alloc(all, &rows, BUCKET, sizeof(*rows)));
    for (int step = 0; step < 5 && status == OCT_OK; step++) {
        if (step == 3 && all->rank != guilty) sleep(1);
        status = all->sum_begin(all, &leaves, rows, BUCKET, BUCKET);
        if (step == 3 && all->rank == guilty)
            kill(getpid(), strcmp(kind, "rows-kill") == 0 ? SIGKILL : SIGSTOP);
        if (status == OCT_OK) status = all->sums_finish(all);
        if (status == OCT_OK) status = all->max_i64(all, &met, 1);
    }
    all->rows_free(all, &rows);
    return status;
}

/* Sums a bucket in a lane besides a backward, which looks now and then. Within it, at the fourth, the named rank is
 * killed or stops. */
static oct_status sum_bucket(oct_comm *comm, const oct_comm *lane, const char *kind, bool guilty,
                             float *rows)
{
    const oct_collective *all = oct_comm_collective(comm);
    const oct_leaves leaves = oct_leaves_split(all->size, 1, all->rank, all->size);
    const oct_rank_node *node = &lane->state->node;
    const uint64_t before = node->pieces, pieces = BUCKET * sizeof *rows / node->slot_bytes;
    RANK_CHECK(comm, pieces >= 4, "a bucket has few pieces");
    OCT_TRY(all->sum_begin(all, &leaves, rows, BUCKET, BUCKET));
    for (int i = 0; i < 100000 && node->pieces < before + pieces / 2; i++) {
        OCT_TRY(all->sums_move(all));
        usleep(50);
    }
    RANK_CHECK(comm, node->pieces < before + pieces, "the bucket's sum is over");
    if (guilty) kill(getpid(), strcmp(kind, "bucket-kill") == 0 ? SIGKILL : SIGSTOP);
    return all->sums_finish(all);
}

static oct_status sum_buckets(oct_comm *comm, const char *kind, int guilty)
{
    float *rows;
    oct_status status = OCT_OK;
    const oct_comm *lane = comm->besides; /* sums take the lanes in turn */
    RANK_OK(comm, oct_alloc(&rows, BUCKET, sizeof(*rows)));
    for (int step = 0; step < 5 && status == OCT_OK; step++) {
        status = sum_bucket(comm, lane, kind, step == 3 && oct_comm_rank(comm) == guilty, rows);
        lane = lane->besides ? lane->besides : comm->besides;
    }
    oct_free(&rows);
    return status;
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
    for (const oct_comm *lane = comm->besides; lane; lane = lane->besides)
        lane->state->deadline_s = comm->state->deadline_s;
    if (strncmp(argv[1], "bucket-", 7) == 0)
        status = sum_buckets(comm, argv[1], rank_number(argv[2]));
    if (strncmp(argv[1], "rows-", 5) == 0) status = sum_rows(comm, argv[1], rank_number(argv[2]));
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
