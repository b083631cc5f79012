/* Agreement. Arguments are ranks that fail, each with a sentence of its own; "all" instead makes
 * all fail with the same sentences, "long" makes rank 1 fail with more problems than can travel. Rank 0
 * prints its record; every rank prints "rank R status S code C". */
#include "tests/ranks/rank.h"

static oct_status fail_as_asked(int rank, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "all") == 0) {
            (void)oct_fail(OCT_USAGE, "recipe.yaml:3: no such model");
            return oct_fail_add(OCT_USAGE, "recipe.yaml:9: no such optimizer");
        }
        if (strcmp(argv[i], "long") == 0 && rank == 1) {
            for (int k = 0; k < 50; k++)
                (void)oct_fail_add(OCT_DATA, "problem %d: %0100d", k, k);
            return OCT_DATA;
        }
        if (rank_number(argv[i]) == rank) {
            (void)oct_fail(OCT_DATA, "batch_%d.bin: truncated\nread 3 of 10 bytes", rank);
            return oct_fail_add(OCT_DATA, "second sentence of %d", rank);
        }
    }
    return OCT_OK;
}

int main(int argc, char **argv)
{
    oct_comm *comm = rank_open(20);
    const oct_collective *all = oct_comm_collective(comm);
    RANK_OK(comm, all->agree(all, OCT_OK));
    oct_status status = all->agree(all, fail_as_asked(all->rank, argc, argv));
    printf("rank %d status %d code %d\n", all->rank, (int)status, (int)oct_fail_code());
    fflush(stdout);
    int code = oct_status_exit(status == OCT_OK ? OCT_OK : oct_fail_code());
    if (all->rank == 0) rank_report(status);

    /* The ranks still agree about what comes next. */
    int64_t one = all->rank;
    RANK_OK(comm, all->max_i64(all, &one, 1));
    RANK_CHECK(comm, one == all->size - 1, "the maximum afterwards is %lld", (long long)one);
    oct_comm_close(&comm);
    return code;
}
