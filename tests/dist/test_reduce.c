/* The rounds of a sum over ranks, and sums of ranks that are threads: any number, without MPI. */
#include "dist/rounds.h"

#include "tests/ranks/sums.h"
#include "tests/support/process.h"
#include "tests/support/thread_ranks.h"

#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

TestSuite(rounds, .timeout = 60);
TestSuite(sums, .timeout = 120);

enum { MOST = 100 };

/* --- who exchanges what ------------------------------------------------------------------------ */

static oct_round rounds[MOST][OCT_MAX_ROUNDS];
static int num_rounds[MOST];

static bool same(oct_piece a, oct_piece b)
{
    return (a.begin == b.begin && a.end == b.end) || (a.begin == a.end && b.begin == b.end);
}

/* What one gives the other takes, in the same round of both counted from the last. */
static void check_partners(int rank, int round, bool *met)
{
    const oct_round *mine = &rounds[rank][round];
    const int from_end = num_rounds[rank] - round;
    for (int i = 0; i < mine->num_partners; i++) {
        const oct_partner *with = &mine->partner[i];
        const oct_round *theirs = &rounds[with->rank][num_rounds[with->rank] - from_end];
        int found = 0;
        met[with->rank] = true;
        cr_assert(with->rank >= mine->first && with->rank < mine->end);
        for (int j = 0; j < theirs->num_partners; j++) {
            if (theirs->partner[j].rank != rank) continue;
            found++;
            cr_assert(same(theirs->partner[j].takes, with->gives));
            cr_assert(same(theirs->partner[j].gives, with->takes));
        }
        cr_assert_eq(found, 1);
    }
}

/* Who keeps a piece takes it of the whole other half, piece by piece, and gives away all that it does not
 * keep. */
static void check_pieces(int rank, int64_t n, bool halve)
{
    oct_piece had = {0, n};
    for (int r = 0; r < num_rounds[rank]; r++) {
        const oct_round *round = &rounds[rank][r];
        int64_t taken = 0, given = 0;
        for (int i = 0; i < round->num_partners; i++) {
            taken += round->partner[i].takes.end - round->partner[i].takes.begin;
            given += round->partner[i].gives.end - round->partner[i].gives.begin;
        }
        cr_assert_eq(taken, round->keeps.end - round->keeps.begin);
        cr_assert(round->keeps.begin >= had.begin && round->keeps.end <= had.end);
        if (halve) cr_assert_eq(given + taken, had.end - had.begin);
        had = round->keeps;
    }
}

static int64_t check_rounds(int size, int64_t n, bool halve)
{
    int64_t most = 0;
    int64_t kept = 0;
    for (int rank = 0; rank < size; rank++)
        num_rounds[rank] = oct_rounds(rank, size, n, halve, rounds[rank]);
    for (int rank = 0; rank < size; rank++) {
        bool met[MOST] = {false};
        int64_t partners = 0;
        for (int r = 0; r < num_rounds[rank]; r++)
            check_partners(rank, r, met);
        check_pieces(rank, n, halve);
        for (int other = 0; other < size; other++)
            partners += met[other];
        if (partners > most) most = partners;
        if (num_rounds[rank] > 0) {
            const oct_piece piece = rounds[rank][num_rounds[rank] - 1].keeps;
            kept += piece.end - piece.begin;
        }
    }
    if (size > 1) cr_assert_eq(kept, halve ? n : n * size);
    return most;
}

Test(rounds, everybody_hears_of_everybody_with_few_partners)
{
    for (int size = 1; size <= MOST; size++) {
        const int levels = (int)ceil(log2((double)size));
        for (int64_t n = 1; n < 10000; n = 3 * n + 7) {
            const int64_t halving = check_rounds(size, n, true),
                          doubling = check_rounds(size, n, false);
            cr_assert_leq(halving, 2 * levels, "%d ranks", size);
            cr_assert_leq(doubling, 2 * levels, "%d ranks", size);
            cr_assert_eq(num_rounds[0], levels);
        }
    }
}

/* --- sums -------------------------------------------------------------------------------------- */

static void sums(const oct_comm *comm, void *step)
{
    check_sums(comm, 21, *(const int64_t *)step);
}

/* With OCT_LONG=1 on all of these; otherwise on up to 5 and on some more, powers of two or not. */
Test(sums, have_the_bits_of_the_definition_on_1_to_16_ranks)
{
    for (int ranks = 1; ranks <= 16; ranks++) {
        if (ranks > 5 && ranks != 7 && ranks != 8 && ranks != 13 && !oct_test_is_long()) continue;
        int64_t step = 1 + ranks / 3;
        oct_run_thread_ranks(ranks, 1, sums, &step);
    }
}

/* A node alone, several nodes, as many as a power of two or not, and hosts that are no nodes because one has
 * fewer ranks than the others. */
Test(sums, have_the_bits_of_the_definition_where_ranks_share_memory)
{
    static const int layouts[][2] = {{3, 3}, {4, 2}, {6, 2},  {7, 3},
                                     {5, 8}, {6, 3}, {15, 5}, {2, 2}};
    const size_t count = oct_test_is_long() ? OCT_COUNT(layouts) : 5;
    for (size_t i = 0; i < count; i++) {
        int64_t step = 1 + layouts[i][0] / 3;
        oct_run_thread_ranks(layouts[i][0], layouts[i][1], sums, &step);
    }
}

/* Rows that a host shares are summed by messages where the lane of the sum has no memory, hence no line to show them in. */
Test(sums, of_rows_go_by_messages_in_lanes_without_memory)
{
    int64_t step = 3;
    oct_run_thread_ranks_lanes_apart(3, 3, sums, &step);
    oct_run_thread_ranks_lanes_apart(4, 2, sums, &step);
}

