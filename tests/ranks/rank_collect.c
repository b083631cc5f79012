/* maximum, broadcast from every root, gather, and the comparison of ranks. Prints "collected" from
 * rank 0. With --differ=R, rank R holds another byte than the others and the comparison must say so. */
#include "core/base/mem.h"
#include "tests/ranks/rank.h"

#include <stdint.h>

static void check_max(const oct_comm *comm, const oct_collective *all)
{
    enum { N = 300 };
    int64_t values[N];
    for (int i = 0; i < N; i++) /* a different rank is greatest for each element; some negative */
        values[i] = i % all->size == all->rank ? i - 150 : INT64_MIN + all->rank;
    RANK_OK(comm, all->max_i64(all, values, N));
    for (int i = 0; i < N; i++)
        RANK_CHECK(comm, values[i] == i - 150, "maximum %d is %lld", i, (long long)values[i]);
    RANK_OK(comm, all->max_i64(all, values, 0));
}

static void check_broadcast(const oct_comm *comm, const oct_collective *all, size_t bytes,
                            int first)
{
    unsigned char *data;
    RANK_OK(comm, oct_alloc(&data, bytes, 1));
    for (int root = first; root < all->size; root++) {
        for (size_t i = 0; i < bytes; i++)
            data[i] = all->rank == root ? (unsigned char)(i * 7 + (size_t)root) : 0;
        RANK_OK(comm, all->broadcast(all, data, bytes, root));
        for (size_t i = 0; i < bytes; i++)
            RANK_CHECK(comm, data[i] == (unsigned char)(i * 7 + (size_t)root),
                       "broadcast of %zu bytes from %d: byte %zu is %d", bytes, root, i, data[i]);
    }
    oct_free(&data);
}

static void check_gather(const oct_comm *comm, const oct_collective *all, size_t bytes)
{
    unsigned char *mine, *every = NULL;
    RANK_OK(comm, oct_alloc(&mine, bytes, 1));
    memset(mine, all->rank + 1, bytes);
    if (all->rank == 0) RANK_OK(comm, oct_alloc(&every, bytes, (size_t)all->size));
    RANK_OK(comm, all->gather(all, mine, bytes, every));
    for (int r = 0; every && r < all->size; r++)
        for (size_t i = 0; i < bytes; i++)
            RANK_CHECK(comm, every[(size_t)r * bytes + i] == r + 1, "gather: rank %d, byte %zu", r,
                       i);
    oct_free(&mine);
    oct_free(&every);
}

int main(int argc, char **argv)
{
    int differ = argc > 1 && strncmp(argv[1], "--differ=", 9) == 0 ? rank_number(argv[1] + 9) : -1;
    oct_comm *comm = rank_open(20);
    const oct_collective *all = oct_comm_collective(comm);
    char weights[1003] = {0};

    check_max(comm, all);
    check_broadcast(comm, all, 1, 0);
    check_broadcast(comm, all, 100000, 0);
    check_gather(comm, all, 24);
    check_gather(comm, all, 70000);
    /* larger than one message, from the last root */
    if (differ < 0) check_broadcast(comm, all, ((size_t)64 << 20) + 5, all->size - 1);

    if (all->rank == differ) weights[1002] = 1;
    oct_status status = oct_comm_same(comm, weights, sizeof(weights), "weights");
    int code = all->rank == 0 ? rank_report(status) : oct_status_exit(status);
    if (all->rank == 0 && status == OCT_OK) printf("collected on %d ranks\n", all->size);
    oct_comm_close(&comm);
    return code;
}