/* The total is in the rows of one rank of a host, which may write them again when all have met. */
static void lend(const oct_comm *comm, void *none)
{
    enum { N = 700 };
    const oct_collective *all = oct_comm_collective(comm);
    const oct_leaves leaves =
        oct_leaves_split(2, 1, all->rank, all->size); /* of the ranks 1 and 3 */
    float *rows;
    bool lent;
    int64_t met = 0;
    (void)none;
    RANK_OK(comm, all->rows_alloc(all, &rows, 1, N * sizeof *rows));
    for (int step = 0; step < 3; step++) {
        fill_parts(&leaves, rows, N);
        RANK_OK(comm, all->sum_begin(all, &leaves, rows, N, N / 2));
        RANK_OK(comm, all->sum_begin(all, &leaves, rows + N / 2, N, N / 2));
        RANK_OK(comm, all->sums_finish(all));
        const float *total = all->rows_total(all, &leaves, rows, &lent);
        compare_f32(comm, &leaves, total, N);
        RANK_CHECK(comm, lent == (all->rank == 1), "it is lent");
        RANK_CHECK(comm, (total == rows) == lent, "the total is elsewhere");
        RANK_CHECK(comm, all->sum_begin(all, &leaves, rows, N, N) == OCT_DEFECT,
                   "rows that others read are summed again");
        oct_fail_clear();
        RANK_OK(comm, all->max_i64(all, &met, 1));
    }
    all->rows_free(all, &rows);
    RANK_CHECK(comm, !rows, "rows are not freed");
}

Test(sums, of_rows_that_a_host_shares_are_read_where_one_rank_has_them)
{
    oct_run_thread_ranks(4, 4, lend, NULL);
}

typedef struct count {
    pthread_mutex_t lock;
    int64_t n;
    int64_t messages, bytes; /* of all ranks, for the sum alone */
    int connections;         /* of the rank with the most, for all collectives together */
} count;

static void count_one(const oct_comm *comm, void *user)
{
    count *c = user;
    const oct_collective *all = oct_comm_collective(comm);
    const oct_leaves leaves = oct_leaves_split(all->size, 1, all->rank, all->size);
    float *parts;
    int64_t values[3] = {all->rank};
    char word = 'w', *words = NULL;
    RANK_OK(comm, oct_alloc(&parts, (size_t)c->n, sizeof *parts));
    RANK_OK(comm, oct_alloc(&words, (size_t)all->size, 1));
    const oct_traffic before = oct_traffic_of(comm);
    RANK_OK(comm, all->tree_sum(all, &leaves, parts, c->n, sizeof(float), parts));
    const oct_traffic after = oct_traffic_of(comm);
    RANK_OK(comm, all->tree_sum(all, &leaves, parts, 10, sizeof(float), parts));
    RANK_OK(comm, all->max_i64(all, values, 3));
    RANK_OK(comm, all->broadcast(all, &word, 1, 0));
    RANK_OK(comm, all->gather(all, &word, 1, all->rank == 0 ? words : NULL));
    const oct_traffic end = oct_traffic_of(comm);
    pthread_mutex_lock(&c->lock);
    c->messages += after.messages - before.messages;
    c->bytes += after.bytes - before.bytes;
    if (end.connections > c->connections) c->connections = end.connections;
    pthread_mutex_unlock(&c->lock);
    oct_free(&parts);
    oct_free(&words);
}

static count count_on(int ranks, int on_a_host, int64_t n)
{
    count c = {.lock = PTHREAD_MUTEX_INITIALIZER, .n = n};
    oct_run_thread_ranks(ranks, on_a_host, count_one, &c);
    return c;
}

/* 2 log2 P messages and 2 n (1 - 1/P) elements for each rank, which is the least there can be. */
Test(sums, of_a_power_of_two_of_ranks_transfer_two_vectors)
{
    for (int levels = 1; levels <= 5; levels++) {
        const int ranks = 1 << levels;
        const int64_t n = (int64_t)4096 * ranks;
        const count c = count_on(ranks, 1, n);
        cr_assert_eq(c.messages, (int64_t)ranks * 2 * levels);
        cr_assert_eq(c.bytes, 2 * n * (ranks - 1) * (int64_t)sizeof(float));
    }
}

/* Only what a node has summed crosses the network, and every rank of it carries its lane. */
Test(sums, of_a_node_send_no_message)
{
    const int64_t n = 16 * 8192;
    cr_assert_eq(count_on(4, 4, n).messages, 0);
    for (int nodes = 2; nodes <= 4; nodes *= 2) {
        const count c = count_on(4 * nodes, 4, n);
        cr_assert_eq(c.messages, 4 * nodes * (nodes == 2 ? 2 : 4));
        cr_assert_eq(c.bytes, 2 * n * (nodes - 1) * (int64_t)sizeof(float));
    }
}

Test(sums, without_memory_to_share_go_by_messages)
{
    int64_t step = 7;
    const struct rlimit little = {1 << 18, 1 << 18};
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &little), 0);
    cr_assert_eq(count_on(4, 4, 16384).messages, 4 * 4);
    oct_run_thread_ranks(6, 3, sums, &step);
}

Test(sums, a_rank_has_few_connections)
{
    for (int ranks = 2; ranks <= OCT_THREAD_RANKS_MAX; ranks += ranks < 20 ? 1 : 11) {
        const count c = count_on(ranks, 1, 50000);
        cr_assert_leq(c.connections, 4 * log2(ranks), "%d ranks: %d", ranks, c.connections);
    }
}
